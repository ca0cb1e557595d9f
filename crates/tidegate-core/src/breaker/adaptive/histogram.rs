//! Times to first byte of one endpoint, in buckets that fit microseconds and minutes alike.
//!
//! 80 buckets of a quarter octave from 0.5 ms (to 524 s), halved all at once when they hold more than 1,000, so that the past fades
//! with traffic and not with the clock (notes: breaker, section 3.1). 160 bytes; O(1) per sample, quantiles kept.

const BUCKETS: usize = 80;
/// Upper edge of what the first bucket begins with, seconds.
const LOWEST_S: f64 = 0.0005;
/// Samples from which all are halved.
const MOST: u32 = 1000;
/// Samples from which quantiles mean something.
pub(super) const VALID: u32 = 20;

/// Counts by time.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: [u16; BUCKETS],
    total: u32,
    /// Samples since the quantiles were taken.
    unseen: u32,
    median_s: f64,
    p95_s: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0, unseen: 0, median_s: 0.0, p95_s: 0.0 }
    }
}

fn bucket(seconds: f64) -> usize {
    if seconds <= LOWEST_S { 0 } else { ((4.0 * libm::log2(seconds / LOWEST_S)) as usize).min(BUCKETS - 1) }
}

impl Histogram {
    /// One that holds these counts; others than a histogram has are none.
    pub(super) fn of(counts: &[u16]) -> Self {
        let mut new = Self::default();
        let total: u32 = counts.iter().map(|&n| u32::from(n)).sum();
        if counts.len() != BUCKETS || total > MOST {
            return new;
        }
        new.counts.copy_from_slice(counts);
        new.total = total;
        (new.median_s, new.p95_s) = (new.quantile(0.5), new.quantile(0.95));
        new
    }

    /// Its counts, from the shortest times on.
    pub(super) fn counts(&self) -> &[u16] {
        &self.counts
    }

    /// Takes a time in seconds.
    pub(super) fn on_sample(&mut self, seconds: f64) {
        self.counts[bucket(seconds)] += 1;
        self.total += 1;
        self.unseen += 1;
        if self.total > MOST {
            self.counts.iter_mut().for_each(|n| *n /= 2);
            self.total = self.counts.iter().map(|&n| u32::from(n)).sum();
        }
        // A quantile moves little while few samples of many are new.
        if self.unseen * 32 >= self.total {
            self.unseen = 0;
            (self.median_s, self.p95_s) = (self.quantile(0.5), self.quantile(0.95));
        }
    }

    /// Median in seconds, the upper edge of its bucket; `None` below [`VALID`] samples.
    pub(super) fn median_s(&self) -> Option<f64> {
        (self.total >= VALID).then_some(self.median_s)
    }

    /// 95th percentile in seconds, the upper edge of its bucket; `None` below [`VALID`] samples.
    pub(super) fn p95_s(&self) -> Option<f64> {
        (self.total >= VALID).then_some(self.p95_s)
    }

    fn quantile(&self, q: f64) -> f64 {
        let wanted = q * f64::from(self.total);
        let mut below = 0.0;
        for (k, &n) in self.counts.iter().enumerate() {
            below += f64::from(n);
            if below >= wanted {
                return LOWEST_S * libm::exp2((k + 1) as f64 / 4.0);
            }
        }
        LOWEST_S
    }

    /// For every bucket, how unlikely it is that an answer takes longer: `-ln((count above + 0.5) / (total + 1))`.
    pub(super) fn hazards(&self) -> Hazards {
        let mut table = [0.0; BUCKETS];
        let mut above = 0u32;
        for (k, &n) in self.counts.iter().enumerate().rev() {
            table[k] = -libm::log((f64::from(above) + 0.5) / (f64::from(self.total) + 1.0));
            above += u32::from(n);
        }
        Hazards(table)
    }
}

/// Cumulated hazard by age.
pub(super) struct Hazards([f64; BUCKETS]);

impl Hazards {
    /// At an age of so many seconds, in nats; 0 for what is no age.
    pub(super) fn at(&self, seconds: f64) -> f64 {
        if seconds <= 0.0 { 0.0 } else { self.0[bucket(seconds)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_edges_and_need_twenty_samples() {
        let mut h = Histogram::default();
        (0..19).for_each(|_| h.on_sample(0.02));
        assert_eq!(h.median_s(), None);
        h.on_sample(0.02);
        let median = h.median_s().unwrap();
        assert!((0.02..0.024).contains(&median), "{median}");
        (0..300).for_each(|_| h.on_sample(1.0));
        assert!(h.median_s().unwrap() > 0.9);
    }

    #[test]
    fn it_forgets_by_count_and_never_overflows() {
        let mut h = Histogram::default();
        (0..200_000).for_each(|_| h.on_sample(0.01));
        assert!(h.total <= MOST);
        (0..3000).for_each(|_| h.on_sample(2.0));
        assert!(h.median_s().unwrap() > 1.9);
        h.on_sample(0.0);
        h.on_sample(1e9);
    }

    #[test]
    fn hazard_grows_with_age() {
        let mut h = Histogram::default();
        (1..=100).for_each(|k| h.on_sample(f64::from(k) / 100.0));
        let z = h.hazards();
        assert_eq!(z.at(-1.0), 0.0);
        assert!(z.at(0.2) < z.at(0.6) && z.at(0.6) < z.at(3.0));
        assert!((z.at(3.0) - libm::log(202.0)).abs() < 1e-9);
    }
}
