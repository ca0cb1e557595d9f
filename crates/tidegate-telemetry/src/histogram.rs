//! A histogram of seconds that many threads may feed at once.
//!
//! One atomic add per bucket and one for the sum, no lock, no allocation. A reader may see the count of an observation before its sum;
//! both are there at the next scrape.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the buckets of times to first byte, in seconds.
pub(crate) const TTFT_BOUNDS_S: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Upper bounds of the buckets of whole requests, in seconds: streams last minutes.
pub(crate) const TOTAL_BOUNDS_S: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Counts of observations between bounds, and their sum.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds_s: &'static [f64],
    buckets: Box<[AtomicU64]>,
    /// In microseconds: as nanoseconds, 10,000 requests in flight would overflow it within a month.
    sum_us: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds_s: &'static [f64]) -> Self {
        let buckets = (0..=bounds_s.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds_s, buckets, sum_us: AtomicU64::new(0) }
    }

    /// Counts one observation of `seconds`.
    pub(crate) fn observe(&self, seconds: f64) {
        let place = self.bounds_s.iter().position(|&bound| seconds <= bound).unwrap_or(self.bounds_s.len());
        self.buckets[place].fetch_add(1, Relaxed);
        self.sum_us.fetch_add((seconds * 1e6) as u64, Relaxed);
    }

    /// Each bound in seconds (the last is infinite) with the number of observations up to it.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds_s.iter().copied().chain([f64::INFINITY]);
        bounds.zip(&self.buckets).scan(0, |total, (bound, count)| {
            *total += count.load(Relaxed);
            Some((bound, *total))
        })
    }

    /// Sum of all observations in seconds.
    pub(crate) fn sum_s(&self) -> f64 {
        self.sum_us.load(Relaxed) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_bounds_belong_to_them() {
        let h = Histogram::new(&[0.1, 1.0]);
        [0.05, 0.1, 0.5, 7.0].into_iter().for_each(|s| h.observe(s));
        let seen: Vec<_> = h.cumulative().collect();
        assert_eq!(seen, [(0.1, 2), (1.0, 3), (f64::INFINITY, 4)]);
        assert!((h.sum_s() - 7.65).abs() < 1e-5);
    }

    #[test]
    fn odd_seconds_are_counted_and_harm_nothing() {
        let h = Histogram::new(&[0.1]);
        h.observe(f64::NAN);
        h.observe(-1.0);
        assert_eq!(h.cumulative().last(), Some((f64::INFINITY, 2)));
        assert_eq!(h.sum_s(), 0.0);
    }
}
