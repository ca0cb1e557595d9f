//! Arrival processes: gaps between requests.
//!
//! Bursty gaps with a given coefficient of variation c (deviation over mean): for c > 1 a two-phase hyperexponential with balanced
//! means, p = (1 + sqrt((c^2 - 1) / (c^2 + 1))) / 2, rates 2 p r and 2 (1 - p) r; for c < 1 a gamma distribution of shape 1/c^2
//! (Marsaglia, Tsang 2000). A gamma of c = 13 would put nearly all requests into single points, which no real trace does.

use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, duration_from_secs};

/// When requests come, `rate` per second on average, `> 0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Equal gaps.
    Constant {
        /// Requests per second.
        rate: f64,
    },
    /// Independent exponential gaps.
    Poisson {
        /// Requests per second.
        rate: f64,
    },
    /// Independent gaps of the given coefficient of variation.
    Bursty {
        /// Requests per second.
        rate: f64,
        /// Deviation of the gaps over their mean, `> 0`; 1 is Poisson.
        cv: f64,
    },
}

impl Arrivals {
    /// The gap to the next request.
    pub fn gap(&self, rng: &mut Rng) -> Duration {
        duration_from_secs(self.gap_s(rng))
    }

    /// The gap to the next request, seconds.
    pub fn gap_s(&self, rng: &mut Rng) -> f64 {
        match *self {
            Self::Constant { rate } => 1.0 / rate,
            Self::Poisson { rate } => rng.exponential(1.0 / rate),
            Self::Bursty { rate, cv } if cv > 1.0 => {
                let c2 = cv * cv;
                let p = 0.5 * (1.0 + libm::sqrt((c2 - 1.0) / (c2 + 1.0)));
                let phase = if rng.unit() < p { p } else { 1.0 - p };
                rng.exponential(1.0 / (2.0 * phase * rate))
            }
            Self::Bursty { rate, cv } => {
                let shape = 1.0 / (cv * cv).max(1e-6);
                gamma(shape, rng) / (shape * rate)
            }
        }
    }
}

/// Gamma of scale 1 and `shape >= 1` (Marsaglia, Tsang 2000).
fn gamma(shape: f64, rng: &mut Rng) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / libm::sqrt(9.0 * d);
    loop {
        let x = rng.normal(0.0, 1.0);
        let v = 1.0 + c * x;
        if v <= 0.0 {
            continue;
        }
        let v = v * v * v;
        if libm::log(1.0 - rng.unit()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(arrivals: Arrivals, n: u32) -> (f64, f64) {
        let mut rng = Rng::new(9);
        let gaps: Vec<f64> = (0..n).map(|_| arrivals.gap_s(&mut rng)).collect();
        let mean = gaps.iter().sum::<f64>() / f64::from(n);
        let var = gaps.iter().map(|g| (g - mean) * (g - mean)).sum::<f64>() / f64::from(n);
        (mean, libm::sqrt(var) / mean)
    }

    #[test]
    fn constant_is_constant() {
        let (mean, cv) = moments(Arrivals::Constant { rate: 4.0 }, 100);
        assert!(libm::fabs(mean - 0.25) < 1e-12 && cv < 1e-9);
    }

    /// The mean of n gaps has a relative standard error of cv / sqrt(n): bound 5 of them; the cv itself is held to 10 %.
    #[test]
    fn mean_and_variation_are_as_asked() {
        let n = 200_000;
        for cv in [0.3, 0.7, 1.0, 2.0, 4.0, 13.0] {
            let (mean, got) = moments(Arrivals::Bursty { rate: 5.0, cv }, n);
            let bound = 5.0 * cv / libm::sqrt(f64::from(n));
            assert!(libm::fabs(mean * 5.0 - 1.0) < bound, "cv {cv}: mean {mean}");
            assert!(libm::fabs(got / cv - 1.0) < 0.1, "cv {cv}: got {got}");
        }
        let (mean, cv) = moments(Arrivals::Poisson { rate: 5.0 }, n);
        assert!(libm::fabs(mean * 5.0 - 1.0) < 0.012 && libm::fabs(cv - 1.0) < 0.02, "{mean} {cv}");
    }
}
