//! A quantile of a stream of positive numbers, in two of them.
//!
//! Stochastic approximation (Robbins and Monro 1951) in proportion to the estimate itself, so that 50 and 5,000 are learned as fast: up by
//! `p x step` where a sample was larger, down by `(1 - p) x step` where it was not, in the logarithm. The step starts at 1 and falls to
//! 1/16, so the estimate follows what changes. O(1).

/// Smallest step of the logarithm.
const LEAST_STEP: f64 = 1.0 / 16.0;

/// The estimate of one quantile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantile {
    value: f64,
    samples: u32,
}

impl Quantile {
    /// One that stands at `value` after so many samples.
    pub(crate) fn of(value: f64, samples: u32) -> Self {
        Self { value, samples }
    }

    /// Takes a sample (above 0) of the `p`-quantile (0..1); what is not a positive number is left out.
    pub fn on_sample(&mut self, sample: f64, p: f64) {
        if !(sample > 0.0 && sample.is_finite()) {
            return;
        }
        if self.samples == 0 {
            self.value = sample;
        } else {
            let step = (1.0 / f64::from(self.samples)).max(LEAST_STEP);
            self.value *= libm::exp(step * if sample > self.value { p } else { p - 1.0 });
        }
        self.samples = self.samples.saturating_add(1);
    }

    /// Samples taken.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// The estimate; `None` before the first sample.
    pub fn value(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn about_as_many_samples_exceed_it_as_were_asked_for() {
        for (p, scale) in [(0.5, 0.01), (0.9, 1.0), (0.95, 5000.0)] {
            let (mut q, mut rng, mut over) = (Quantile::default(), Rng::new(3), 0);
            for k in 0..20_000 {
                let sample = scale * libm::exp(rng.unit() * 2.0);
                over += u32::from(k >= 1000 && sample > q.value().unwrap_or(0.0));
                q.on_sample(sample, p);
            }
            let share = f64::from(over) / 19_000.0;
            assert!((share - (1.0 - p)).abs() < 0.02, "{p}: {share}");
        }
    }

    #[test]
    fn what_is_no_positive_number_teaches_nothing() {
        let mut q = Quantile::default();
        [0.0, -1.0, f64::NAN, f64::INFINITY].into_iter().for_each(|x| q.on_sample(x, 0.5));
        assert_eq!(q.value(), None);
    }
}
