//! `--report`: one self-contained page with a table and plots per variant. No script, no font, no picture from elsewhere.

mod plot;

use std::fmt::Write as _;

use tidegate_sim::batch::Runs;
use tidegate_sim::kernel::Timeline;
use tidegate_sim::report::Report;

const STYLE: &str = include_str!("html/report.css");

/// One variant: its numbers, its runs, and the loads of each policy over time on the first seed.
pub(super) struct Chapter<'a> {
    pub(super) report: &'a Report,
    pub(super) runs: &'a [Runs],
    pub(super) timelines: Vec<Timeline>,
}

/// The page.
///
/// # Errors
/// If a plot cannot be drawn.
pub(super) fn page(scenario: &str, chapters: &[Chapter<'_>]) -> anyhow::Result<String> {
    let title = escape(scenario);
    let mut out = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>{title}: policies compared</title><style>{STYLE}</style><h1>{title}</h1>\
         <p>Simulated by Tidegate {} with the decision code that serves. Same arrivals and engines for every policy.</p>",
        env!("CARGO_PKG_VERSION")
    );
    for chapter in chapters {
        let r = chapter.report;
        let name = r.variant.as_deref().map(escape).unwrap_or_else(|| title.clone());
        let trace = r.trace.as_deref().map(|t| format!(", trace {}", escape(t))).unwrap_or_default();
        write!(out, "<h2>{name}</h2><p>{} seeds, {} endpoints{trace}</p>{}", r.seeds, r.endpoints.len(), table(r))?;
        let lines: Vec<(&str, &Runs)> = r.lines.iter().map(|l| l.name.as_str()).zip(chapter.runs).collect();
        figure(
            &mut out,
            "Latency distribution: share of answers within a time",
            &plot::distribution(&lines, |r| &r.total)?,
        )?;
        if r.stream {
            figure(
                &mut out,
                "Time to first token: share of answers within a time",
                &plot::distribution(&lines, |r| &r.ttft)?,
            )?;
        }
        let points: Vec<(&str, f64, f64)> = r.lines.iter().filter_map(point).collect();
        figure(&mut out, "Latency against success: up and to the left is better", &plot::pareto(&points)?)?;
        for (title, cells) in [
            ("Tenants", super::table::tenants(r)),
            ("Differences, paired by seed", super::table::pairs(r)),
            ("Total time of each round", super::table::rounds(r)),
        ] {
            if let Some((head, rows)) = cells {
                write!(out, "<h3>{title}</h3>{}", grid(&head, &rows))?;
            }
        }
        out.push_str("<h3>Load of each endpoint over time, first seed</h3><div class=grid>");
        for (line, timeline) in r.lines.iter().zip(&chapter.timelines) {
            figure(&mut out, &line.name, &plot::loads(&r.endpoints, timeline)?)?;
        }
        out.push_str("</div>");
    }
    Ok(out)
}

fn point(l: &tidegate_sim::report::Line) -> Option<(&str, f64, f64)> {
    Some((l.name.as_str(), l.latency_s.mean?, l.success.mean?))
}

fn figure(out: &mut String, caption: &str, svg: &str) -> anyhow::Result<()> {
    write!(out, "<figure><figcaption>{}</figcaption>{svg}</figure>", escape(caption))?;
    Ok(())
}

fn table(r: &Report) -> String {
    let mut head = vec!["policy", "requests", "success %", "mean s", "p50 s", "p99 s"];
    if r.stream {
        head.extend(["TTFT mean s", "TTFT p99 s", "good %"]);
    }
    head.push("imbalance");
    let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
    let rows: Vec<_> = r.lines.iter().map(|l| super::table::measured(l, r.stream)).collect();
    grid(&head, &rows)
}

/// A table that scrolls where it is wider than the page.
fn grid(head: &[String], rows: &[Vec<String>]) -> String {
    let row = |tag: &str, cells: &[String]| -> String {
        let cells: String = cells.iter().map(|c| format!("<{tag}>{}</{tag}>", escape(c))).collect();
        format!("<tr>{cells}</tr>")
    };
    let body: String = rows.iter().map(|cells| row("td", cells)).collect();
    format!("<div class=scroll><table>{}{body}</table></div>", row("th", head))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
