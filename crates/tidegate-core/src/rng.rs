//! A small deterministic generator, owned so that golden results never move with a dependency.
//!
//! xoshiro256++ 1.0 (Blackman, Vigna 2019), seeded through splitmix64 as its authors advise. Not for secrets.

use crate::time::{Duration, duration_from_secs};

/// xoshiro256++: 256 bits of state, period 2^256 - 1.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
            crate::hash::mix(x)
        };
        Self { s: [next(), next(), next(), next()] }
    }

    /// An independent stream of the same seed: `Rng::stream(seed, 1)`, `Rng::stream(seed, 2)` share nothing, so that background,
    /// arrivals and choice stay aligned when one of them draws more.
    pub fn stream(seed: u64, stream: u64) -> Self {
        Self::new(crate::hash::mix(seed ^ crate::hash::mix(stream.wrapping_add(0x5DEE_CE66_D1CE_4E5B))))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.s;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `0..n`, without modulo bias (Lemire 2019); 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        if n == 0 {
            return 0;
        }
        let mut m = u128::from(self.next_u64()) * u128::from(n);
        if (m as u64) < n {
            let threshold = n.wrapping_neg() % n;
            while (m as u64) < threshold {
                m = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (m >> 64) as usize
    }

    /// Uniform in `[0, 1)`, 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `[low, high)`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Exponential with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.unit())
    }

    /// Normal (Box-Muller, one of the pair; the other is dropped so that the state stays four words).
    pub fn normal(&mut self, mean: f64, sd: f64) -> f64 {
        let r = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        mean + sd * r * libm::cos(2.0 * core::f64::consts::PI * self.unit())
    }

    /// `d` scaled by a factor uniform in `1 - spread ..= 1 + spread`.
    pub fn jitter(&mut self, d: Duration, spread: f64) -> Duration {
        duration_from_secs(d.as_secs_f64() * self.uniform(1.0 - spread, 1.0 + spread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_authors_sequence() {
        // First outputs of xoshiro256++ from the state {1, 2, 3, 4}, from the reference C code.
        let mut rng = Rng { s: [1, 2, 3, 4] };
        let first: [u64; 4] = core::array::from_fn(|_| rng.next_u64());
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn below_is_unbiased_within_five_standard_errors() {
        let (mut rng, n, draws) = (Rng::new(7), 7usize, 70_000u32);
        let mut counts = [0u32; 7];
        for _ in 0..draws {
            counts[rng.below(n)] += 1;
        }
        let mean = f64::from(draws) / 7.0;
        let bound = 5.0 * libm::sqrt(mean * (1.0 - 1.0 / 7.0));
        assert!(counts.iter().all(|&c| libm::fabs(f64::from(c) - mean) < bound), "{counts:?}");
    }

    #[test]
    fn moments_are_right() {
        let mut rng = Rng::new(1);
        let n = 50_000;
        let e: f64 = (0..n).map(|_| rng.exponential(2.0)).sum::<f64>() / f64::from(n);
        let z: f64 = (0..n).map(|_| rng.normal(3.0, 1.0)).sum::<f64>() / f64::from(n);
        assert!(libm::fabs(e - 2.0) < 0.05 && libm::fabs(z - 3.0) < 0.03, "{e} {z}");
    }

    #[test]
    fn streams_of_one_seed_differ() {
        assert_ne!(Rng::stream(1, 1).next_u64(), Rng::stream(1, 2).next_u64());
        assert_eq!(Rng::stream(1, 1).next_u64(), Rng::stream(1, 1).next_u64());
    }
}
