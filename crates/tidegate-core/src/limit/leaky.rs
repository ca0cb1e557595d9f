//! The leaky bucket: a request is not refused but told when it may go.
//!
//! GCRA (ITU-T I.371) turned round: where a meter asks whether a request came too early, a shaper says by how much it has to wait.
//! `go = max(free - tolerance, now)`, then `free = max(free, now) + n x T`, `T = 1 / rate`, `tolerance = (burst - 1) x T`. Times are whole
//! numbers of 2^-32 ns, so a million requests drift by nothing, and `T` is rounded up, so the rate is never exceeded. One word of
//! state, O(1).

use crate::time::{Duration, Instant};

/// Fractions of a nanosecond are counted in 2^-32.
const FRACTION: u32 = 32;

/// Lets `rate` tokens per second through, evenly, after a first `burst`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaky {
    per_token: u128,
    tolerance: u128,
    max_wait: Duration,
    /// When all that was let through has leaked out, in 2^-32 ns.
    free: u128,
}

impl Leaky {
    /// An empty bucket. `rate` in tokens/s (at least 1e-6), `burst` in tokens that may go at once (at least 1); `max_wait`: the longest a request
    /// may be told to wait.
    pub fn new(rate: f64, burst: u64, max_wait: Duration) -> Self {
        let mut leaky = Self { per_token: 0, tolerance: 0, max_wait, free: 0 };
        leaky.set(rate, burst, max_wait);
        leaky
    }

    /// A new rate, burst and longest wait. What already waits keeps its time.
    pub fn set(&mut self, rate: f64, burst: u64, max_wait: Duration) {
        let scale = (1u128 << FRACTION) as f64;
        self.per_token = libm::ceil(1e9 * scale / rate.max(1e-6)) as u128;
        self.tolerance = u128::from(burst.max(1) - 1) * self.per_token;
        self.max_wait = max_wait;
    }

    /// When the next request could go, without taking the place; `Err` is the time after which to ask again.
    pub fn go_at(&self, now: Instant) -> Result<Instant, Duration> {
        let wait = self.wait(fixed(now));
        if wait <= self.max_wait { Ok(now + wait) } else { Err(wait - self.max_wait) }
    }

    /// Takes the next place for `n` tokens and says when it is; `Err` is the time after which to ask again, and nothing is taken.
    pub fn take(&mut self, now: Instant, n: u64) -> Result<Instant, Duration> {
        let go = self.go_at(now)?;
        self.charge(now, n);
        Ok(go)
    }

    /// `n` tokens turned out not to be used: those behind do not move, those that come later do.
    pub fn give_back(&mut self, n: u64) {
        self.free = self.free.saturating_sub(u128::from(n).saturating_mul(self.per_token));
    }

    /// When all that was let through has leaked out.
    pub(crate) fn empty_at(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.free >> FRACTION).unwrap_or(u64::MAX))
    }

    /// All that was let through leaks out at `empty_at`.
    pub(crate) fn restore(&mut self, empty_at: Instant) {
        self.free = fixed(empty_at);
    }

    /// Whether all that was let through has leaked out.
    pub fn is_empty_at(&self, now: Instant) -> bool {
        self.free <= fixed(now)
    }

    /// Puts `n` tokens in: of a request that was let through in the same instant, or that used more than it took.
    pub fn charge(&mut self, now: Instant, n: u64) {
        self.free = self.free.max(fixed(now)).saturating_add(u128::from(n).saturating_mul(self.per_token));
    }

    fn wait(&self, now: u128) -> Duration {
        let ahead = self.free.saturating_sub(self.tolerance).saturating_sub(now);
        let nanos = ahead.div_ceil(1 << FRACTION);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

fn fixed(now: Instant) -> u128 {
    u128::from(now.as_nanos()) << FRACTION
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: f64) -> Instant {
        Instant::from_secs_f64(secs)
    }

    #[test]
    fn a_burst_is_spread_evenly_and_never_faster_than_the_rate() {
        let mut leaky = Leaky::new(3.0, 1, Duration::from_secs(3600));
        let go: alloc::vec::Vec<_> = (0..3001).filter_map(|_| leaky.take(at(0.0), 1).ok()).collect();
        assert_eq!(go.len(), 3001);
        assert!(go.windows(2).all(|w| w[1].since(w[0]) >= Duration::from_nanos(333_333_333)));
        assert!(go[3000] >= at(1000.0) && go[3000] < at(1000.0) + Duration::from_micros(1), "no drift: {:?}", go[3000]);
    }

    #[test]
    fn the_wait_is_bounded_and_the_refusal_says_when_to_come_back() {
        let mut leaky = Leaky::new(10.0, 2, Duration::from_secs(1));
        let waits = (0..100).filter(|_| leaky.take(at(5.0), 1).is_ok()).count();
        assert_eq!(waits, 12, "two at once, ten within the second");
        let back = leaky.take(at(5.0), 1).unwrap_err();
        assert!(leaky.clone().take(at(5.0) + back, 1).is_ok());
        assert!(leaky.take(at(5.0) + back - Duration::from_nanos(2), 1).is_err());
    }

    #[test]
    fn a_place_that_is_given_back_serves_those_who_come_later() {
        let mut leaky = Leaky::new(1.0, 1, Duration::from_secs(10));
        let first = leaky.take(at(0.0), 1);
        let _ = leaky.take(at(0.0), 5);
        leaky.give_back(5);
        assert_eq!((first, leaky.take(at(0.0), 1)), (Ok(at(0.0)), Ok(at(1.0))));
    }
}
