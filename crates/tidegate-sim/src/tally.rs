//! What one run measured.

use tidegate_core::time::Instant;

use crate::kernel::setup::{Setup, Source};
use crate::workload::Latency;

/// Counts and times of one run: one policy, one seed.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests that ended.
    pub requests: u64,
    /// Of these, with a whole answer.
    pub succeeded: u64,
    /// Of these, within the goal of goodput.
    pub good: u64,
    /// Dispatches beyond the first of a request.
    pub retries: u64,
    /// Requests the pool refused.
    pub shed: u64,
    /// From arrival to end, of whole answers.
    pub total: Latency,
    /// From arrival to the first token, of whole streams.
    pub ttft: Latency,
    /// Mean time between the tokens of a stream, of whole streams with at least two.
    pub interval: Latency,
    /// Prompt tokens of whole streams, and those of them that engines found in their caches.
    pub prompt_tokens: u64,
    /// See `prompt_tokens`.
    pub cached_tokens: u64,
    /// Queries that were looked up in caches of answers, and those of them that were found.
    pub queries: u64,
    /// See `queries`.
    pub query_hits: u64,
    /// Dispatches per endpoint.
    pub dispatched: Vec<u64>,
    /// Total time of each round of a closed loop, seconds.
    pub rounds: Vec<f64>,
    /// When the last request ended.
    pub ended: Instant,
    /// What the tenants of a load by tenants got, in its order.
    pub parties: Vec<PartyTally>,
    /// What the fleet was.
    pub fleet: FleetUse,
}

/// How much of a fleet was used, and what its changes cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FleetUse {
    /// Time of all engines together from their start to their stop, cold starts included, until the last request ended; seconds.
    pub endpoint_s: f64,
    /// Engines that were started during the run.
    pub starts: u64,
    /// Most engines at a time, those that start or leave included.
    pub most: u32,
    /// Endpoints whose engine never started.
    pub never: u32,
    /// Requests without a whole answer that ended while an engine started or left.
    pub lost_in_change: u64,
}

/// What one tenant got, or several alike together.
#[derive(Clone, Debug, Default)]
pub struct PartyTally {
    /// Its name.
    pub name: String,
    /// How many tenants these are.
    pub tenants: u32,
    /// Requests that ended.
    pub requests: u64,
    /// Of these, with a whole answer.
    pub succeeded: u64,
    /// Of these, refused by a limit or the pool before any engine saw them.
    pub refused: u64,
    /// From arrival to end, of whole answers.
    pub total: Latency,
}

impl PartyTally {
    /// Adds all of another run.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.succeeded += other.succeeded;
        self.refused += other.refused;
        self.total.merge(&other.total);
    }
}

impl Tally {
    /// An empty tally for `sites` endpoints.
    pub fn new(sites: usize) -> Self {
        Self { dispatched: vec![0; sites], ..Self::default() }
    }

    /// An empty tally for a run of `setup`.
    pub fn of(setup: &Setup) -> Self {
        let parties = match &setup.source {
            Source::Tenants { parties, .. } => {
                let party = |p: &crate::kernel::setup::Party| PartyTally {
                    name: p.name.clone(),
                    tenants: p.count,
                    ..PartyTally::default()
                };
                parties.iter().map(party).collect()
            }
            _ => Vec::new(),
        };
        Self { parties, ..Self::new(setup.sites.len()) }
    }

    /// Share of requests with a whole answer, 0..1.
    pub fn success(&self) -> f64 {
        ratio(self.succeeded, self.requests)
    }

    /// Share of requests within the goal, 0..1.
    pub fn goodput(&self) -> f64 {
        ratio(self.good, self.requests)
    }

    /// Share of prompt tokens that were cached, 0..1.
    pub fn hit_rate(&self) -> f64 {
        ratio(self.cached_tokens, self.prompt_tokens)
    }

    /// Share of the dispatches each endpoint got, 0..1.
    pub fn shares(&self) -> Vec<f64> {
        let all = self.dispatched.iter().sum();
        self.dispatched.iter().map(|&n| ratio(n, all)).collect()
    }

    /// The largest share over the mean share of those that were there at some time: 1 is even.
    pub fn imbalance(&self) -> f64 {
        let there = self.dispatched.len() as u32 - self.fleet.never;
        self.shares().iter().fold(0.0, |m: f64, &s| m.max(s)) * f64::from(there)
    }
}

fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}
