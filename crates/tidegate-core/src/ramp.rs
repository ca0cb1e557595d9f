//! A new or returned endpoint gets its share back by steps of time, never by a switch.
//!
//! One mechanism for every policy: while the share `a` is below 1, the endpoint may be picked only when it holds a token, and each
//! admission of the pool gives it `1.05 a w / sum(w)` of one. A cap on arrivals works for rules that ignore weights, and unlike a
//! lowered weight it also holds back rules that chase the least loaded endpoint (notes: breaker, section 5.3).
//!
//! New endpoints follow configured steps. Returned ones start at 1/16 and double every `max(20 ms, mean time to first byte)`: by
//! time, not per success, so that many replicas need not each wait for their own (notes: breaker, section 5.2).

use crate::pool::config::WarmUpStep;
use crate::time::{Duration, Instant, duration_from_secs};

/// Tokens a held-back endpoint can save up.
const DEPTH: f64 = 2.0;
/// First share of a returned endpoint, as a number of halvings.
const HALVINGS: u32 = 4;

/// How an endpoint is being ramped up.
#[derive(Clone, Copy, Debug)]
pub enum Ramp {
    /// New: the pool's warm-up steps since `since`.
    WarmUp {
        /// First healthy check, or the moment of joining.
        since: Instant,
        /// Tokens held.
        tokens: f64,
    },
    /// Returned after an ejection or failed checks.
    Recovery {
        /// The moment of return.
        since: Instant,
        /// Time per doubling.
        unit: Duration,
        /// Tokens held.
        tokens: f64,
    },
}

impl Ramp {
    /// A ramp for an endpoint that returned at `now` and used to answer its first byte within `first_byte_s` seconds. `start` is
    /// uniform in 0..1, so that replicas do not send their first request together.
    pub fn recovery(now: Instant, first_byte_s: Option<f64>, start: f64) -> Self {
        let unit = duration_from_secs(first_byte_s.unwrap_or(0.1).clamp(0.02, 5.0));
        Self::Recovery { since: now, unit, tokens: start }
    }

    /// The share at `now`, up to 1.
    pub fn share_at(&self, now: Instant, steps: &[WarmUpStep]) -> f64 {
        match self {
            Self::WarmUp { since, .. } => {
                let age = now.since(*since);
                steps.iter().rev().find(|s| s.at <= age).map_or(0.0, |s| s.share)
            }
            Self::Recovery { since, unit, .. } => {
                let doublings = now.secs_since(*since) / unit.as_secs_f64();
                libm::exp2(libm::floor(doublings) - f64::from(HALVINGS)).min(1.0)
            }
        }
    }

    /// When the share next changes by time alone; `None` once it is 1.
    pub fn next_change_at(&self, now: Instant, steps: &[WarmUpStep]) -> Option<Instant> {
        match self {
            Self::WarmUp { since, .. } => steps.iter().map(|s| *since + s.at).find(|&t| t > now),
            Self::Recovery { since, unit, .. } => (1..=HALVINGS).map(|k| *since + *unit * k).find(|&t| t > now),
        }
    }

    /// The pool admitted a request: `fair` is this endpoint's full share of the traffic, 0..1.
    pub fn on_admission(&mut self, share: f64, fair: f64) {
        let tokens = self.tokens_mut();
        *tokens = (*tokens + 1.05 * share * fair).min(DEPTH);
    }

    /// Whether a request may go there now.
    pub fn has_token(&self) -> bool {
        match self {
            Self::WarmUp { tokens, .. } | Self::Recovery { tokens, .. } => *tokens >= 1.0,
        }
    }

    /// Whether the endpoint was in use before.
    pub fn is_recovery(&self) -> bool {
        matches!(self, Self::Recovery { .. })
    }

    /// A request went there.
    pub fn on_dispatch(&mut self) {
        let tokens = self.tokens_mut();
        *tokens = (*tokens - 1.0).max(0.0);
    }

    fn tokens_mut(&mut self) -> &mut f64 {
        match self {
            Self::WarmUp { tokens, .. } | Self::Recovery { tokens, .. } => tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_steps() {
        let steps = WarmUpStep::defaults();
        let ramp = Ramp::WarmUp { since: Instant::from_secs_f64(10.0), tokens: 0.0 };
        let share = |s: f64| ramp.share_at(Instant::from_secs_f64(s), &steps);
        assert_eq!([share(10.0), share(39.0), share(40.0), share(70.0)], [0.25, 0.25, 0.5, 1.0]);
        assert_eq!(ramp.next_change_at(Instant::from_secs_f64(41.0), &steps), Some(Instant::from_secs_f64(70.0)));
        assert_eq!(ramp.next_change_at(Instant::from_secs_f64(70.0), &steps), None);
    }

    #[test]
    fn recovery_doubles_with_time() {
        let ramp = Ramp::recovery(Instant::ORIGIN, Some(0.1), 0.0);
        let share = |s: f64| ramp.share_at(Instant::from_secs_f64(s), &[]);
        assert_eq!([share(0.0), share(0.15), share(0.35), share(0.41)], [1.0 / 16.0, 0.125, 0.5, 1.0]);
    }
}
