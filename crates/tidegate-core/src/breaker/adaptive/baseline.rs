//! How often this endpoint fails and is late: ever, and lately.
//!
//! Ever: `p_own`, an average over outcomes of weight 1/2000, taken only while the endpoint has its full weight, 0.005..0.15, from 0.01.
//! Lately: counts that fade with 10 s and are scaled to hold at most 60 outcomes (notes: breaker, section 3.1).

use crate::time::Instant;

const WEIGHT: f64 = 1.0 / 2000.0;
const FADE_S: f64 = 10.0;
const MOST: f64 = 60.0;

/// Failures of outcomes, faded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    hits: f64,
    all: f64,
    at: Instant,
}

impl Counts {
    fn faded(&self, now: Instant) -> (f64, f64) {
        let x = now.secs_since(self.at) / FADE_S;
        let w = if x < 0.01 { 1.0 - x * (1.0 - 0.5 * x) } else { libm::exp(-x) };
        (self.hits * w, self.all * w)
    }

    /// One more outcome.
    pub(super) fn on_outcome(&mut self, now: Instant, hit: bool) {
        let (hits, all) = self.faded(now);
        let (hits, all) = (hits + f64::from(u8::from(hit)), all + 1.0);
        let scale = if all > MOST { MOST / all } else { 1.0 };
        *self = Self { hits: hits * scale, all: all * scale, at: now };
    }

    /// One hit less.
    pub(super) fn take_back(&mut self, now: Instant) {
        let (hits, all) = self.faded(now);
        *self = Self { hits: (hits - 1.0).max(0.0), all: (all - 1.0).max(0.0), at: now };
    }

    /// The share of hits, 0..1, as it is; 0 without any.
    pub(super) fn share(&self) -> f64 {
        if self.all > 0.0 { self.hits / self.all } else { 0.0 }
    }

    /// The share of hits with a prior of 0.01 worth four outcomes: `(k + 0.04) / (n + 4)`.
    pub(super) fn shrunk_share_at(&self, now: Instant) -> f64 {
        let (hits, all) = self.faded(now);
        (hits + 0.04) / (all + 4.0)
    }
}

/// Both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Baseline {
    own: f64,
    /// Failures lately.
    pub(super) failed: Counts,
    /// Late first bytes lately.
    pub(super) late: Counts,
}

impl Default for Baseline {
    fn default() -> Self {
        Self { own: 0.01, failed: Counts::default(), late: Counts::default() }
    }
}

impl Baseline {
    /// An outcome; `full`: the endpoint has its full weight.
    pub(super) fn on_outcome(&mut self, now: Instant, failed: bool, full: bool) {
        if full {
            self.own = (self.own + WEIGHT * (f64::from(u8::from(failed)) - self.own)).clamp(0.005, 0.15);
        }
        self.failed.on_outcome(now, failed);
    }

    /// Takes over a rate of failures.
    pub(super) fn assume(&mut self, own: f64) {
        self.own = if own.is_finite() { own.clamp(0.005, 0.15) } else { self.own };
    }

    /// Rate of failures ever, 0.005..0.15.
    pub(super) fn own(&self) -> f64 {
        self.own
    }

    /// Rate that is not news, `clamp(1.5 max(p_own, p_peer), 0.02, 0.45)`: if the others fail too, it is the traffic or the pool.
    pub(super) fn expected(&self, peers: f64) -> f64 {
        (1.5 * self.own.max(peers)).clamp(0.02, 0.45)
    }

    /// The generation is over: what was lately is forgotten, what was ever is kept.
    pub(super) fn on_generation(&mut self) {
        (self.failed, self.late) = (Counts::default(), Counts::default());
    }
}
