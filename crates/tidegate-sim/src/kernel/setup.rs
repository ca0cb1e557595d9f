//! Everything a run needs beside the policy and the seed: plain data, made by a scenario or by code.

use std::sync::Arc;

use tidegate_core::pool::config::EndpointConfig;
use tidegate_core::time::Duration;

use super::elastic::{ColdStart, Elastic};
use crate::engine::EngineSpec;
use crate::fault::Fault;
use crate::workload::{Arrivals, Burst, Queries};

/// One endpoint.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name, unique in the fleet.
    pub name: String,
    /// Its engine.
    pub spec: EngineSpec,
    /// Static weight, `> 0`.
    pub weight: f64,
    /// Most requests in flight at it per gateway; `None` has no bound.
    pub max_in_flight: Option<u32>,
    /// How long its engine takes to start.
    pub cold_start: ColdStart,
    /// How long it may go on with what it has when it leaves; `None`: to its end.
    pub grace: Option<Duration>,
}

impl Site {
    /// What a pool is told of it.
    pub fn settings(&self) -> EndpointConfig {
        let (weight, max_in_flight) = (self.weight, self.max_in_flight);
        EndpointConfig { weight, max_in_flight, ..EndpointConfig::new(&self.name) }
    }

    /// An endpoint of weight 1 without bounds, whose engine starts at once.
    pub fn new(name: impl Into<String>, spec: EngineSpec) -> Self {
        let (name, cold_start) = (name.into(), ColdStart::default());
        Self { name, spec, weight: 1.0, max_in_flight: None, cold_start, grace: None }
    }
}

/// A request of an open load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shot {
    /// When it comes, after the start.
    pub at: Duration,
    /// Length of its prompt, tokens.
    pub prompt_tokens: u32,
    /// Length of its answer, tokens.
    pub output_tokens: u32,
    /// Who asked, below [`Recorded::clients`]; 0 where the trace does not say.
    pub client: u32,
    /// Hash of what it is hashed by; `None` where the trace does not say.
    pub key: Option<u64>,
    /// Where its prompt's blocks begin in [`Recorded::blocks`], and how many there are.
    pub prompt: (u32, u32),
}

/// Recorded requests, in order of time.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The requests.
    pub shots: Arc<[Shot]>,
    /// Chained hashes of their prompts' blocks, one prompt after the other.
    pub blocks: Arc<[u64]>,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// How many clients there are, at least 1; each is a tenant where there is more than one.
    pub clients: u32,
}

impl Recorded {
    /// The blocks of a prompt.
    pub fn prompt(&self, (from, len): (u32, u32)) -> &[u64] {
        self.blocks.get(from as usize..(from + len) as usize).unwrap_or_default()
    }
}

impl From<Arc<[Shot]>> for Recorded {
    fn from(shots: Arc<[Shot]>) -> Self {
        let clients = shots.iter().map(|s| s.client).max().unwrap_or(0) + 1;
        Self { shots, blocks: Arc::new([]), block_tokens: 512, clients }
    }
}

/// Where requests come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// An arrival process for a time.
    Open {
        /// The process.
        arrivals: Arrivals,
        /// How long requests come.
        length: Duration,
        /// Prompt and answer, tokens.
        tokens: (u32, u32),
    },
    /// Clients that each ask again when answered, in rounds that start together.
    Closed {
        /// Clients.
        clients: u32,
        /// Requests of a round.
        requests: u32,
        /// Rounds.
        rounds: u32,
        /// Prompt and answer, tokens.
        tokens: (u32, u32),
    },
    /// Tenants, each with arrivals of its own, for a time.
    Tenants {
        /// The tenants.
        parties: Arc<[Party]>,
        /// How long requests come.
        length: Duration,
    },
    /// Recorded requests, in order of time.
    Trace(Recorded),
}

/// One tenant, or several alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Party {
    /// Its name; several are `NAME-1`, `NAME-2`, ...
    pub name: String,
    /// How many, at least 1.
    pub count: u32,
    /// When the requests of each come.
    pub arrivals: Arrivals,
    /// A time in which they come faster.
    pub burst: Option<Burst>,
    /// Prompt and answer, tokens.
    pub tokens: (u32, u32),
    /// Share of each against other tenants, `> 0`.
    pub weight: f64,
    /// Priority class in the pool's queue; absent: the last.
    pub priority: Option<String>,
}

impl Party {
    /// The names of its tenants.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let name = |k| if self.count == 1 { self.name.clone() } else { format!("{}-{k}", self.name) };
        (1..=self.count).map(name)
    }
}

/// Status pages that gateways read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probes {
    /// Time between two readings of an endpoint.
    pub interval: Duration,
    /// Time from the sample at the endpoint to its arrival at the gateway.
    pub delay: Duration,
    /// Age from which a report counts for nothing.
    pub max_age: Duration,
    /// Load (0..1) that one request adds, for own credit; `None`: core's default.
    pub per_request: Option<f64>,
    /// Whether engines tell how many prompt tokens wait; few do.
    pub queued_tokens: bool,
    /// Highest reported load at which an endpoint is used, for all but textbook rows; `None`: no gate.
    pub max_load: Option<f64>,
}

/// A fault of one endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// Place of the endpoint.
    pub site: u32,
    /// When it begins, after the start.
    pub at: Duration,
    /// What it is; `for_s` says how long.
    pub fault: Fault,
}

/// What is wrong with the pages of one endpoint, all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// They say for ever what they said after ten seconds.
    Frozen,
    /// All numbers are zero.
    Zero,
    /// There are none.
    Missing,
}

/// Limits of goodput: a stream is good if it meets both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Longest time to the first token, seconds.
    pub ttft_s: f64,
    /// Longest mean time between tokens, seconds.
    pub interval_s: f64,
}

impl Default for Goal {
    fn default() -> Self {
        Self { ttft_s: 2.0, interval_s: 0.1 }
    }
}

/// A fleet under a load.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The endpoints, at least one.
    pub sites: Vec<Site>,
    /// Gateways in front of them, at least 1, each with its own pool; a request goes to one at random.
    pub replicas: u32,
    /// Status pages; `None`: the pool reports no load.
    pub probes: Option<Probes>,
    /// Time between health checks; `None`: no active checks.
    pub check_every: Option<Duration>,
    /// One-way time between gateway and endpoint.
    pub network: Duration,
    /// Requests.
    pub source: Source,
    /// Whether answers are streams.
    pub stream: bool,
    /// What counts as goodput.
    pub goal: Goal,
    /// The goal for the first token that requests carry, to be seen by the pool; `None`: none.
    pub told_goal: Option<Duration>,
    /// What goes wrong.
    pub outages: Vec<Outage>,
    /// Endpoints whose pages do not tell the truth.
    pub lies: Vec<(u32, Lie)>,
    /// Who joins and leaves.
    pub elastic: Elastic,
    /// What is searched for; `None`: nothing is said of it.
    pub queries: Option<Queries>,
    /// The longest answer that requests ask for, as limits see it; `None`: they do not say.
    pub max_tokens: Option<u32>,
}
