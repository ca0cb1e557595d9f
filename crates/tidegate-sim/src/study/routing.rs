//! `study: { routing: ... }`: which rule for language models, on recorded requests.
//!
//! Every trace is brought to a share of what each fleet saturates at and played to every rule: Tidegate's policies, and those of other
//! gateways as published ([`crate::rival`]). A cell is one trace on one fleet at one load with so many replicas of the gateway. In a cell each
//! figure is divided by the best that any rule reached there; a rule's figure for a fleet is the geometric mean over the cells. The share that
//! missed its goal is compared with one point added to both, as 0 would be infinitely better than 0.1 %.

mod cells;
mod rows;
mod settings;

pub use settings::RoutingStudy;

use std::num::NonZeroUsize;

use super::jobs;
use super::table::{Answer, Cell, Grid};
use crate::batch::Seeds;
use crate::scenario::ReadFile;
use crate::tally::Tally;
use cells::Place;
use rows::Row;

/// What is compared, by its heading.
const FIGURES: [&str; 7] =
    ["TTFT\nmean", "TTFT\np99", "total\nmean", "total\np99", "TPOT\nmean", "TPOT\np99", "missed\ngoal"];
/// Added to the share that missed its goal before it is compared.
const ONE_POINT: f64 = 0.01;
/// A figure this close to the best counts as best.
const CLOSE: f64 = 1.03;

/// What one rule did in one cell with one seed.
#[derive(Clone, Debug, Default)]
struct Run {
    figures: [f64; 7],
    imbalance: f64,
    hit_rate: f64,
    goodput: f64,
    success: f64,
    requests: u64,
}

impl Run {
    fn of(t: &Tally) -> Self {
        let figures = [
            t.ttft.mean_s(),
            t.ttft.quantile_s(0.99),
            t.total.mean_s(),
            t.total.quantile_s(0.99),
            t.interval.mean_s(),
            t.interval.quantile_s(0.99),
            Some(1.0 - t.goodput()),
        ];
        Self {
            figures: figures.map(|f| f.unwrap_or(f64::NAN)),
            imbalance: t.imbalance(),
            hit_rate: t.hit_rate(),
            goodput: t.goodput(),
            success: t.success(),
            requests: t.requests,
        }
    }

    /// The mean of several seeds.
    fn mean(runs: &[Self]) -> Self {
        let n = runs.len().max(1) as f64;
        let over = |of: &dyn Fn(&Self) -> f64| runs.iter().map(of).sum::<f64>() / n;
        Self {
            figures: std::array::from_fn(|k| over(&|r| r.figures[k])),
            imbalance: over(&|r| r.imbalance),
            hit_rate: over(&|r| r.hit_rate),
            goodput: over(&|r| r.goodput),
            success: over(&|r| r.success),
            requests: runs.iter().map(|r| r.requests).sum(),
        }
    }
}

impl RoutingStudy {
    /// Runs it. `tick` is told after each run how many are done of how many, and how many requests that one had.
    ///
    /// # Errors
    /// A trace that is absent without a stand-in, or that cannot be read.
    pub fn run(
        &self,
        read: &ReadFile<'_>,
        seeds: Seeds,
        threads: NonZeroUsize,
        tick: &mut dyn FnMut(usize, usize, u64),
    ) -> Result<Answer, String> {
        let (places, notes) = cells::places(self, read)?;
        let rows = rows::rows(self);
        let (per_row, per_place) = (seeds.count as usize, rows.len() * seeds.count as usize);
        let one = |job: usize| {
            let (place, row) = (&places[job / per_place], &rows[job % per_place / per_row]);
            Run::of(&row.play(self, place, seeds.first + (job % per_row) as u64))
        };
        let runs = jobs::over(places.len() * per_place, threads, one, |done, all, r| tick(done, all, r.requests));
        let means: Vec<Run> = runs.chunks(per_row).map(Run::mean).collect();
        let grids = vec![summary(&places, &rows, &means), detail(&places, &rows, &means)];
        Ok(Answer { grids, notes })
    }
}

