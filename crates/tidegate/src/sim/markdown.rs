//! `report.md`: the same report as text, with the numbers behind the figures of the page.

use std::fmt::Write as _;

use tidegate_sim::kernel::{Point, Sample, Timeline};
use tidegate_sim::report::Line;
use tidegate_sim::workload::Latency;

use super::pages::{self, Chapter, LoadCurves};
use super::table::{Cells, number};

/// Points of a distribution that are written down.
const QUANTILES: [f64; 7] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];
/// Endpoints whose loads are written down one by one.
const MOST_ENDPOINTS: usize = 12;

/// The page. Writing to a string cannot fail, so results of `write!` are dropped.
pub(super) fn page(scenario: &str, chapters: &[Chapter<'_>], loads: &[LoadCurves]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut out = format!(
        "# {scenario}: policies compared\n\nSimulated by Tidegate {version} with the decision code that serves. Same arrivals and engines \
         for every policy. Times are seconds; plots are in report.html beside this file.\n"
    );
    for note in pages::notes(chapters) {
        let _ = write!(out, "\n> {note}\n");
    }
    for curves in loads {
        let _ = write!(out, "\n## Load: {}\n", curves.title);
        for (caption, _, of) in curves.quantities() {
            let mut head = vec!["policy".to_owned()];
            let at = curves.lines.first().map(|(_, points)| points.as_slice()).unwrap_or_default();
            head.extend(at.iter().map(|(rps, _)| format!("{rps:.2} requests/s")));
            let row = |(name, points): &(String, Vec<_>)| {
                let mut row = vec![name.clone()];
                row.extend(points.iter().map(|(_, line)| number(of(line), 3)));
                row
            };
            table(&mut out, &caption, (head, curves.lines.iter().map(row).collect()));
        }
    }
    for chapter in chapters {
        write_chapter(&mut out, scenario, chapter);
    }
    out
}

fn write_chapter(out: &mut String, scenario: &str, chapter: &Chapter<'_>) {
    let r = chapter.report;
    let _ = write!(out, "\n## {}\n\n{}\n", r.variant.as_deref().unwrap_or(scenario), chapter.summary());
    table(out, "Policies", chapter.policies());
    let named = || r.lines.iter().map(|l| l.name.as_str()).zip(chapter.runs);
    table(
        out,
        "Latency: time within which a share of the answers came",
        distribution(named().map(|(n, r)| (n, &r.total))),
    );
    if r.stream {
        let rows = distribution(named().map(|(n, r)| (n, &r.ttft)));
        table(out, "Time to first token: time within which a share of the answers had it", rows);
    }
    for (heading, cells) in chapter.tables() {
        if let Some(cells) = cells {
            table(out, heading, cells);
        }
    }
    write_time(out, chapter);
}

/// What is kept of each endpoint over time.
type Quantity = (&'static str, fn(&Point) -> f64, usize);
const OVER_TIME: [Quantity; 3] = [
    ("Load of each endpoint", |p| p.load, 2),
    ("Requests in flight at each endpoint", |p| f64::from(p.in_flight), 1),
    ("Requests waiting in each endpoint", |p| f64::from(p.waiting), 1),
];

fn write_time(out: &mut String, chapter: &Chapter<'_>) {
    let r = chapter.report;
    let few = !r.lines.is_empty() && r.endpoints.len() <= MOST_ENDPOINTS;
    let mut head = vec!["policy".to_owned()];
    head.extend(r.endpoints.iter().cloned());
    for (heading, of, digits) in OVER_TIME.into_iter().filter(|_| few) {
        let row = |(line, timeline): (&Line, &Timeline)| {
            let mut row = vec![line.name.clone()];
            row.extend((0..r.endpoints.len()).map(|k| over_time(timeline, |s| s.endpoints.get(k).map(of), digits)));
            row
        };
        let rows = r.lines.iter().zip(&chapter.timelines).map(row).collect();
        table(out, &format!("{heading} over time, first seed: mean (highest)"), (head.clone(), rows));
    }
    if r.lines.iter().any(|l| l.fleet.is_some()) {
        let row = |(line, timeline): (&Line, &Timeline)| {
            let count = |of: fn(&Sample) -> u32| over_time(timeline, |s| Some(f64::from(of(s))), 1);
            vec![line.name.clone(), count(|s| s.serving), count(|s| s.starting)]
        };
        let head = ["policy", "serve", "start"].map(str::to_owned).to_vec();
        let rows = r.lines.iter().zip(&chapter.timelines).map(row).collect();
        table(out, "Endpoints over time, first seed: mean (most)", (head, rows));
    }
}

fn over_time(timeline: &Timeline, of: impl Fn(&Sample) -> Option<f64>, digits: usize) -> String {
    let all: Vec<f64> = timeline.samples.iter().filter_map(of).collect();
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    format!("{mean:.digits$} ({:.digits$})", all.iter().fold(0.0, |m: f64, x| m.max(*x)))
}

fn distribution<'a>(lines: impl Iterator<Item = (&'a str, &'a Latency)>) -> Cells {
    let mut head = vec!["policy".to_owned()];
    head.extend(QUANTILES.iter().map(|q| format!("{:.0} %", q * 100.0)));
    let row = |(name, times): (&str, &Latency)| {
        let mut row = vec![name.to_owned()];
        row.extend(QUANTILES.iter().map(|q| number(times.quantile_s(*q), 3)));
        row
    };
    (head, lines.map(row).collect())
}

fn table(out: &mut String, caption: &str, (head, rows): Cells) {
    let line = |cells: &[String]| {
        format!("| {} |\n", cells.iter().map(|c| c.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
    };
    let rule: String = std::iter::once("|---|").chain((1..head.len()).map(|_| "--:|")).collect();
    let _ = write!(out, "\n### {caption}\n\n{}{rule}\n", line(&head));
    rows.iter().for_each(|row| out.push_str(&line(row)));
}
