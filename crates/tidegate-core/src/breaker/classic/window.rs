//! Counts over the last stretch of time, in ten buckets.
//!
//! Exact counts, not a decayed average: "an average weighted by inter-arrival time can hide a total outage in a tight burst" (Linkerd).
//! The window slides by the clock and never by an error, else sparse errors add up (Shopify semian, issue 24). O(1) per outcome.

use crate::time::{Duration, Instant};

const BUCKETS: usize = 10;

/// Requests, failures and slow answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) requests: u32,
    pub(super) failed: u32,
    pub(super) slow: u32,
}

/// The window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    buckets: [Tally; BUCKETS],
    sum: Tally,
    /// Number of the newest bucket since the origin.
    newest: u64,
}

impl Window {
    /// Counts one outcome; the window is `length` long.
    pub(super) fn on_outcome(&mut self, now: Instant, length: Duration, failed: bool, slow: bool) {
        self.slide(now, length);
        for t in [&mut self.buckets[(self.newest % BUCKETS as u64) as usize], &mut self.sum] {
            t.requests += 1;
            t.failed += u32::from(failed);
            t.slow += u32::from(slow);
        }
    }

    /// The counts as of the last outcome.
    pub(super) fn sum(&self) -> Tally {
        self.sum
    }

    fn slide(&mut self, now: Instant, length: Duration) {
        let step = (length.as_nanos() as u64 / BUCKETS as u64).max(1);
        let at = now.as_nanos() / step;
        if at >= self.newest + BUCKETS as u64 {
            *self = Self { newest: at, ..Self::default() };
        }
        // A clock that steps back counts into the newest bucket.
        while self.newest < at {
            self.newest += 1;
            let gone = core::mem::take(&mut self.buckets[(self.newest % BUCKETS as u64) as usize]);
            self.sum.requests -= gone.requests;
            self.sum.failed -= gone.failed;
            self.sum.slow -= gone.slow;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_window_is_gone_at_once_also_after_a_pause() {
        let (mut w, length) = (Window::default(), Duration::from_secs(10));
        let at = |s: u64| Instant::ORIGIN + Duration::from_secs(s);
        (0..5).for_each(|_| w.on_outcome(at(0), length, true, false));
        w.on_outcome(at(9), length, false, true);
        assert_eq!(w.sum(), Tally { requests: 6, failed: 5, slow: 1 });
        w.on_outcome(at(10), length, false, false);
        assert_eq!(w.sum(), Tally { requests: 2, failed: 0, slow: 1 });
        w.on_outcome(at(86_400), length, true, false);
        w.on_outcome(at(3), length, true, false);
        assert_eq!(w.sum(), Tally { requests: 2, failed: 2, slow: 0 }, "a clock that steps back loses nothing");
    }
}
