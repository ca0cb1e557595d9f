//! The plain token bucket: a rate, a depth, and a level that is brought up to date when somebody looks.
//!
//! Lazy refill instead of a timer: `level(now) = min(depth, level + rate x (now - at))`. The level is a real number, so a bucket that
//! is polled faster than one token arrives keeps the fraction. Only a later `now` than any before mints; an older one reads the level
//! as it is. Everything is O(1).
//!
//! What was really used may be known late, so settlement may take the level below zero: the debt is at most one depth (or the
//! overdraft, where that is larger) and is repaid by the refill before anybody is admitted again.

use crate::time::{Duration, Instant};

/// Tokens by which rounding may miss: a bucket that holds `n - SLACK` holds `n`.
pub(crate) const SLACK: f64 = 1e-9;

/// A bucket of `depth` tokens that fills at `rate` tokens per second.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBucket {
    rate: f64,
    depth: f64,
    overdraft: f64,
    level: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket. `rate` in tokens/s and `depth` in tokens; negative and NaN count as zero.
    pub fn new(now: Instant, rate: f64, depth: f64) -> Self {
        let (rate, depth) = (rate.max(0.0), depth.max(0.0));
        Self { rate, depth, overdraft: 0.0, level: depth, at: now }
    }

    /// The same bucket, which admits a request larger than its level while that is above zero, if at most `tokens` are then owed: coarse
    /// costs pay afterwards.
    pub fn with_overdraft(mut self, tokens: f64) -> Self {
        self.overdraft = tokens.max(0.0);
        self
    }

    /// The same bucket, filled to `share` (0..1) of its depth.
    pub fn filled(mut self, share: f64) -> Self {
        self.level = self.depth * share.clamp(0.0, 1.0);
        self
    }

    /// Tokens per second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The most it holds, in tokens.
    pub fn depth(&self) -> f64 {
        self.depth
    }

    /// Tokens it holds at `now`; negative while in debt.
    pub fn level_at(&self, now: Instant) -> f64 {
        (self.level + self.rate * now.secs_since(self.at)).min(self.depth)
    }

    /// Whether `n` tokens could be taken at `now`.
    pub fn fits(&self, now: Instant, n: f64) -> bool {
        self.level_at(now) >= self.floor_for(n) - SLACK
    }

    /// The instant from which `n` tokens fit if nobody else takes any; `None` if they never will.
    pub fn fits_at(&self, now: Instant, n: f64) -> Option<Instant> {
        let missing = self.floor_for(n) - self.level_at(now);
        if missing <= SLACK {
            return Some(now);
        }
        if self.is_terminal(n) || self.rate <= 0.0 {
            return None;
        }
        Some(now.max(self.at) + Duration::from_nanos(libm::ceil(missing / self.rate * 1e9) as u64))
    }

    /// Whether `n` tokens can never fit.
    pub fn is_terminal(&self, n: f64) -> bool {
        n > self.depth + self.overdraft + SLACK
    }

    /// Takes `n` tokens if they fit.
    pub fn take(&mut self, now: Instant, n: f64) -> bool {
        let fits = self.fits(now, n);
        if fits {
            self.charge(now, n);
        }
        fits
    }

    /// Takes `n` tokens that [`TokenBucket::fits`] let through in the same instant.
    pub(crate) fn charge(&mut self, now: Instant, n: f64) {
        self.refill(now);
        self.level -= n.max(0.0);
    }

    /// What was taken turned out `more` tokens dearer; negative gives back. A refund stops at the depth, a debt at the larger of depth and
    /// overdraft.
    pub fn settle(&mut self, now: Instant, more: f64) {
        self.refill(now);
        let deepest = self.level.min(-self.depth.max(self.overdraft));
        self.level = (self.level - more).clamp(deepest, self.depth);
    }

    /// Holds `level` tokens since `at`, at most its depth.
    pub(crate) fn restore(&mut self, at: Instant, level: f64) {
        if level.is_finite() {
            (self.level, self.at) = (level.min(self.depth), at);
        }
    }

    /// A new rate and depth. The level shrinks with the depth and never rises; a debt stays what it was.
    pub fn set(&mut self, now: Instant, rate: f64, depth: f64) {
        self.refill(now);
        let depth = depth.max(0.0);
        if self.level > 0.0 && self.depth > 0.0 {
            self.level *= (depth / self.depth).min(1.0);
        }
        self.level = self.level.min(depth);
        (self.rate, self.depth) = (rate.max(0.0), depth);
    }

    /// The level from which `n` tokens are let through.
    fn floor_for(&self, n: f64) -> f64 {
        if self.overdraft > 0.0 { (n - self.overdraft).max(n.min(2.0 * SLACK)) } else { n }
    }

    fn refill(&mut self, now: Instant) {
        self.level = self.level_at(now);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: f64) -> Instant {
        Instant::from_secs_f64(secs)
    }

    #[test]
    fn a_clock_that_steps_back_neither_mints_nor_stalls() {
        let mut b = TokenBucket::new(at(100.0), 10.0, 3.0);
        (0..3).for_each(|_| assert!(b.take(at(100.0), 1.0)));
        assert!(!b.take(at(89.0), 1.0), "an old clock mints nothing");
        assert_eq!(b.fits_at(at(89.0), 1.0), Some(at(100.1)), "and promises nothing it cannot keep");
        assert!(b.take(at(100.1), 1.0));
    }

    #[test]
    fn alternating_old_and_new_clocks_mint_nothing() {
        let mut b = TokenBucket::new(at(10.0), 1.0, 5.0);
        let taken = (0..1000).filter(|k| b.take(if k % 2 == 0 { at(5.0) } else { at(10.0) }, 1.0)).count();
        assert_eq!(taken, 5);
    }

    #[test]
    fn polling_faster_than_one_token_keeps_the_fraction() {
        let mut b = TokenBucket::new(at(0.0), 10.0, 10.0).filled(0.0);
        let taken = (1..=100_000).filter(|ms| b.take(at(f64::from(*ms) * 1e-4), 1.0)).count();
        assert!((99..=100).contains(&taken), "{taken} in ten seconds of 10/s");
    }

    #[test]
    fn a_new_rate_never_mints() {
        let mut b = TokenBucket::new(at(0.0), 10.0, 100.0);
        assert!(b.take(at(0.0), 50.0));
        b.set(at(0.0), 1000.0, 10_000.0);
        assert_eq!(b.level_at(at(0.0)), 50.0, "a larger bucket is not fuller");
        b.set(at(0.0), 10.0, 100.0);
        assert!((b.level_at(at(0.0)) - 0.5).abs() < 1e-9, "a smaller one keeps its share");
        b.settle(at(0.0), 20.5);
        b.set(at(0.0), 10.0, 1.0);
        assert!((b.level_at(at(0.0)) + 20.0).abs() < 1e-9, "and a debt stays what it was");
    }

    #[test]
    fn debt_is_bounded_and_repaid_before_anybody_enters() {
        let mut b = TokenBucket::new(at(0.0), 10.0, 100.0);
        assert!(b.take(at(0.0), 100.0));
        b.settle(at(0.0), 1e9);
        assert_eq!(b.level_at(at(0.0)), -100.0);
        assert_eq!(b.fits_at(at(0.0), 10.0), Some(at(11.0)));
        assert!(!b.take(at(10.99), 10.0) && b.take(at(11.0), 10.0));
        b.settle(at(11.0), -1e9);
        assert_eq!(b.level_at(at(11.0)), 100.0, "a refund stops at the depth");
    }

    #[test]
    fn a_request_larger_than_the_bucket_is_terminal() {
        let b = TokenBucket::new(at(0.0), 10.0, 100.0);
        assert!(b.is_terminal(101.0) && b.fits_at(at(0.0), 101.0).is_none());
        assert!(!b.is_terminal(100.0));
        let mut paying_afterwards = b.with_overdraft(50.0);
        assert!(!paying_afterwards.is_terminal(150.0) && paying_afterwards.take(at(0.0), 150.0));
        assert!(!paying_afterwards.take(at(5.0), 1.0), "in debt");
    }
}
