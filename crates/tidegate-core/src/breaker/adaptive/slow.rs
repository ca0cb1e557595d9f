//! The slow test: do first bytes come later than the peers' come?
//!
//! A request is late once, when its age passes twice the median of the peers' 95th percentiles, not when it ends: a slow engine is seen
//! while it is slow. An engine that always took longer is other hardware and not sick, so its own usual 95th percentile is the least that
//! is asked of it; that is learned at full weight and with 1/2000 per answer only, or a slow engine would excuse itself. Late: `+ln(0.6 / q)` with `q = clamp(1.5 x the peers' share of late ones, 0.04, 0.45)`; on time:
//! `ln(0.4 / 0.96)`. When all are late, nobody is slow: the endpoint's own share must be well above theirs. notes: breaker, section 3.3.

use super::H_SOFT;
use super::cusum::Cusum;
use crate::time::Instant;

/// Shortest time between the first late request and a lower weight, seconds.
const AFTER_S: f64 = 0.25;
/// Distance to the peers' share of late requests, 0..1.
const DISTANCE: f64 = 0.2;

/// Weight of an answer in the usual 95th percentile.
const WEIGHT: f64 = 1.0 / 2000.0;

/// The test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slow {
    sum: Cusum,
    usual_p95_s: Option<f64>,
}

impl Slow {
    /// Age in seconds at which a request is late; `None` while too little is known.
    pub(super) fn late_after_s(&self, peers_p95_s: Option<f64>, own_p95_s: Option<f64>, alone: bool) -> Option<f64> {
        let others = if alone { own_p95_s } else { peers_p95_s };
        Some(2.0 * others?.max(self.usual_p95_s.unwrap_or(0.0)))
    }

    /// An answer at full weight; the 95th percentile of the last thousand is `p95_s`.
    pub(super) fn on_usual(&mut self, p95_s: Option<f64>) {
        let Some(p95_s) = p95_s else { return };
        self.usual_p95_s = Some(self.usual_p95_s.map_or(p95_s, |usual| usual + WEIGHT * (p95_s - usual)));
    }

    /// Forgets what speaks against the endpoint.
    pub(super) fn clear(&mut self) {
        self.sum = Cusum::default();
    }

    /// A request became late; `peers` and `own` are shares of late ones lately. Whether the endpoint is slow.
    pub(super) fn on_late(&mut self, now: Instant, peers: f64, own: f64) -> bool {
        let expected = (1.5 * peers).clamp(0.04, 0.45);
        self.sum.add(now, libm::log(0.6 / expected), H_SOFT + 4.0);
        self.sum.at(now) >= H_SOFT && self.sum.age_s(now) >= AFTER_S && own > peers + DISTANCE
    }

    /// A first byte came in time.
    pub(super) fn on_time(&mut self, now: Instant) {
        // ln(0.4 / 0.96)
        self.sum.add(now, -0.875_468_737_353_9, H_SOFT + 4.0);
    }

    /// The sum at `now`.
    pub(super) fn at(&self, now: Instant) -> f64 {
        self.sum.at(now)
    }
}
