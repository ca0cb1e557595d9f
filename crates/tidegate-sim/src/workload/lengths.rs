//! Log-normal token counts: long-tailed, and described by the two numbers that reports print.

use tidegate_core::rng::Rng;

/// z of the 90 % quantile of a standard normal.
const Z90: f64 = 1.281_551_565_544_6;

/// A log-normal distribution of token counts, cut to `1..=max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogNormal {
    /// Median, tokens.
    pub median: f64,
    /// Standard deviation of the logarithm, `>= 0`.
    pub sigma: f64,
    /// Largest value, tokens.
    pub max: u32,
}

impl LogNormal {
    /// The one with these 50 % and 90 % quantiles.
    pub fn from_quantiles(median: f64, q90: f64, max: u32) -> Self {
        Self { median, sigma: libm::log(q90 / median) / Z90, max }
    }

    /// A draw, `1..=max`.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let x = self.median * libm::exp(rng.normal(0.0, self.sigma));
        (libm::round(x).max(1.0) as u32).min(self.max.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_out_within_three_percent() {
        let dist = LogNormal::from_quantiles(1020.0, 2735.0, 100_000);
        let mut rng = Rng::new(2);
        let mut x: Vec<u32> = (0..50_000).map(|_| dist.draw(&mut rng)).collect();
        x.sort_unstable();
        assert!(x[25_000].abs_diff(1020) < 31 && x[45_000].abs_diff(2735) < 83, "{} {}", x[25_000], x[45_000]);
    }
}
