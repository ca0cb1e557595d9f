//! A time in which requests come faster.
//!
//! Time itself is stretched: within the burst a gap that was drawn lasts `1/factor` as long. For exponential gaps that is exactly a Poisson
//! process whose rate is `factor` times as high, also for a gap that begins before the burst and ends within.

use tidegate_core::time::{Duration, duration_from_secs};

/// From `at` on, for `length`, `factor` times as many requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// When it begins, after the start.
    pub at: Duration,
    /// How long it lasts.
    pub length: Duration,
    /// How many times as many, `> 0`.
    pub factor: f64,
}

impl Burst {
    /// The gap after `last` (since the start) where one of `gap` was drawn.
    pub fn gap(&self, last: Duration, gap: Duration) -> Duration {
        let (last_s, at_s, ends_s) = (last.as_secs_f64(), self.at.as_secs_f64(), (self.at + self.length).as_secs_f64());
        let (mut now_s, mut left_s) = (last_s, gap.as_secs_f64());
        for (until_s, factor) in [(at_s, 1.0), (ends_s, self.factor)] {
            let room_s = (until_s - now_s).max(0.0) * factor;
            if left_s <= room_s {
                return duration_from_secs(now_s + left_s / factor - last_s);
            }
            left_s -= room_s;
            now_s = now_s.max(until_s);
        }
        duration_from_secs(now_s + left_s - last_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_stretched_only_within_the_burst() {
        let s = Duration::from_secs;
        let burst = Burst { at: s(10), length: s(10), factor: 4.0 };
        for (last, gap, expected) in [
            (s(0), s(5), s(5)),
            (s(8), s(6), s(3)),
            (s(12), s(4), s(1)),
            (s(18), s(10), s(4)),
            (s(9), s(50), s(20)),
            (s(20), s(3), s(3)),
        ] {
            let found = burst.gap(last, gap);
            assert!(found.abs_diff(expected) < Duration::from_nanos(10), "{last:?} {gap:?}: {found:?}");
        }
    }
}
