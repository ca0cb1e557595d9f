//! Learned seconds between tokens of a stream, loaded and unloaded (notes: adaptive, section 3).

use crate::time::Instant;

/// Weight of the newest sample.
const WEIGHT: f64 = 0.3;
/// Part of the gap by which the unloaded pace relaxes upward per sample.
const RELAX: f64 = 0.002;
/// Part of a tick during which own streams must have run for it to count.
const COVERED: f64 = 0.9;

/// The pace of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    tau: f64,
    tau0: Option<f64>,
    n: f64,
    updated: Instant,
}

impl Pace {
    /// Its numbers, and seconds of the last update; 0 stands for what is not known.
    pub(super) fn parts(&self) -> [f64; 4] {
        [self.tau, self.tau0.unwrap_or(0.0), self.n, self.updated.as_secs_f64()]
    }

    /// One with these numbers.
    pub(super) fn of([tau, tau0, n, updated]: [f64; 4]) -> Self {
        Self { tau, tau0: (tau0 > 0.0).then_some(tau0), n, updated: Instant::from_secs_f64(updated) }
    }

    /// A tick of `elapsed_s` with `tokens` of own streams, which ran for `stream_s` stream-seconds while `n` requests were there.
    /// A tick without any token is a stall and counts as its whole length, once tokens were ever seen: other answers have none. False if the
    /// tick teaches nothing: streams did not run throughout.
    pub(super) fn on_progress(&mut self, now: Instant, tokens: u64, stream_s: f64, elapsed_s: f64, n: f64) -> bool {
        let has_tokens = tokens > 0 || self.tau0.is_some();
        if elapsed_s <= 0.0 || stream_s < COVERED * elapsed_s || !has_tokens {
            return false;
        }
        let sample = if tokens == 0 { elapsed_s } else { stream_s / tokens as f64 };
        match &mut self.tau0 {
            None => (self.tau, self.tau0, self.n) = (sample, Some(sample), n),
            Some(tau0) => {
                self.tau += WEIGHT * (sample - self.tau);
                self.n += WEIGHT * (n - self.n);
                *tau0 = if sample < *tau0 { sample } else { *tau0 + RELAX * (sample - *tau0) };
            }
        }
        self.updated = now;
        true
    }

    /// Pace and unloaded pace as of the last sample.
    pub(super) fn last(&self) -> (f64, f64) {
        (self.tau, self.tau0.unwrap_or(0.0))
    }

    /// The unloaded pace in seconds per token.
    pub(super) fn unloaded(&self) -> Option<f64> {
        self.tau0.filter(|&t| t > 0.0)
    }

    /// Pace with one more than `n` requests at `now`, and unloaded pace. What exceeds the unloaded pace fades while unobserved.
    pub(super) fn at(&self, now: Instant, memory_s: f64, n: f64) -> Option<(f64, f64)> {
        let tau0 = self.tau0?;
        let excess = (self.tau - tau0).max(0.0);
        if excess == 0.0 {
            return Some((tau0, tau0));
        }
        let kept = libm::exp(-now.secs_since(self.updated) / memory_s);
        Some((tau0 + excess * kept * (n + 1.0) / (self.n + 1.0), tau0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_scales_with_the_batch_and_stalls_count() {
        let at = Instant::from_secs_f64;
        let mut p = Pace::default();
        assert!(!p.on_progress(at(0.5), 3, 0.2, 0.5, 1.0), "streams ran only part of the tick");
        assert!(!p.on_progress(at(0.5), 0, 0.5, 0.5, 1.0), "what never had a token is no stream of them");
        assert!(p.on_progress(at(1.0), 50, 0.5, 0.5, 1.0));
        assert_eq!(p.at(at(1.0), 120.0, 10.0), Some((0.01, 0.01)));
        assert!(p.on_progress(at(1.5), 0, 5.0, 0.5, 10.0));
        let (tau, tau0) = p.last();
        assert!((tau - (0.01 + 0.3 * 0.49)).abs() < 1e-9 && tau0 < 0.012);
        let (few, many) = (p.at(at(1.5), 120.0, 0.0), p.at(at(1.5), 120.0, 20.0));
        assert!(many > few);
    }
}
