//! Quantiles and mean of a set of times, in bounded memory.
//!
//! A high-dynamic-range histogram in microseconds, three significant digits, up to an hour: about 180 kB whatever is recorded. The
//! mean is exact.

use hdrhistogram::Histogram;

const LARGEST_US: u64 = 3_600_000_000;

/// A set of times in seconds.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Option<Histogram<u64>>,
    sum_s: f64,
    sum_squares: f64,
    count: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// An empty set.
    pub fn new() -> Self {
        // The bounds are valid by construction; without a histogram only quantiles would be missing.
        let histogram = Histogram::new_with_bounds(1, LARGEST_US, 3).ok();
        Self { histogram, sum_s: 0.0, sum_squares: 0.0, count: 0 }
    }

    /// Adds a time, seconds; below 1 us counts as 1 us and above an hour as an hour in the quantiles.
    pub fn record(&mut self, seconds: f64) {
        if let Some(h) = &mut self.histogram {
            h.saturating_record(((seconds * 1e6) as u64).clamp(1, LARGEST_US));
        }
        self.sum_s += seconds;
        self.sum_squares += seconds * seconds;
        self.count += 1;
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: &Self) {
        if let (Some(h), Some(o)) = (&mut self.histogram, &other.histogram) {
            // Cannot fail: both have the same bounds.
            let _ = h.add(o);
        }
        self.sum_s += other.sum_s;
        self.sum_squares += other.sum_squares;
        self.count += other.count;
    }

    /// How many times.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean, seconds; `None` if empty.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_s / self.count as f64)
    }

    /// Standard error of the mean, seconds, as if the times were independent; `None` below two.
    pub fn standard_error_s(&self) -> Option<f64> {
        let (n, mean) = (self.count as f64, self.mean_s()?);
        (self.count > 1).then(|| libm::sqrt((self.sum_squares / n - mean * mean).max(0.0) / (n - 1.0)))
    }

    /// The `q` quantile, `q` in 0..=1, seconds, within 0.1 %; `None` if empty.
    pub fn quantile_s(&self, q: f64) -> Option<f64> {
        let h = self.histogram.as_ref().filter(|h| !h.is_empty())?;
        Some(h.value_at_quantile(q) as f64 * 1e-6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_within_a_thousandth() {
        let mut l = Latency::new();
        assert_eq!((l.mean_s(), l.quantile_s(0.5)), (None, None));
        for ms in 1..=1000 {
            l.record(f64::from(ms) * 1e-3);
        }
        let near = |a: Option<f64>, b: f64| libm::fabs(a.unwrap() / b - 1.0) < 2e-3;
        assert!(near(l.quantile_s(0.5), 0.5) && near(l.quantile_s(0.99), 0.99) && near(l.mean_s(), 0.5005));
        let mut both = l.clone();
        both.merge(&l);
        assert!(both.count() == 2000 && near(both.quantile_s(0.9), 0.9));
        assert!(near(l.standard_error_s(), 0.288_675 / 31.62));
    }
}
