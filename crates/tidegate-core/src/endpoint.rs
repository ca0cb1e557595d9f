//! One endpoint as a decision sees it: small, copied into one dense array, so that a pick over thousands reads little memory.

use crate::id::EndpointId;
use crate::load::LoadSignal;
use crate::outcome::{Outcome, Verdict};
use crate::stats::{Rate, Recent};
use crate::time::{Duration, Instant};
use alloc::string::String;
use alloc::vec::Vec;

/// Whether an endpoint may be picked, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// May be picked.
    Usable,
    /// Its slot is empty.
    Vacant,
    /// An operator or a scale-in drains it.
    Draining,
    /// Its weight is 0.
    WeightZero,
    /// Its active checks fail.
    Unhealthy,
    /// Its breaker is open; only a trial may go there.
    Open,
    /// It said 429 or `Retry-After` a moment ago.
    CoolingDown,
    /// As many in flight as `max_in_flight` allows.
    Full,
    /// Its reported load with own credit is over `max_load`.
    Overloaded,
    /// A GPU or the node below it is too hot, full or broken, by their exporters.
    Unfit,
}

impl Gate {
    /// Every gate, `self as usize` being its place.
    pub const ALL: [Self; 10] = [
        Self::Usable,
        Self::Vacant,
        Self::Draining,
        Self::WeightZero,
        Self::Unhealthy,
        Self::Open,
        Self::CoolingDown,
        Self::Full,
        Self::Overloaded,
        Self::Unfit,
    ];

    /// A short stable word for explain, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Vacant => "vacant",
            Self::Draining => "draining",
            Self::WeightZero => "weight_zero",
            Self::Unhealthy => "unhealthy",
            Self::Open => "open",
            Self::CoolingDown => "cooling_down",
            Self::Full => "full",
            Self::Overloaded => "overloaded",
            Self::Unfit => "unfit",
        }
    }
}

/// The part of an endpoint that every pick may read.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Its slot.
    pub id: EndpointId,
    /// Whether it may be picked; the pool keeps it current.
    pub gate: Gate,
    /// Own requests in flight.
    pub in_flight: u32,
    /// Own requests in flight whose first byte has not come.
    pub pending: u32,
    /// Weight as configured or set by an operator.
    pub weight: f64,
    /// Fixed hash of its name.
    pub key: u64,
    /// Own dispatches over about the last second.
    pub rate: Rate,
    ln_weight: f64,
}

impl Endpoint {
    /// An endpoint nobody has sent anything to.
    pub(crate) fn new(id: EndpointId, key: u64, weight: f64) -> Self {
        let rate = Rate::default();
        let mut new = Self { id, gate: Gate::Vacant, in_flight: 0, pending: 0, weight, key, rate, ln_weight: 0.0 };
        new.set_weight(weight);
        new
    }

    /// Sets the weight; what cannot be a weight counts as 0, which drains.
    pub(crate) fn set_weight(&mut self, weight: f64) {
        self.weight = if weight.is_finite() { weight.max(0.0) } else { 0.0 };
        self.ln_weight = libm::log(self.weight);
    }

    /// Orders endpoints by requests per second and weight, lowest first, at whatever time; see [`Rate::rank`].
    pub fn weighted_rate_rank(&self) -> f64 {
        self.rate.rank() - self.ln_weight
    }
}

/// How long an endpoint that gets no requests is judged by its last answers.
pub const REMEMBERED: Duration = Duration::from_secs(30);

