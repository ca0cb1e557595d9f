//! `study: { tenants: ... }`: who gets what of one rate, under four ways to limit it.
//!
//! Each trace is played against a shared bucket (first come, first served), fixed windows per tenant, and the hierarchical bucket
//! refusing and queueing. What a tenant should have got is computed as a fluid without memory: assured rates first, the rest by weighted
//! max-min at every millisecond, within ceilings.

mod ideal;
mod play;
mod scheme;
mod settings;

pub use settings::{Branch, Party, TenantsStudy, Trace};

use crate::batch::Seeds;
use crate::study::sheet::{Cell, Sheet};
use play::{Played, play};
use scheme::SchemeKind;

const COLUMNS: &[(&str, &str)] = &[
    ("trace", "trace"),
    ("scheme", "scheme"),
    ("util %", "utilisation_percent"),
    ("unfair", "unfairness"),
    ("off by %", "off_percent"),
    ("first s %", "first_second_percent"),
    ("asked %", "of_asked_percent"),
    ("excess ms", "worst_excess_ms"),
    ("bound ms", "bound_ms"),
];

/// Plays every trace under every scheme; means over seeds; of the excess the worst, with that run's bound.
pub fn run(study: &TenantsStudy, seeds: Seeds, only: &[String]) -> Sheet {
    let mut sheet = Sheet { title: "tenants", columns: COLUMNS, rows: Vec::new(), requests: 0 };
    for trace in study.traces.iter().filter(|t| only.is_empty() || only.contains(&t.name)) {
        let ideal = ideal::ideal(trace);
        for kind in SchemeKind::ALL {
            let runs: Vec<Played> =
                (0..u64::from(seeds.count)).map(|k| play(trace, kind, &ideal, seeds.first + k)).collect();
            sheet.requests += runs.iter().map(|r| r.requests).sum::<u64>();
            sheet.rows.push(row(trace, kind, &runs));
        }
    }
    sheet
}

fn row(trace: &Trace, kind: SchemeKind, runs: &[Played]) -> Vec<Cell> {
    let mean = |of: fn(&Played) -> Option<f64>| {
        let all: Vec<f64> = runs.iter().filter_map(of).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let number = |value: Option<f64>, factor: f64, decimals| match value {
        Some(value) => Cell::Number(value * factor, decimals),
        None => Cell::Empty,
    };
    let worst = runs.iter().max_by(|a, b| a.excess_s.total_cmp(&b.excess_s));
    vec![
        Cell::Text(trace.name.clone()),
        Cell::Text(kind.name().to_owned()),
        number(mean(|r| Some(r.utilisation)), 100.0, 1),
        number(mean(|r| Some(r.unfairness)), 1.0, 3),
        number(mean(|r| Some(r.off)), 100.0, 1),
        number(mean(|r| r.first_second), 100.0, 1),
        number(mean(|r| r.of_asked), 100.0, 1),
        number(worst.map(|r| r.excess_s), 1e3, 0),
        number(worst.and_then(|r| r.bound_s), 1e3, 0),
    ]
}
