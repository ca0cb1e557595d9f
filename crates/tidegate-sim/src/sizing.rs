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

use std::cmp::Ordering;
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

/// How a row did on a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Share within the objective, 0..1.
    pub within: f64,
    /// Share of whole answers, 0..1.
    pub success: f64,
    /// Mean time of whole answers, seconds.
    pub latency_s: f64,
}

/// How each row did, by size of the fleet.
pub type Tried = BTreeMap<u32, Vec<Score>>;

/// Shares of requests this close to each other are the same: a thousandth of what is shown.
const SAME: f64 = 1e-7;

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
        self.tried.insert(engines, runs.iter().map(Score::of).collect());
        runs
    }

    /// The best of the rows that count, on a fleet of this size.
    fn best(&mut self, engines: u32, counts: &dyn Fn(usize) -> bool) -> Option<Found> {
        if !self.tried.contains_key(&engines) {
            self.run(engines);
        }
        let scores = self.tried.get(&engines)?;
        best_of(scores, counts).map(|row| Found { engines, row, within: scores[row].within })
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

/// The row that does best among those that count: most within the objective, then most whole answers, then the least time for them.
pub fn best_of(scores: &[Score], counts: &dyn Fn(usize) -> bool) -> Option<usize> {
    let better = |a: &Score, b: &Score| {
        let by = |x: f64, y: f64| if (x - y).abs() <= SAME { Ordering::Equal } else { x.total_cmp(&y) };
        let first = by(a.within, b.within).then(by(a.success, b.success));
        first.then(b.latency_s.total_cmp(&a.latency_s)) == Ordering::Greater
    };
    let rows = (0..scores.len()).filter(|row| counts(*row));
    rows.reduce(|best, next| if better(&scores[next], &scores[best]) { next } else { best })
}

impl Sizing {
    /// The rows with the largest share within the objective on the fleet as given, the one to take first: of several it is the one that meets
    /// the target with the fewest engines, as far as fleets were tried, then the one with most whole answers, then the fastest.
    pub fn ranked(&self, target: f64) -> Vec<usize> {
        let Some(scores) = self.tried.get(&self.given) else { return Vec::new() };
        let needs = |row: usize| {
            let meets = |(_, scores): &(&u32, &Vec<Score>)| scores[row].within >= target;
            self.tried.iter().find(meets).map_or(u32::MAX, |(engines, _)| *engines)
        };
        let best = scores.iter().map(|s| s.within).fold(0.0, f64::max);
        let mut tied: Vec<usize> = (0..scores.len()).filter(|row| scores[*row].within >= best - SAME).collect();
        tied.sort_by(|&a, &b| {
            let whole = scores[b].success.total_cmp(&scores[a].success);
            needs(a).cmp(&needs(b)).then(whole).then(scores[a].latency_s.total_cmp(&scores[b].latency_s))
        });
        tied
    }
}

impl Score {
    fn of(runs: &Runs) -> Self {
        let mean = |of: &dyn Fn(&Measured) -> Option<f64>| {
            Mean::of(&runs.seeds.iter().filter_map(of).collect::<Vec<_>>()).mean
        };
        Self {
            within: within(runs),
            success: mean(&|m| Some(m.success)).unwrap_or(0.0),
            latency_s: mean(&|m| m.latency_s).unwrap_or(f64::INFINITY),
        }
    }
}

/// Mean share within the objective over the seeds, 0..1.
pub fn within(runs: &Runs) -> f64 {
    let shares: Vec<f64> = runs.seeds.iter().map(|m: &Measured| m.goodput).collect();
    Mean::of(&shares).mean.unwrap_or(0.0)
}
