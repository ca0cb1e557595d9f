//! `--report`: one self-contained page with a table and plots per variant. No script, no font, no picture from elsewhere.

mod plot;

use std::fmt::Write as _;

use tidegate_sim::batch::Runs;
use tidegate_sim::report::Line;

use super::pages::{self, Chapter, LoadCurves};

const STYLE: &str = include_str!("html/report.css");

/// The page.
///
/// # Errors
/// If a plot cannot be drawn.
pub(super) fn page(scenario: &str, chapters: &[Chapter<'_>], loads: &[LoadCurves]) -> anyhow::Result<String> {
    let title = escape(scenario);
    let mut out = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>{title}: policies compared</title><style>{STYLE}</style><h1>{title}</h1>\
         <p>Simulated by Tidegate {} with the decision code that serves. Same arrivals and engines for every policy.</p>",
        env!("CARGO_PKG_VERSION")
    );
    for note in pages::notes(chapters) {
        write!(out, "<p class=note>{}</p>", escape(&note))?;
    }
    for curves in loads {
        write!(out, "<h2>Load: {}</h2>", escape(&curves.title))?;
        for (caption, quantity, of) in curves.quantities() {
            figure(&mut out, &caption, &plot::against_load(curves, quantity, of)?)?;
        }
    }
    for chapter in chapters {
        write_chapter(&mut out, &title, chapter)?;
    }
    Ok(out)
}

fn write_chapter(out: &mut String, title: &str, chapter: &Chapter<'_>) -> anyhow::Result<()> {
    let r = chapter.report;
    let name = r.variant.as_deref().map_or_else(|| title.to_owned(), escape);
    write!(out, "<h2>{name}</h2><p>{}</p>", escape(&chapter.summary()))?;
    let (head, rows) = chapter.policies();
    out.push_str(&grid(&head, &rows));
    let lines: Vec<(&str, &Runs)> = r.lines.iter().map(|l| l.name.as_str()).zip(chapter.runs).collect();
    let caption = "Latency distribution: share of answers within a time";
    figure(out, caption, &plot::distribution(&lines, "time to the whole answer, seconds", |r| &r.total)?)?;
    if r.stream {
        let caption = "Time to first token: share of answers within a time";
        figure(out, caption, &plot::distribution(&lines, "time to first token, seconds", |r| &r.ttft)?)?;
    }
    let axes = ("mean latency, seconds", "success");
    let caption = "Latency against success: up and to the left is better; nothing beats what the line joins in both";
    figure(out, caption, &plot::pareto(&points(r, |l| Some((l.latency_s.mean?, l.success.mean?))), axes)?)?;
    if r.stream {
        let axes = ("mean time to first token, seconds", "goodput");
        let caption = "Time to first token against goodput: the share of streams within the goal";
        figure(out, caption, &plot::pareto(&points(r, |l| Some((l.ttft_s?, l.goodput?))), axes)?)?;
    }
    if !r.tenants.is_empty() {
        let caption = "Share of the whole answers that each tenant got, and of what was asked below";
        figure(out, caption, &plot::tenants(&r.tenants)?)?;
    }
    for (heading, cells) in chapter.tables() {
        if let Some((head, rows)) = cells {
            write!(out, "<h3>{heading}</h3>{}", grid(&head, &rows))?;
        }
    }
    write_time(out, chapter)
}

/// The first seed over time: who was there, and what each endpoint had.
fn write_time(out: &mut String, chapter: &Chapter<'_>) -> anyhow::Result<()> {
    let r = chapter.report;
    if r.lines.iter().any(|l| l.fleet.is_some()) {
        let names: Vec<&str> = r.lines.iter().map(|l| l.name.as_str()).collect();
        figure(out, "Endpoints that serve over time, first seed", &plot::of_fleet(&names, &chapter.timelines)?)?;
    }
    for quantity in [plot::LOAD, plot::IN_FLIGHT, plot::WAITING] {
        if !quantity.is_there(&chapter.timelines) {
            continue;
        }
        write!(out, "<h3>{} over time, first seed</h3><div class=grid>", quantity.heading)?;
        let highest = plot::highest(&chapter.timelines, quantity);
        for (line, timeline) in r.lines.iter().zip(&chapter.timelines) {
            figure(out, &line.name, &plot::endpoints(&r.endpoints, timeline, quantity, highest)?)?;
        }
        out.push_str("</div>");
    }
    Ok(())
}

/// A named point per policy that has both numbers.
fn points(r: &tidegate_sim::report::Report, of: fn(&Line) -> Option<(f64, f64)>) -> Vec<(&str, f64, f64)> {
    r.lines.iter().filter_map(|l| of(l).map(|(x, y)| (l.name.as_str(), x, y))).collect()
}

fn figure(out: &mut String, caption: &str, svg: &str) -> anyhow::Result<()> {
    write!(out, "<figure><figcaption>{}</figcaption>{svg}</figure>", escape(caption))?;
    Ok(())
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