/// How many times the best of its cell each figure of `run` is.
fn against_best(run: &Run, all: &[Run]) -> [f64; 7] {
    std::array::from_fn(|k| {
        let plus = if k == 6 { ONE_POINT } else { 0.0 };
        let best = all.iter().map(|r| r.figures[k] + plus).fold(f64::INFINITY, f64::min);
        (run.figures[k] + plus) / best
    })
}

fn summary(places: &[Place], rows: &[Row], means: &[Run]) -> Grid {
    let mut head: Vec<String> = ["fleet", "policy"].map(String::from).to_vec();
    head.extend(FIGURES.map(String::from));
    head.extend(["all", "best in\n%", "within\ngoal %", "imbal-\nance", "hit\n%"].map(String::from));
    let mut grid = Grid::new("routing", "times the best in its cell, geometric mean", head);
    let mut fleets: Vec<&str> = places.iter().map(|p| p.fleet.as_str()).collect();
    fleets.dedup();
    let every = |place: &Place, fleet: &str| fleet == "all fleets" || place.fleet == fleet;
    if fleets.len() > 1 {
        fleets.push("all fleets");
    }
    for fleet in fleets {
        for (r, row) in rows.iter().enumerate() {
            let (mut logs, mut best, mut count) = ([0.0; 7], 0usize, 0usize);
            let (mut goodput, mut imbalance, mut hits) = (0.0, 0.0, 0.0);
            for (p, place) in places.iter().enumerate().filter(|(_, place)| every(place, fleet)) {
                let all = &means[p * rows.len()..(p + 1) * rows.len()];
                let times = against_best(&all[r], all);
                for (log, times) in logs.iter_mut().zip(times) {
                    *log += libm::log(times);
                }
                best += times.iter().filter(|t| **t <= CLOSE).count();
                count += 1;
                goodput += all[r].goodput;
                imbalance += all[r].imbalance;
                hits += all[r].hit_rate;
                let _ = place;
            }
            let n = count.max(1) as f64;
            let geometric = logs.map(|log| libm::exp(log / n));
            let overall = libm::exp(logs.iter().sum::<f64>() / (n * 7.0));
            let mut cells = vec![Cell::text(fleet), Cell::text(row.name.clone())];
            cells.extend(geometric.map(|g| Cell::number(g, 2)));
            cells.push(Cell::number(overall, 3));
            cells.push(Cell::number(best as f64 / (n * 7.0) * 100.0, 0));
            cells
                .extend([(goodput * 100.0, 1), (imbalance, 2), (hits * 100.0, 1)].map(|(v, d)| Cell::number(v / n, d)));
            grid.rows.push(cells);
        }
    }
    grid.notes.push(format!("{} cells; missed goal: with one point added to both", places.len()));
    grid
}

fn detail(places: &[Place], rows: &[Row], means: &[Run]) -> Grid {
    let mut head: Vec<String> = ["trace", "fleet", "load %", "repli-\ncas", "policy"].map(String::from).to_vec();
    head.extend(FIGURES.map(String::from));
    head.extend(["within\ngoal %", "success\n%", "imbal-\nance", "hit\n%"].map(String::from));
    let mut grid = Grid::new("cells", "each cell: seconds, and shares in %", head);
    for (p, place) in places.iter().enumerate() {
        for (row, run) in rows.iter().zip(&means[p * rows.len()..]) {
            let mut cells = vec![
                Cell::text(place.trace.clone()),
                Cell::text(place.fleet.clone()),
                Cell::number(place.load * 100.0, 0),
                Cell::number(f64::from(place.setup.replicas), 0),
                Cell::text(row.name.clone()),
            ];
            cells.extend(run.figures[..6].iter().map(|&s| Cell::number(s, 3)));
            cells.push(Cell::number(run.figures[6] * 100.0, 1));
            let rest =
                [(run.goodput, 1, 100.0), (run.success, 1, 100.0), (run.imbalance, 2, 1.0), (run.hit_rate, 1, 100.0)];
            cells.extend(rest.map(|(v, digits, times)| Cell::number(v * times, digits)));
            grid.rows.push(cells);
        }
    }
    grid
}
