//! Many runs at once: every policy on every seed, over threads, with the same answer for any number of them.
//!
//! Runs share nothing, and what they measured is put in its place by number, so the order in which threads finish shows nowhere.
//! Histograms are counts and may be added in any order; means are taken over the seeds in order.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

use crate::scenario::{Cell, Row};
use crate::tally::{FleetUse, PartyTally, Tally};
use crate::workload::Latency;

/// What is kept of one run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Requests that ended.
    pub requests: u64,
    /// Of these, with a whole answer.
    pub succeeded: u64,
    /// When the last one ended, seconds after the start.
    pub ended_s: f64,
    /// Mean time of whole answers, seconds; `None` without any.
    pub latency_s: Option<f64>,
    /// Mean time to first token, seconds; `None` without streams.
    pub ttft_s: Option<f64>,
    /// Share of whole answers, 0..1.
    pub success: f64,
    /// Share within the goal, 0..1.
    pub goodput: f64,
    /// Largest share of an endpoint over the mean share.
    pub imbalance: f64,
    /// Share of each endpoint, 0..1.
    pub shares: Vec<f64>,
    /// Rounds of a closed loop, seconds.
    pub rounds: Vec<f64>,
    /// Dispatches beyond the first.
    pub retries: u64,
    /// Requests that no engine saw, as the pool or a limit refused them.
    pub shed: u64,
    /// What the fleet was.
    pub fleet: FleetUse,
    /// Share of the queries whose answers were cached, 0..1; `None` where none was looked up.
    pub query_hits: Option<f64>,
    /// Share of the prompt tokens that engines found in their caches, 0..1.
    pub prompt_hits: f64,
}

/// All runs of one policy in one cell.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// One entry per seed, in order.
    pub seeds: Vec<Measured>,
    /// Times of all seeds; for quantiles only.
    pub total: Latency,
    /// Times to first token of all seeds; for quantiles only.
    pub ttft: Latency,
    /// What the tenants got, over all seeds.
    pub parties: Vec<PartyTally>,
}

/// Seeds `first .. first + count`.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// How many, at least 1.
    pub count: u32,
}

/// Runs every row in every cell with every seed. `on_done` is told after each run, on the calling thread, how many are done and how
/// many requests they had. The result is indexed by cell, then by row.
pub fn run(
    cells: &[Cell],
    rows: &[Row],
    seeds: Seeds,
    threads: NonZeroUsize,
    mut on_done: impl FnMut(usize, u64),
) -> Vec<Vec<Runs>> {
    let (per_row, per_cell) = (seeds.count as usize, rows.len() * seeds.count as usize);
    let jobs = cells.len() * per_cell;
    let fresh = || Runs { seeds: vec![Measured::default(); per_row], ..Runs::default() };
    let mut results: Vec<Vec<Runs>> = cells.iter().map(|_| rows.iter().map(|_| fresh()).collect()).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (done, finished) = mpsc::channel::<(usize, Tally)>();
        for _ in 0..threads.get().min(jobs) {
            let (done, next) = (done.clone(), &next);
            scope.spawn(move || {
                loop {
                    let job = next.fetch_add(1, Relaxed);
                    let (cell, row) = (job / per_cell, job % per_cell / per_row);
                    let (Some(cell), Some(row)) = (cells.get(cell), rows.get(row)) else { break };
                    let tally = row.kernel(&cell.setup, seeds.first + (job % per_row) as u64).run();
                    if done.send((job, tally)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        for (count, (job, tally)) in finished.iter().enumerate() {
            on_done(count + 1, tally.requests);
            let runs = &mut results[job / per_cell][job % per_cell / per_row];
            runs.total.merge(&tally.total);
            runs.ttft.merge(&tally.ttft);
            runs.add_parties(&tally.parties);
            runs.seeds[job % per_row] = Measured::of(&tally);
        }
    });
    results
}

impl Runs {
    fn add_parties(&mut self, parties: &[PartyTally]) {
        if self.parties.is_empty() {
            self.parties = parties.to_vec();
        } else {
            self.parties.iter_mut().zip(parties).for_each(|(all, one)| all.merge(one));
        }
    }
}

impl Measured {
    /// What is kept of `tally`.
    pub fn of(tally: &Tally) -> Self {
        Self {
            requests: tally.requests,
            succeeded: tally.succeeded,
            ended_s: tally.ended.as_secs_f64(),
            latency_s: tally.total.mean_s(),
            ttft_s: tally.ttft.mean_s(),
            success: tally.success(),
            goodput: tally.goodput(),
            imbalance: tally.imbalance(),
            shares: tally.shares(),
            rounds: tally.rounds.clone(),
            retries: tally.retries,
            shed: tally.shed,
            fleet: tally.fleet,
            prompt_hits: tally.hit_rate(),
            query_hits: (tally.queries > 0).then(|| tally.query_hits as f64 / tally.queries as f64),
        }
    }
}
