//! What a pool is told once: validated by the config crate, plain data here.

use crate::breaker::registry::default_breaker;
use crate::descriptor::Params;
use crate::limit::gradient::GradientConfig;
use crate::placement::Serves;
use crate::prefix::PrefixConfig;
use crate::queue::QueueConfig;
use crate::time::Duration;
use alloc::string::String;
use alloc::vec::Vec;

/// Settings of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// The policy and its parameters.
    pub policy: Params,
    /// Highest reported load (0..1) at which an endpoint is still used; `None` switches the gate off.
    pub max_load: Option<f64>,
    /// Below this share of endpoints that pass their checks (0..1), `panic` decides.
    pub panic_threshold: f64,
    /// What happens below `panic_threshold`.
    pub panic: Panic,
    /// Consecutive failed checks that make a healthy endpoint unhealthy (at least 1; a first check decides at once).
    pub unhealthy_after: u32,
    /// Consecutive passed checks that make an unhealthy endpoint healthy (at least 1).
    pub healthy_after: u32,
    /// Warm-up of new endpoints; `None` takes [`WarmUpStep::defaults`] unless the policy warms up by itself.
    pub warm_up: Option<Vec<WarmUpStep>>,
    /// The breaker and its parameters.
    pub breaker: Params,
    /// Session affinity over the policy.
    pub affinity: Option<AffinityConfig>,
    /// How reported loads are used; `None` if the pool has no source of load.
    pub load: Option<LoadConfig>,
    /// Retries before the first byte.
    pub retry: RetryConfig,
    /// Most requests of the pool in flight at once; `None` has no bound but those of the endpoints.
    pub max_in_flight: Option<u32>,
    /// A bound on requests in flight that follows times to first byte, up to `max_in_flight`; `None` has none.
    pub adaptive: Option<GradientConfig>,
    /// The queue of requests that find no place; `None`: they are refused at once.
    pub queue: Option<QueueConfig>,
    /// Time an endpoint is left alone after it said 429 or 503 with `Retry-After`; doubles with each such answer in a row, up to 16
    /// times this, and is never shorter than the `Retry-After` itself (at most 300 s). Zero switches it off.
    pub cool_down: Duration,
    /// Tidegate replicas that share the pool (at least 1); own in-flight credit is scaled by it.
    pub replicas: f64,
    /// Whether rules that read engines' own counts correct `replicas` by what the reports know of and this replica did not send.
    pub learn_replicas: bool,
    /// What is remembered of prompts sent, for engines with a prefix cache; `None`: nothing.
    pub prefix: Option<PrefixConfig>,
    /// Whether a request is refused at once whose first token is predicted to come after its goal, or its tokens too slowly.
    pub refuse_late: bool,
    /// Whether every endpoint is asked what it serves: until one has answered, it gets only what nobody is known to serve.
    pub asks_models: bool,
    /// Time an endpoint takes to load a LoRA adapter that it does not hold; zero prices nothing.
    pub adapter_load: Duration,
}

impl PoolConfig {
    /// Defaults around a policy.
    pub fn new(policy: Params) -> Self {
        Self {
            policy,
            max_load: Some(0.9),
            panic_threshold: 0.5,
            panic: Panic::UseAll,
            unhealthy_after: 3,
            healthy_after: 2,
            warm_up: None,
            breaker: Params::defaults(default_breaker()),
            affinity: None,
            load: None,
            retry: RetryConfig::default(),
            max_in_flight: None,
            adaptive: None,
            queue: None,
            cool_down: Duration::from_millis(500),
            replicas: 1.0,
            learn_replicas: true,
            prefix: None,
            refuse_late: false,
            asks_models: false,
            adapter_load: Duration::from_millis(200),
        }
    }
}

impl PoolConfig {
    /// The warm-up in force: none where the policy warms up by itself, unless steps are given.
    pub fn warm_up_steps(&self) -> Vec<WarmUpStep> {
        let warms_up = self.policy.descriptor().warms_up;
        let default_steps = || if warms_up { Vec::new() } else { WarmUpStep::defaults() };
        self.warm_up.clone().unwrap_or_else(default_steps)
    }
}

/// Settings of one endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointConfig {
    /// The name of the endpoint, its URL in the live proxy. Its hash places the endpoint on a ring, so it must be stable.
    pub name: String,
    /// Static weight (any positive number, fractions included); 0 drains the endpoint.
    pub weight: f64,
    /// Most requests in flight at once; `None` has no bound.
    pub max_in_flight: Option<u32>,
    /// A bound that follows its times to first byte, up to `max_in_flight`; `None` has none.
    pub adaptive: Option<GradientConfig>,
    /// What it serves, as far as it is told and not asked.
    pub serves: Serves,
}

impl EndpointConfig {
    /// An endpoint of weight 1 without a bound.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), weight: 1.0, max_in_flight: None, adaptive: None, serves: Serves::default() }
    }

    /// Load (0..1) that one request is taken to add before anything is learned.
    pub(crate) fn first_guess(&self) -> f64 {
        self.max_in_flight.map_or(0.01, |m| 1.0 / f64::from(m.max(1)))
    }
}

/// What a pool does when too few endpoints pass their checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panic {
    /// Fail open: use every endpoint, as checks that fail everywhere say more about the checks than about the engines.
    UseAll,
    /// Fail closed: refuse with 503.
    Refuse,
}

/// One step of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmUpStep {
    /// Time since the first healthy check.
    pub at: Duration,
    /// Share of the endpoint's weight and of its `max_in_flight` from then on (0..1].
    pub share: f64,
}

impl WarmUpStep {
    /// A quarter at once, half after 30 s, all after 60 s.
    pub fn defaults() -> Vec<Self> {
        [(0, 0.25), (30, 0.5), (60, 1.0)].map(|(s, share)| Self { at: Duration::from_secs(s), share }).to_vec()
    }
}

/// Session affinity: the same key keeps its endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AffinityConfig {
    /// An endpoint that returns within this time keeps its keys.
    pub hold: Duration,
    /// Bound on remembered keys; the least recently used goes first.
    pub max_keys: usize,
}

impl Default for AffinityConfig {
    fn default() -> Self {
        Self { hold: Duration::from_secs(60), max_keys: 100_000 }
    }
}

/// How reported loads are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadConfig {
    /// Age from which a report counts for nothing; three polling intervals is a good value.
    pub max_age: Duration,
    /// Load (0..1) that one request adds, for own credit between reports; `None` learns it from the reports, beginning at
    /// 1/`max_in_flight`, else 0.01.
    pub per_request: Option<f64>,
    /// Whether reports come with answers alone: then who is sent nothing says nothing, and is not too old for that.
    pub by_answers: bool,
}

/// Retries before the first byte, onto another endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryConfig {
    /// Dispatches of one request, the first included (at least 1).
    pub max_attempts: u32,
    /// Retries the whole pool may make per request it admits (0..1).
    pub budget: f64,
    /// The quantile of times to first byte (0..1) after which a second attempt is made beside the first; `None` makes none.
    pub hedge: Option<f64>,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { max_attempts: 3, budget: 0.2, hedge: None }
    }
}
