//! How long requests take, by kind (the classes of the incident models).

use tidegate_core::rng::Rng;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::study) enum Shape {
    /// 20 ms, log-normal with sigma 0.5.
    Fast,
    /// 200 ms.
    Mid,
    /// First byte after 0.5 s (sigma 0.6), then 4 to 12 s of tokens.
    Stream,
    /// One answer after 10 to 60 s.
    Long,
    /// One answer after 5 to 30 s.
    Slow,
}

impl Shape {
    /// Time to first byte and to the end, seconds.
    pub(super) fn draw(self, rng: &mut Rng) -> (f64, f64) {
        let log_normal = |rng: &mut Rng, median: f64, sigma: f64| median * libm::exp(rng.normal(0.0, sigma));
        match self {
            Self::Fast => {
                let s = log_normal(rng, 0.02, 0.5);
                (s, s)
            }
            Self::Mid => {
                let s = log_normal(rng, 0.2, 0.5);
                (s, s)
            }
            Self::Stream => {
                let s = log_normal(rng, 0.5, 0.6);
                (s, s + rng.uniform(4.0, 12.0))
            }
            Self::Long => {
                let s = rng.uniform(10.0, 60.0);
                (s, s)
            }
            Self::Slow => {
                let s = rng.uniform(5.0, 30.0);
                (s, s)
            }
        }
    }

    /// Mean time in service, seconds.
    pub(in crate::study) fn mean_s(self) -> f64 {
        match self {
            Self::Fast => 0.02 * libm::exp(0.125),
            Self::Mid => 0.2 * libm::exp(0.125),
            Self::Stream => 0.5 * libm::exp(0.18) + 8.0,
            Self::Long => 35.0,
            Self::Slow => 17.5,
        }
    }

    /// Longest time to first byte, seconds.
    pub(in crate::study) fn timeout_s(self) -> f64 {
        match self {
            Self::Fast | Self::Mid => 10.0,
            Self::Stream => 30.0,
            Self::Long | Self::Slow => 120.0,
        }
    }
}
