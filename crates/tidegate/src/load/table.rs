//! Reports as a table for people.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use tidegate_sim::workload::Latency;

use super::report::Report;

const HEADER: [&str; 8] = [
    "",
    "requests",
    "success",
    "TTFT s\nmean p50 p90 p99",
    "interval ms\nmean p50 p90 p99",
    "total s\nmean p50 p90 p99",
    "per s",
    "share",
];

/// Columns below which cells are not wrapped.
const NARROW: u16 = 90;

/// One line per report.
pub fn table(reports: &[Report]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(HEADER);
    // On a narrow terminal lines that the terminal wraps are easier to read than cells of one digit a line.
    if table.width().is_some_and(|columns| columns >= NARROW) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    for r in reports {
        let shares: Vec<String> = r.shares().iter().map(|(name, x)| format!("{name} {:.0} %", x * 100.0)).collect();
        table.add_row([
            r.name.clone(),
            r.requests.to_string(),
            format!("{:.1} %", r.success() * 100.0),
            four(&r.ttft, 1.0, 3),
            four(&r.interval, 1e3, 1),
            four(&r.total, 1.0, 3),
            format!("{:.1}", r.throughput_rps()),
            shares.join("\n"),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Errors, rounds and warnings below the table.
pub(super) fn notes(r: &Report) -> String {
    let mut out = String::new();
    for (error, n) in &r.errors {
        let _ = writeln!(out, "{n} x {error}");
    }
    for round in &r.rounds {
        let _ = writeln!(out, "round {}: {:.3} s", round.round, round.total_s);
    }
    if r.unfinished > 0 {
        let _ = writeln!(out, "stopped with {} requests unfinished; they are not counted", r.unfinished);
    }
    if let Some(late_s) = r.late.quantile_s(0.99).filter(|s| *s > 0.02) {
        let _ =
            writeln!(out, "this client started 1 % of the requests {late_s:.3} s late or more; latencies include it");
    }
    out
}

fn four(set: &Latency, scale: f64, digits: usize) -> String {
    let one = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{:.digits$}", x * scale));
    if set.count() == 0 {
        return "-".to_owned();
    }
    let q = |q| one(set.quantile_s(q));
    format!("{} {} {} {}", one(set.mean_s()), q(0.5), q(0.9), q(0.99))
}
