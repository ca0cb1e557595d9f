//! Load that other people put on an engine: a drifting level with momentum, plus surges.
//!
//! The level's velocity is an Ornstein-Uhlenbeck process (time constant `tv`, stationary deviation `sv`), so the level drifts with
//! momentum instead of jittering; it is reflected in `[low, high]`. Surges come as a Poisson process, jump to a level drawn from
//! `surge_low..surge_high` and drain linearly. Advanced in fixed steps of 0.05 s, so that the path depends on the seed only and not
//! on how often somebody looks.

use tidegate_core::rng::Rng;
use tidegate_core::time::Instant;

/// Length of a step, seconds.
pub const STEP_S: f64 = 0.05;
const STEP_NANOS: u64 = 50_000_000;

/// Parameters of [`Background`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackgroundParams {
    /// Time constant of the velocity, seconds, `> 0`.
    pub tv_s: f64,
    /// Stationary standard deviation of the velocity, load per second.
    pub sv: f64,
    /// Lower reflecting bound of the level.
    pub low: f64,
    /// Upper reflecting bound of the level.
    pub high: f64,
    /// Surges per second, `>= 0`.
    pub surge_rate: f64,
    /// Smallest height of a surge.
    pub surge_low: f64,
    /// Largest height of a surge.
    pub surge_high: f64,
    /// How fast a surge drains, load per second.
    pub drain: f64,
}

impl Default for BackgroundParams {
    /// Setting A2 of the article's model.
    fn default() -> Self {
        Self {
            tv_s: 1.0,
            sv: 0.03,
            low: 0.05,
            high: 0.45,
            surge_rate: 0.04,
            surge_low: 1.5,
            surge_high: 1.6,
            drain: 0.2,
        }
    }
}

/// The process, at one step.
#[derive(Clone, Debug)]
pub struct Background {
    params: BackgroundParams,
    rng: Rng,
    decay: f64,
    kick: f64,
    base: f64,
    velocity: f64,
    surge: f64,
    steps: u64,
}

impl Background {
    /// A path that follows from `rng`; its first step is at the origin.
    pub fn new(params: BackgroundParams, mut rng: Rng) -> Self {
        let decay = libm::exp(-STEP_S / params.tv_s.max(1e-9));
        let base = rng.uniform(params.low, params.high);
        let kick = params.sv * libm::sqrt(1.0 - decay * decay);
        Self { params, rng, decay, kick, base, velocity: 0.0, surge: 0.0, steps: 0 }
    }

    /// Takes the steps that are due by `now`: step k at `k * 0.05` s.
    pub fn advance(&mut self, now: Instant) {
        while self.steps * STEP_NANOS <= now.as_nanos() {
            self.step();
        }
    }

    /// Base plus surge, `>= low`; above 1 in a surge.
    pub fn level(&self) -> f64 {
        self.base + self.surge
    }

    /// The level at `now` without moving: a copy runs ahead, O(steps since the last `advance`).
    pub fn level_at(&self, now: Instant) -> f64 {
        if self.steps * STEP_NANOS > now.as_nanos() {
            return self.level();
        }
        let mut ahead = self.clone();
        ahead.advance(now);
        ahead.level()
    }

    fn step(&mut self) {
        let p = &self.params;
        self.velocity = self.velocity * self.decay + self.rng.normal(0.0, self.kick);
        self.base += self.velocity * STEP_S;
        if self.base < p.low {
            self.base = 2.0 * p.low - self.base;
            self.velocity = -self.velocity;
        }
        if self.base > p.high {
            self.base = 2.0 * p.high - self.base;
            self.velocity = -self.velocity;
        }
        self.base = self.base.max(p.low).min(p.high);
        if p.surge_rate > 0.0 {
            if self.rng.unit() < p.surge_rate * STEP_S {
                self.surge = self.surge.max(self.rng.uniform(p.surge_low, p.surge_high));
            }
            self.surge = (self.surge - p.drain * STEP_S).max(0.0);
        }
        self.steps += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_does_not_depend_on_who_looks_when() {
        let start = Background::new(BackgroundParams::default(), Rng::new(3));
        let mut often = start.clone();
        for ms in 0..10_000 {
            often.advance(Instant::from_nanos(ms * 1_000_000));
        }
        let late = start.level_at(Instant::from_secs_f64(9.999));
        assert_eq!(often.level(), late);
    }

    #[test]
    fn without_surges_the_base_stays_within_its_bounds() {
        let params = BackgroundParams {
            tv_s: 3.0,
            sv: 0.25,
            low: 0.0,
            high: 1.1,
            surge_rate: 0.0,
            ..BackgroundParams::default()
        };
        let mut b = Background::new(params, Rng::new(1));
        let (mut low, mut high) = (f64::MAX, f64::MIN);
        for step in 0..8000 {
            b.advance(Instant::from_nanos(step * STEP_NANOS));
            (low, high) = (low.min(b.level()), high.max(b.level()));
        }
        assert!((0.0..0.1).contains(&low) && (1.0..=1.1).contains(&high), "{low} {high}");
    }

    #[test]
    fn share_of_time_above_the_limit_matches_the_formula() {
        // Plateau D_p = (surge - (0.9 - b)) / drain, ramp-down D_d = (0.9 - b) / drain; share rejecting is about
        // r D_p / (1 + r (D_p + D_d)). With b = 0.25, surge 1.55, r = 0.04, drain 0.2: D_p 4.5 s, D_d 3.25 s, share 0.137.
        let mut above = 0.0;
        let steps = 400_000;
        let mut b = Background::new(BackgroundParams::default(), Rng::new(11));
        for step in 0..steps {
            b.advance(Instant::from_nanos(step * STEP_NANOS));
            above += f64::from(u8::from(b.level() > 0.9));
        }
        let share = above / steps as f64;
        assert!((0.11..0.17).contains(&share), "{share}");
    }
}
