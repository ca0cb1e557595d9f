//! How many engines an objective needs, and under which policy.
//!
//! Requests keep their times and lengths; the fleet is scaled, its kinds in proportion. A fleet is tried by running every policy on it, so
//! the question costs a few runs of a comparison: sizes double from the given one until the target is met, then the smallest size that
//! meets it is found by halving, which assumes that another engine does no harm. Sizes that were tried are kept, and told.
//!
//! Some requests meet the objective on no engine of these kinds, however many there are: the share that does on an idle engine bounds
//! what any size can reach, and is found first ([`alone`]).

mod alone;
mod slo;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use crate::batch::{self, Measured, Runs, Seeds};
use crate::report::Mean;
use crate::scenario::{Cell, Row, Scenario};

pub use alone::alone;
pub use slo::Slo;

/// A fleet is tried up to so many times its size, and up to so many engines at least.
const MOST_TIMES: u32 = 64;
const MOST_AT_LEAST: u32 = 256;

/// Share within the objective of each row, by size of the fleet.
pub type Tried = BTreeMap<u32, Vec<f64>>;

/// The answer.
#[derive(Clone, Debug)]
pub struct Sizing {
    /// Engines of the fleet as given.
    pub given: u32,
    /// Runs on the fleet as given, one per row.
    pub runs: Vec<Runs>,
    /// Most that any number of engines can reach, 0..1.
    pub reachable: f64,
    /// The largest fleet that would have been tried.
    pub most: u32,
    /// The smallest fleet on which a row, whichever, meets the target; `None` if none does.
    pub best: Option<Found>,
    /// The same for the row called `adaptive`; `None` also if it takes no part.
    pub adaptive: Option<Found>,
    /// All that was tried.
    pub tried: Tried,
}

/// A fleet that meets the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Its engines.
    pub engines: u32,
    /// Place of the row that does best on it.
    pub row: usize,
    /// Share within the objective, 0..1.
    pub within: f64,
}

/// Who tries fleets, and what came of it.
struct Trial<'a> {
    scenario: &'a Scenario,
    cell: &'a Cell,
    rows: &'a [Row],
    seeds: Seeds,
    threads: NonZeroUsize,
    tried: Tried,
    on_run: &'a mut dyn FnMut(u32, u64),
}

/// Sizes the fleet of `scenario`, whose one cell is `cell`. `on_run` is told after every run the size of its fleet and how many requests it had.
pub fn size(
    scenario: &Scenario,
    cell: &Cell,
    rows: &[Row],
    seeds: Seeds,
    threads: NonZeroUsize,
    slo: Slo,
    on_run: &mut dyn FnMut(u32, u64),
) -> Sizing {
    let mut cell = cell.clone();
    cell.setup.goal = slo.goal;
    let given = scenario.engines();
    let reachable = alone(&cell.setup);
    let most = given.saturating_mul(MOST_TIMES).max(MOST_AT_LEAST);
    let mut trial = Trial { scenario, cell: &cell, rows, seeds, threads, tried: Tried::new(), on_run };
    let runs = trial.run(given);
    let can = reachable >= slo.target;
    let best = can.then(|| trial.smallest(given, most, slo.target, &|_| true)).flatten();
    let is_adaptive = |row: usize| rows.get(row).is_some_and(|r| r.label == "adaptive");
    let takes_part = (0..rows.len()).any(is_adaptive);
    let adaptive = (can && takes_part).then(|| trial.smallest(given, most, slo.target, &is_adaptive)).flatten();
    Sizing { given, runs, reachable, most, best, adaptive, tried: trial.tried }
}

impl Trial<'_> {
    /// Runs a fleet of this size.
    fn run(&mut self, engines: u32) -> Vec<Runs> {
        let cell = self.scenario.with_engines(self.cell, engines);
        let told = |_, requests| (self.on_run)(engines, requests);
        let runs = batch::run(&[cell], self.rows, self.seeds, self.threads, told).pop().unwrap_or_default();
        self.tried.insert(engines, runs.iter().map(within).collect());
        runs
    }

    /// The best of the rows that count, on a fleet of this size.
    fn best(&mut self, engines: u32, counts: &dyn Fn(usize) -> bool) -> Option<Found> {
        if !self.tried.contains_key(&engines) {
            self.run(engines);
        }
        best_of(self.tried.get(&engines)?, counts).map(|(row, within)| Found { engines, row, within })
    }

    /// The smallest fleet on which the best of the rows that count meets the target.
    fn smallest(&mut self, given: u32, most: u32, target: f64, counts: &dyn Fn(usize) -> bool) -> Option<Found> {
        let mut meets = |engines: u32| self.best(engines, counts).filter(|f| f.within >= target);
        let (mut too_few, mut engines) = (0, given);
        let mut found = loop {
            match meets(engines) {
                Some(found) => break found,
                None if engines >= most => return None,
                None => (too_few, engines) = (engines, engines.saturating_mul(2).min(most)),
            }
        };
        while found.engines - too_few > 1 {
            let middle = too_few + (found.engines - too_few) / 2;
            match meets(middle) {
                Some(fewer) => found = fewer,
                None => too_few = middle,
            }
        }
        Some(found)
    }
}

/// The row that does best among those that count, the first of equals, and its share within the objective.
pub fn best_of(within: &[f64], counts: &dyn Fn(usize) -> bool) -> Option<(usize, f64)> {
    let rows = within.iter().copied().enumerate().filter(|(row, _)| counts(*row));
    rows.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// Mean share within the objective over the seeds, 0..1.
pub fn within(runs: &Runs) -> f64 {
    let shares: Vec<f64> = runs.seeds.iter().map(|m: &Measured| m.goodput).collect();
    Mean::of(&shares).mean.unwrap_or(0.0)
}