/// What was seen of an endpoint: one struct, told by `on_*`, one truth for every policy, the admin API and the metrics.
#[derive(Clone, Debug, Default)]
pub struct EndpointStats {
    /// Requests sent.
    pub dispatched: u64,
    /// Whole answers.
    pub succeeded: u64,
    /// Failures of the endpoint's own doing.
    pub failed: u64,
    /// 429 and its like.
    pub throttled: u64,
    /// Ends that were the client's doing.
    pub neutral: u64,
    /// The last 20 response times in seconds, failures as penalties; those from before a pause of [`REMEMBERED`] are forgotten.
    pub response_times: Recent,
    /// When the newest of them was taken.
    pub answered_at: Instant,
    /// The last 20 times to first byte in seconds, of answers that began.
    pub first_bytes: Recent,
    /// Own streams running: first byte seen, end not.
    pub streams: u32,
    stream_s: f64,
    streams_since: Instant,
    /// When progress was last sampled.
    pub progress_at: Instant,
}

impl EndpointStats {
    /// Statistics of an endpoint that joined at `now`.
    pub fn new(now: Instant) -> Self {
        Self { progress_at: now, streams_since: now, ..Self::default() }
    }

    /// A request was sent.
    pub fn on_dispatch(&mut self) {
        self.dispatched += 1;
    }

    /// The first byte came `ttft_s` seconds after the dispatch.
    pub fn on_first_byte(&mut self, now: Instant, ttft_s: f64) {
        self.first_bytes.on_sample(ttft_s);
        self.integrate(now);
        self.streams += 1;
    }

    /// A request ended `took_s` seconds after its dispatch; `running`: its first byte had come.
    pub fn on_end(&mut self, now: Instant, outcome: &Outcome, took_s: f64, running: bool) {
        if running {
            self.integrate(now);
            self.streams = self.streams.saturating_sub(1);
        }
        match outcome.verdict {
            Verdict::Success => self.succeeded += 1,
            Verdict::Failed(_) => self.failed += 1,
            Verdict::Throttled { .. } => self.throttled += 1,
            Verdict::ClientError | Verdict::Cancelled => self.neutral += 1,
        }
        if let Some(s) = outcome.response_time_s(took_s) {
            if now.secs_since(self.answered_at) - took_s > REMEMBERED.as_secs_f64() {
                self.response_times = Recent::default();
            }
            self.response_times.on_sample(s);
            self.answered_at = now;
        }
    }

    /// Mean of the last 20 response times in seconds; `None` without any, or once they are too old for an endpoint that is `idle`.
    pub fn response_time_at(&self, now: Instant, idle: bool) -> Option<f64> {
        let forgotten = idle && now.since(self.answered_at) >= REMEMBERED;
        self.response_times.mean().filter(|_| !forgotten)
    }

    /// Stream-seconds since the last call, and the time they cover in seconds.
    pub fn on_progress(&mut self, now: Instant) -> (f64, f64) {
        self.integrate(now);
        let elapsed = now.secs_since(self.progress_at);
        self.progress_at = now;
        (core::mem::take(&mut self.stream_s), elapsed)
    }

    fn integrate(&mut self, now: Instant) {
        self.stream_s += f64::from(self.streams) * now.secs_since(self.streams_since);
        self.streams_since = now;
    }
}

/// Everything about the endpoints of a pool that a policy may read; each array is indexed by [`EndpointId::index`].
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    /// The dense part.
    pub hot: Vec<Endpoint>,
    /// What was seen of each.
    pub stats: Vec<EndpointStats>,
    /// What each reports.
    pub loads: Vec<LoadSignal>,
    /// The name of each.
    pub names: Vec<String>,
}

impl Endpoints {
    /// The dense part of one endpoint.
    pub fn get(&self, id: EndpointId) -> &Endpoint {
        &self.hot[id.index()]
    }

    /// Load of an endpoint with own credit, 0 up; `None` when its signal is degraded.
    pub fn load_at(&self, id: EndpointId, now: Instant) -> Option<f64> {
        self.loads[id.index()].load_at(now, self.hot[id.index()].in_flight)
    }

    /// Slots that hold an endpoint.
    pub fn present(&self) -> impl Iterator<Item = &Endpoint> {
        self.hot.iter().filter(|e| e.gate != Gate::Vacant)
    }
}
