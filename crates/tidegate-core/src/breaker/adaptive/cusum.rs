//! A cumulative sum test: evidence against an endpoint, in nats.
//!
//! `S += step` per observation, never below 0 (Page 1954), faded by `exp(-dt / 60 s)` so that what was long ago is not added to what is
//! now. Crossing a threshold `h` by chance has odds of about `exp(-h)` per episode.

use crate::time::Instant;

/// Time constant of forgetting, seconds.
const FORGET_S: f64 = 60.0;
/// Below this, the sum is 0: fading alone would never end an episode.
const NOTHING: f64 = 0.05;

/// The sum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cusum {
    s: f64,
    at: Instant,
    /// When it last left 0.
    left_zero: Instant,
}

impl Cusum {
    /// The sum at `now`.
    pub(super) fn at(&self, now: Instant) -> f64 {
        if self.s == 0.0 {
            return 0.0;
        }
        let s = self.s * fade(now.secs_since(self.at));
        if s < NOTHING { 0.0 } else { s }
    }

    /// Adds an observation, up to `most`.
    pub(super) fn add(&mut self, now: Instant, step: f64, most: f64) {
        let was = self.at(now);
        if was == 0.0 {
            if step <= 0.0 {
                self.s = 0.0;
                return;
            }
            self.left_zero = now;
        }
        let s = (was + step).min(most);
        self.s = if s < NOTHING { 0.0 } else { s };
        self.at = now;
    }

    /// Seconds since it left 0.
    pub(super) fn age_s(&self, now: Instant) -> f64 {
        now.secs_since(self.left_zero)
    }

    /// Starts at `s`.
    pub(super) fn reset(&mut self, now: Instant, s: f64) {
        *self = Self { s, at: now, left_zero: now };
    }
}

/// What is left of evidence after `dt` seconds, 0..1.
pub(super) fn fade(dt: f64) -> f64 {
    // Short of 1 % the series is exact to 1e-7 and an exponential is most of the cost of an answer.
    let x = dt / FORGET_S;
    if x < 0.01 { 1.0 - x * (1.0 - 0.5 * x) } else { libm::exp(-x) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn a_day_later_nothing_is_left() {
        let mut c = Cusum::default();
        c.add(Instant::ORIGIN, 20.0, 22.0);
        assert_eq!(c.at(Instant::ORIGIN), 20.0);
        let day = Instant::ORIGIN + Duration::from_secs(86_400);
        assert_eq!(c.at(day), 0.0);
        c.add(day, 3.6, 22.0);
        assert_eq!((c.at(day), c.age_s(day)), (3.6, 0.0));
    }

    #[test]
    fn good_news_ends_at_zero() {
        let mut c = Cusum::default();
        c.add(Instant::ORIGIN, 1.0, 22.0);
        c.add(Instant::ORIGIN, -1.2, 22.0);
        assert_eq!(c.at(Instant::ORIGIN), 0.0);
        c.add(Instant::ORIGIN, -1.2, 22.0);
        assert_eq!(c.at(Instant::ORIGIN), 0.0);
    }
}
