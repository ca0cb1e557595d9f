//! Learned seconds per unit of work ahead: absorbs the engine's speed, its batching and interference; no hardware table.
//!
//! A decayed regression through the origin of y = time to first byte on x = predicted work ahead, with two pseudo-observations of the
//! pool (notes: adaptive, section 3): `s = (Sxy + 2 X s_pool g) / (Sxx + 2 X)`.

use crate::time::Instant;

/// Weight of a sample in the pool's averages.
const POOL_WEIGHT: f64 = 0.02;
/// Pseudo-observations of the pool in every endpoint's estimate.
const PRIOR: f64 = 2.0;
/// The oldest pending request says nothing before this age.
const CENSOR_AFTER_S: f64 = 0.5;

/// What the whole pool has learned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PoolSpeed {
    xx: Option<f64>,
    xy: f64,
    /// Answers so far, as far as they matter: the first are a plain mean, else one short prompt would speak for all engines.
    answers: u32,
    pace: Option<(f64, f64)>,
}

impl PoolSpeed {
    /// Its numbers; 0 stands for what is not known.
    pub(super) fn parts(&self) -> [f64; 4] {
        let (tau, tau0) = self.pace.unwrap_or_default();
        [self.xx.unwrap_or(0.0), self.xy, tau, tau0]
    }

    /// One with these numbers.
    pub(super) fn of([xx, xy, tau, tau0]: [f64; 4]) -> Self {
        Self { xx: (xx > 0.0).then_some(xx), xy, answers: u32::MAX, pace: (tau > 0.0).then_some((tau, tau0)) }
    }

    /// Whether anybody has answered yet.
    pub(super) fn is_known(&self) -> bool {
        self.xx.is_some()
    }

    pub(super) fn on_answer(&mut self, x: f64, y: f64) {
        self.answers = self.answers.saturating_add(1);
        let weight = POOL_WEIGHT.max(1.0 / f64::from(self.answers));
        let xx = self.xx.get_or_insert(x * x);
        *xx += weight * (x * x - *xx);
        self.xy += weight * (x * y - self.xy);
    }

    pub(super) fn on_pace(&mut self, tau: f64, tau0: f64) {
        let (t, t0) = self.pace.unwrap_or((tau, tau0));
        self.pace = Some((t + 0.1 * (tau - t), t0 + 0.1 * (tau0 - t0)));
    }

    /// Mean seconds between tokens in the pool, now and unloaded.
    pub(super) fn pace(&self) -> Option<(f64, f64)> {
        self.pace
    }

    /// Mean unloaded seconds between tokens in the pool.
    pub(super) fn pace_base(&self) -> Option<f64> {
        self.pace.map(|(_, t0)| t0).filter(|&t| t > 0.0)
    }
}

/// What one endpoint has taught.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Speed {
    xx: f64,
    xy: f64,
    updated: Instant,
}

impl Speed {
    /// Its numbers, and seconds of the last update.
    pub(super) fn parts(&self) -> [f64; 3] {
        [self.xx, self.xy, self.updated.as_secs_f64()]
    }

    /// One with these numbers.
    pub(super) fn of([xx, xy, updated]: [f64; 3]) -> Self {
        Self { xx, xy, updated: Instant::from_secs_f64(updated) }
    }

    /// An answer began `y` seconds after its dispatch with `x` units of work predicted.
    pub(super) fn on_answer(&mut self, now: Instant, memory_s: f64, x: f64, y: f64) {
        let kept = libm::exp(-now.secs_since(self.updated) / memory_s);
        (self.xx, self.xy, self.updated) = (self.xx * kept + x * x, self.xy * kept + x * y, now);
    }

    /// Seconds per unit of work at `now`; 1 while nobody has answered, so that the rule is least outstanding work. `relative` is the
    /// endpoint's unloaded pace over the pool's: slow between tokens, probably slow in prefill.
    pub(super) fn seconds_per_unit_at(&self, now: Instant, memory_s: f64, pool: &PoolSpeed, relative: f64) -> f64 {
        let Some(xx) = pool.xx.filter(|&xx| xx > 0.0) else { return 1.0 };
        let kept = if self.xx > 0.0 { libm::exp(-now.secs_since(self.updated) / memory_s) } else { 0.0 };
        let prior = pool.xy / xx * relative;
        ((self.xy * kept + PRIOR * xx * prior) / (self.xx * kept + PRIOR * xx)).max(1e-12)
    }
}

/// An answer that does not come is evidence: the oldest pending request, predicted to take `s x`, has age `age_s` already.
pub(super) fn censored(s: f64, age_s: f64, x: f64) -> f64 {
    if x > 0.0 && age_s > (s * x).max(CENSOR_AFTER_S) { s.max(age_s / x) } else { s }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learns_a_slow_endpoint_and_forgets_it() {
        let (mut pool, mut slow) = (PoolSpeed::default(), Speed::default());
        let at = Instant::from_secs_f64;
        assert_eq!(slow.seconds_per_unit_at(at(0.0), 120.0, &pool, 1.0), 1.0);
        for k in 0..500 {
            pool.on_answer(100.0, 1.0);
            slow.on_answer(at(f64::from(k)), 120.0, 100.0, 7.0);
        }
        let learned = slow.seconds_per_unit_at(at(500.0), 120.0, &pool, 1.0);
        assert!((0.065..0.07).contains(&learned), "{learned}");
        let later = slow.seconds_per_unit_at(at(2000.0), 120.0, &pool, 1.0);
        assert!((0.01..0.0101).contains(&later), "after twelve memories the pool's speed is all that is left: {later}");
    }

    #[test]
    fn a_hung_endpoint_becomes_dear() {
        assert_eq!(censored(0.01, 0.4, 10.0), 0.01);
        assert!((censored(0.01, 5.0, 10.0) - 0.5).abs() < 1e-12);
    }
}
