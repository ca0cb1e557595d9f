//! What an endpoint says about itself.

use crate::time::Instant;

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

    /// Whether every number present is one that can be: counts finite and not negative, at most 100,000 requests, memory in 0..1.
    pub fn is_possible(&self) -> bool {
        let requests = [self.running, self.waiting];
        self.counts().iter().all(|c| c.is_none_or(|v| v >= 0.0 && v.is_finite()))
            && requests.iter().all(|c| c.is_none_or(|v| v <= MOST_REQUESTS))
            && self.kv_usage.is_none_or(|v| (0.0..=1.0).contains(&v))
    }

    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.counts().iter().all(Option::is_none) && self.kv_usage.is_none()
    }
}

impl LoadReport {
    /// Whether every number present is one that can be: finite, a load and utilisations in 0..1, a response time not negative.
    pub fn is_possible(&self) -> bool {
        let unit = |v: Option<f64>| v.is_none_or(|v| (0.0..=1.0).contains(&v));
        unit(self.load)
            && self.utilisation.iter().all(|&v| unit(v))
            && self.response_time_s.is_none_or(|v| v >= 0.0 && v.is_finite())
            && self.work.is_possible()
    }

    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.load.is_none()
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
