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
use crate::study::jobs;
use crate::study::table::{Cell, Grid};
use play::{Played, play};
use scheme::SchemeKind;
use std::num::NonZeroUsize;

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

impl TenantsStudy {
    /// Names that a run can be restricted to.
    pub fn variants(&self) -> Vec<&str> {
        self.traces.iter().map(|t| t.name.as_str()).collect()
    }

    /// Plays every trace under every scheme; means over seeds; of the excess the worst, with that run's bound. `only` keeps the named traces (all for
    /// none); `tick` is told after each run how many are done of how many, and how many requests that one had.
    pub fn run(
        &self,
        seeds: Seeds,
        only: &[String],
        threads: NonZeroUsize,
        tick: &mut dyn FnMut(usize, usize, u64),
    ) -> Vec<Grid> {
        let traces: Vec<&Trace> = self.traces.iter().filter(|t| only.is_empty() || only.contains(&t.name)).collect();
        let ideals: Vec<_> = traces.iter().map(|trace| ideal::ideal(trace)).collect();
        let (per_row, per_trace) = (seeds.count as usize, seeds.count as usize * SchemeKind::ALL.len());
        let one = |job: usize| {
            let (at, kind) = (job / per_trace, SchemeKind::ALL[job % per_trace / per_row]);
            play(traces[at], kind, &ideals[at], seeds.first + (job % per_row) as u64)
        };
        let runs = jobs::over(traces.len() * per_trace, threads, one, |done, all, run| tick(done, all, run.requests));
        let mut grid = Grid::keyed("tenants", "study tenants", COLUMNS);
        let kinds = traces.iter().flat_map(|trace| SchemeKind::ALL.map(|kind| (*trace, kind)));
        grid.rows = kinds.zip(runs.chunks(per_row)).map(|((trace, kind), runs)| row(trace, kind, runs)).collect();
        vec![grid]
    }
}

fn row(trace: &Trace, kind: SchemeKind, runs: &[Played]) -> Vec<Cell> {
    let mean = |of: fn(&Played) -> Option<f64>| {
        let all: Vec<f64> = runs.iter().filter_map(of).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let number = |value: Option<f64>, factor: f64, decimals| match value {
        Some(value) => Cell::number(value * factor, decimals),
        None => Cell::Empty,
    };
    let worst = runs.iter().max_by(|a, b| a.excess_s.total_cmp(&b.excess_s));
    vec![
        Cell::text(trace.name.clone()),
        Cell::text(kind.name()),
        number(mean(|r| Some(r.utilisation)), 100.0, 1),
        number(mean(|r| Some(r.unfairness)), 1.0, 3),
        number(mean(|r| Some(r.off)), 100.0, 1),
        number(mean(|r| r.first_second), 100.0, 1),
        number(mean(|r| r.of_asked), 100.0, 1),
        number(worst.map(|r| r.excess_s), 1e3, 0),
        number(worst.and_then(|r| r.bound_s), 1e3, 0),
    ]
}
