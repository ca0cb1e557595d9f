//! Moving averages over irregular samples.

use crate::time::Instant;

/// Time-decayed average: the weight of the old value after `dt` is `exp(-dt / decay)`. When nothing is observed the value itself
/// decays to zero, so that an endpoint once slow is looked at again (Finagle, tower: `peak_ewma`).
#[derive(Clone, Copy, Debug, Default)]
pub struct DecayEwma {
    value: f64,
    updated: Option<Instant>,
}

impl DecayEwma {
    /// Takes a sample, weighted by the time since the last one, at least `floor` (0..1), so that samples in a row still count.
    pub fn on_sample(&mut self, now: Instant, sample: f64, decay_s: f64, floor: f64) {
        self.value = match self.updated {
            None => sample,
            Some(then) => {
                let w = (1.0 - libm::exp(-now.secs_since(then) / decay_s)).max(floor);
                self.value + w * (sample - self.value)
            }
        };
        self.updated = Some(now);
    }

    /// The average as of the last sample.
    pub fn last(&self) -> Option<f64> {
        self.updated.map(|_| self.value)
    }

    /// The average at `now`, faded by the time since the last sample.
    pub fn value_at(&self, now: Instant, decay_s: f64) -> Option<f64> {
        self.updated.map(|then| self.value * libm::exp(-now.secs_since(then) / decay_s))
    }
}

/// Peak-sensitive average: jumps up to a worse sample at once, comes down with time (Finagle `PeakEwma`, tower `peak_ewma`).
#[derive(Clone, Copy, Debug)]
pub struct PeakEwma {
    value: f64,
    updated: Instant,
}

impl PeakEwma {
    /// Value and seconds of the last update.
    pub(crate) fn parts(&self) -> [f64; 2] {
        [self.value, self.updated.as_secs_f64()]
    }

    /// An average that starts at `initial` seconds.
    pub fn new(now: Instant, initial: f64) -> Self {
        Self { value: initial, updated: now }
    }

    /// Takes a sample.
    pub fn on_sample(&mut self, now: Instant, sample: f64, decay_s: f64) {
        let w = libm::exp(-now.secs_since(self.updated) / decay_s);
        self.value = if sample > self.value { sample } else { self.value * w + sample * (1.0 - w) };
        self.updated = self.updated.max(now);
    }

    /// The average as of the last sample.
    pub fn last(&self) -> f64 {
        self.value
    }

    /// The average at `now`: decays to zero when nothing is observed.
    pub fn value_at(&self, now: Instant, decay_s: f64) -> f64 {
        self.value * libm::exp(-now.secs_since(self.updated) / decay_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_count_at_once_and_fade_with_time() {
        let at = Instant::from_secs_f64;
        let mut e = PeakEwma::new(at(0.0), 0.03);
        e.on_sample(at(1.0), 2.0, 10.0);
        assert!((e.value_at(at(1.0), 10.0) - 2.0).abs() < 1e-12);
        assert!((e.value_at(at(11.0), 10.0) - 2.0 / core::f64::consts::E).abs() < 1e-9);
        e.on_sample(at(11.0), 0.1, 10.0);
        assert!(e.value_at(at(11.0), 10.0) < 0.81);
    }

    #[test]
    fn a_first_sample_is_the_average() {
        let mut e = DecayEwma::default();
        assert_eq!(e.last(), None);
        e.on_sample(Instant::ORIGIN, 3.0, 1.0, 0.0);
        e.on_sample(Instant::ORIGIN, 5.0, 1.0, 0.5);
        assert_eq!(e.last(), Some(4.0));
    }
}
