//! What an endpoint says about itself.

use crate::time::{Duration, Instant};

/// Why an endpoint should get nothing new, by what is below its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A GPU is too hot.
    GpuTooHot,
    /// A GPU has no memory left.
    GpuMemory,
    /// A GPU needs a reset.
    GpuBroken,
    /// The node's processors are busy.
    NodeCpu,
    /// The node has no memory left.
    NodeMemory,
}

impl Unfit {
    /// Every reason, `self as usize` being its place.
    pub const ALL: [Self; 5] = [Self::GpuTooHot, Self::GpuMemory, Self::GpuBroken, Self::NodeCpu, Self::NodeMemory];

    /// A short stable word for explain and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GpuTooHot => "gpu_too_hot",
            Self::GpuMemory => "gpu_out_of_memory",
            Self::GpuBroken => "gpu_needs_reset",
            Self::NodeCpu => "node_cpu_busy",
            Self::NodeMemory => "node_out_of_memory",
        }
    }
}

/// One reading of a status page. Absent fields are `None`, never zero: a missing number must not look like an idle endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// When the endpoint was read (the request's start, as the page may wait).
    pub sampled_at: Instant,
    /// Load, 0..1.
    pub load: Option<f64>,
    /// Response time the endpoint reports, in seconds.
    pub response_time_s: Option<f64>,
    /// Utilisation of CPU, GPU and memory, each 0..1: the scarcest one counts.
    pub utilisation: [Option<f64>; 3],
    /// What the engine says of its own requests.
    pub work: WorkReport,
    /// Why it should get nothing new, if so.
    pub unfit: Option<Unfit>,
    /// How long it counts at least, where it is asked for less often than configured; `None`: as configured.
    pub holds_for: Option<Duration>,
}

/// An engine's own count of its requests and tokens, of all its clients. Absent numbers are `None`, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkReport {
    /// Requests being computed.
    pub running: Option<f64>,
    /// Requests waiting to be computed.
    pub waiting: Option<f64>,
    /// Prompt tokens that wait to be computed.
    pub queued_tokens: Option<f64>,
    /// Output tokens generated since it started; only grows.
    pub generated_total: Option<f64>,
    /// Prompt tokens computed since it started; only grows.
    pub prompt_total: Option<f64>,
    /// Used share of KV memory, 0..1.
    pub kv_usage: Option<f64>,
}

/// Requests that no engine holds: a count above is a page gone wrong, and would keep its endpoint from ever being used.
const MOST_REQUESTS: f64 = 100_000.0;

impl WorkReport {
    fn counts(&self) -> [Option<f64>; 5] {
        [self.running, self.waiting, self.queued_tokens, self.generated_total, self.prompt_total]
    }

    /// Whether the engine started anew since `before`: a count that only grows has fallen.
    pub fn is_restarted(&self, before: &Self) -> bool {
        let fell = |now: Option<f64>, then: Option<f64>| now.zip(then).is_some_and(|(now, then)| now < then);
        fell(self.generated_total, before.generated_total) || fell(self.prompt_total, before.prompt_total)
    }

    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.counts().iter().all(Option::is_none) && self.kv_usage.is_none()
    }
}

impl LoadReport {
    /// Whether every number present is one that can be: counts and times finite and not negative, at most 100,000 requests, load and uses in
    /// 0..1.
    pub fn is_possible(&self) -> bool {
        self.impossible().is_none()
    }

    /// A number in it that cannot be, by its name.
    pub fn impossible(&self) -> Option<(&'static str, f64)> {
        let [cpu, gpu, memory] = self.utilisation;
        let work = &self.work;
        let shares = [("load", self.load), ("cpu", cpu), ("gpu", gpu), ("memory", memory), ("kv_usage", work.kv_usage)];
        let requests = [("running", work.running), ("waiting", work.waiting)];
        let amounts = [
            ("response_time", self.response_time_s),
            ("queued_tokens", work.queued_tokens),
            ("generated_tokens", work.generated_total),
            ("prompt_tokens", work.prompt_total),
        ];
        let beyond = |numbers: &[(&'static str, Option<f64>)], most: f64| {
            let wrong = |&(name, value): &(_, Option<f64>)| Some((name, value.filter(|v| !(0.0..=most).contains(v))?));
            numbers.iter().find_map(wrong)
        };
        beyond(&shares, 1.0).or_else(|| beyond(&requests, MOST_REQUESTS)).or_else(|| beyond(&amounts, f64::MAX))
    }

    /// This report with what `other` knows beside: of loads and uses the higher; response time and requests are those of this one, if it has
    /// any.
    #[must_use]
    pub fn with(self, other: &Self) -> Self {
        // NaN is kept: what is impossible must be seen.
        let higher = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) if a.is_nan() || b.is_nan() => Some(f64::NAN),
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        let [[cpu, gpu, memory], used] = [self.utilisation, other.utilisation];
        Self {
            load: higher(self.load, other.load),
            response_time_s: self.response_time_s.or(other.response_time_s),
            utilisation: [higher(cpu, used[0]), higher(gpu, used[1]), higher(memory, used[2])],
            work: if self.work.is_empty() { other.work } else { self.work },
            unfit: self.unfit.or(other.unfit),
            ..self
        }
    }

    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.load.is_none()
            && self.unfit.is_none()
            && self.response_time_s.is_none()
            && self.utilisation.iter().all(Option::is_none)
            && self.work.is_empty()
    }

    /// The fraction of the scarcest resource that is still free, 0..1.
    pub fn headroom(&self) -> Option<f64> {
        let most =
            self.utilisation.iter().flatten().copied().fold(None, |m: Option<f64>, v| Some(m.map_or(v, |m| m.max(v))));
        most.or(self.load).map(|used| 1.0 - used)
    }
}
