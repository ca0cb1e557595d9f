//! The table that makes the choice obvious.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use tidegate::load::Report;

/// One row per policy, and the winner: the lowest mean among those with the highest success.
pub(super) fn table(reports: &[Report]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["policy", "mean s", "p50 s", "p99 s", "success", "share of the requests"]);
    let winner = winner(reports);
    for (place, r) in reports.iter().enumerate() {
        let shares: Vec<String> = r.shares().iter().map(|(name, x)| format!("{name}: {:.0} %", x * 100.0)).collect();
        let seconds = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.3}"));
        table.add_row([
            format!("{}{}", r.name, if Some(place) == winner { "  << wins" } else { "" }),
            seconds(r.total.mean_s()),
            seconds(r.total.quantile_s(0.5)),
            seconds(r.total.quantile_s(0.99)),
            format!("{:.1} %", r.success() * 100.0),
            shares.join("   "),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// The place of the winner.
pub(super) fn winner(reports: &[Report]) -> Option<usize> {
    let key = |r: &Report| (-r.success(), r.total.mean_s().unwrap_or(f64::INFINITY));
    let better = |a: &(f64, f64), b: &(f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
    reports.iter().map(key).enumerate().min_by(|(_, a), (_, b)| better(a, b)).map(|(place, _)| place)
}
