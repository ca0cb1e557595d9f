//! Time as an argument.
//!
//! Core never reads a clock. An [`Instant`] is nanoseconds since an origin the driver chose: process start for the live proxy, zero
//! for the simulator, the first record for replay. All arithmetic saturates, so a clock that steps back yields a zero duration
//! instead of a panic or a credit.

use core::ops::{Add, Sub};
pub use core::time::Duration;

/// A point in time, in nanoseconds since the driver's origin (range: 584 years).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The driver's origin.
    pub const ORIGIN: Self = Self(0);
    /// Later than every instant a driver reaches.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// An instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// An instant `secs` seconds after the origin; negative and NaN count as zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e9) as u64)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// Time passed since `earlier`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds passed since `earlier`, zero if `earlier` is later.
    pub fn secs_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 * 1e-9
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A duration of `secs` seconds; negative and NaN count as zero, too large as the largest.
pub fn duration_from_secs(secs: f64) -> Duration {
    Duration::from_nanos((secs * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_steps_back_yields_zero() {
        let (early, late) = (Instant::from_nanos(5), Instant::from_nanos(11));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late.since(early), Duration::from_nanos(6));
        assert_eq!(early - Duration::from_secs(1), Instant::ORIGIN);
        assert_eq!(Instant::FAR_FUTURE + Duration::from_secs(1), Instant::FAR_FUTURE);
    }

    #[test]
    fn odd_seconds_are_clamped() {
        assert_eq!(duration_from_secs(f64::NAN), Duration::ZERO);
        assert_eq!(duration_from_secs(-1.0), Duration::ZERO);
        assert_eq!(duration_from_secs(1.5), Duration::from_millis(1500));
    }
}
