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
}

impl LoadReport {
    /// Whether every number present is one that can be: finite, a load and utilisations in 0..1, a response time not negative.
    pub fn is_possible(&self) -> bool {
        let unit = |v: Option<f64>| v.is_none_or(|v| (0.0..=1.0).contains(&v));
        unit(self.load)
            && self.utilisation.iter().all(|&v| unit(v))
            && self.response_time_s.is_none_or(|v| v >= 0.0 && v.is_finite())
    }

    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.load.is_none() && self.response_time_s.is_none() && self.utilisation.iter().all(Option::is_none)
    }

    /// The fraction of the scarcest resource that is still free, 0..1.
    pub fn headroom(&self) -> Option<f64> {
        let most =
            self.utilisation.iter().flatten().copied().fold(None, |m: Option<f64>, v| Some(m.map_or(v, |m| m.max(v))));
        most.or(self.load).map(|used| 1.0 - used)
    }
}
