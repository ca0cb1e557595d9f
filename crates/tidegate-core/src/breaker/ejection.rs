//! Opening after consecutive errors, and one leased trial to come back.
//!
//! The plain rule of Envoy and HAProxy, with the two faults reported against it removed: exactly one trial is out at a time, held by a
//! request key so that a straggler from before the ejection can neither close nor reopen it; and a trial that ends without a verdict
//! (client left, 4xx, 429) frees its place at once instead of wedging the state. A trial is a lease: one that hangs longer than
//! `max_cool_down` lets the next one start, and an answer to either brings the endpoint back.

use crate::descriptor::Params;
use crate::id::RequestKey;
use crate::outcome::{Failure, Verdict};
use crate::time::{Duration, Instant};

/// When to open and how long to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EjectionConfig {
    pub(crate) consecutive_errors: u32,
    pub(crate) base: Duration,
    pub(crate) max: Duration,
    pub(crate) max_ejected: f64,
}

impl EjectionConfig {
    pub(crate) fn of(params: &Params) -> Self {
        let name = params.descriptor().name;
        let seconds = |n: &str, default| crate::time::duration_from_secs(params.seconds(n).unwrap_or(default));
        let base = seconds("cool_down", 1.0);
        Self {
            consecutive_errors: match name {
                "classic" => params.integer("consecutive_errors") as u32,
                "off" => 0,
                _ => 5,
            },
            base,
            max: seconds("max_cool_down", 30.0).max(base),
            max_ejected: params.float("max_ejected"),
        }
    }
}

/// The ejection state of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ejection {
    phase: Phase,
    failed_trials: u32,
}

/// Where an endpoint stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// In use, after so many errors in a row.
    In {
        /// Consecutive errors before the first byte; an answer that begins ends the row.
        errors: u32,
        /// Consecutive answers that broke off; only a whole one ends the row, else an engine that cuts every stream stays in.
        cuts: u32,
    },
    /// Ejected: nobody goes there before `until`, and then one trial.
    Out {
        /// The earliest next trial; while one is under way, the end of its lease.
        until: Instant,
        /// The trial under way.
        trial: Option<RequestKey>,
    },
}

impl Default for Phase {
    fn default() -> Self {
        Self::In { errors: 0, cuts: 0 }
    }
}

/// What an outcome did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// Out for this long.
    Ejected(Duration),
    /// In again.
    Returned,
}

impl Ejection {
    /// Whether the endpoint is out.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.phase, Phase::Out { .. })
    }

    /// When the next trial may start; `None` if in.
    pub(crate) fn trial_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Out { until, .. } => Some(until),
            Phase::In { .. } => None,
        }
    }

    /// A trial was dispatched as `key` at `now`.
    pub(crate) fn on_trial(&mut self, cfg: &EjectionConfig, now: Instant, key: RequestKey) {
        if let Phase::Out { until, trial } = &mut self.phase {
            (*until, *trial) = (now + cfg.max, Some(key));
        }
    }

    /// Other evidence says that the endpoint is up again: try at once.
    pub(crate) fn on_healthy(&mut self, now: Instant) {
        if let Phase::Out { until, .. } = &mut self.phase {
            *until = (*until).min(now);
        }
    }

    /// The first byte of a request came, of a trial or not. For a trial that settles it: a stream of minutes must not keep its
    /// endpoint out.
    pub(crate) fn on_first_byte(&mut self, is_trial: bool) -> Option<Change> {
        match &mut self.phase {
            Phase::In { errors, .. } => {
                *errors = 0;
                None
            }
            Phase::Out { .. } if is_trial => {
                self.phase = Phase::default();
                Some(Change::Returned)
            }
            Phase::Out { .. } => None,
        }
    }

    /// Request `key` ended. `may_eject`: the pool can do without this endpoint.
    pub(crate) fn on_end(
        &mut self,
        cfg: &EjectionConfig,
        now: Instant,
        key: RequestKey,
        verdict: Verdict,
        may_eject: bool,
    ) -> Option<Change> {
        match (&mut self.phase, verdict) {
            (Phase::In { errors, cuts }, Verdict::Failed(failure)) => {
                let row = if matches!(failure, Failure::Truncated | Failure::Stalled) { cuts } else { errors };
                *row = row.saturating_add(1);
                let due = cfg.consecutive_errors > 0 && *row >= cfg.consecutive_errors;
                (due && may_eject).then(|| self.eject(cfg, now))
            }
            (Phase::In { errors, cuts }, Verdict::Success | Verdict::ClientError) => {
                (*errors, *cuts) = (0, 0);
                if matches!(verdict, Verdict::Success) {
                    self.failed_trials = self.failed_trials.saturating_sub(1);
                }
                None
            }
            // A success has had its first byte, which settled the trial already.
            (Phase::Out { until, trial }, _) if *trial == Some(key) => {
                (*until, *trial) = (now, None);
                matches!(verdict, Verdict::Failed(_)).then(|| {
                    self.failed_trials = (self.failed_trials + 1).min(16);
                    self.eject(cfg, now)
                })
            }
            _ => None,
        }
    }

    fn eject(&mut self, cfg: &EjectionConfig, now: Instant) -> Change {
        let wait = (cfg.base * 2u32.saturating_pow(self.failed_trials)).min(cfg.max);
        self.phase = Phase::Out { until: now + wait, trial: None };
        Change::Ejected(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: Verdict = Verdict::Failed(Failure::Connect);
    fn key(n: u32) -> RequestKey {
        RequestKey { slot: n, generation: 0 }
    }
    fn at(s: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(s)
    }
    fn ejected() -> (Ejection, EjectionConfig) {
        let (mut e, cfg) =
            (Ejection::default(), EjectionConfig::of(&Params::defaults(&super::super::classic::DESCRIPTOR)));
        let changes: std::vec::Vec<_> = (0..5).map(|n| e.on_end(&cfg, at(0), key(n), FAILED, true)).collect();
        assert_eq!(changes[3..], [None, Some(Change::Ejected(cfg.base))]);
        (e, cfg)
    }

    #[test]
    fn client_errors_never_eject() {
        // gateways.md 25: requests over the context length opened the breaker.
        let (mut e, cfg) =
            (Ejection::default(), EjectionConfig::of(&Params::defaults(&super::super::classic::DESCRIPTOR)));
        for n in 0..100 {
            assert_eq!(e.on_end(&cfg, at(0), key(n), Verdict::ClientError, true), None);
        }
        assert!(!e.is_out());
    }

    #[test]
    fn a_straggler_from_before_does_not_close_it() {
        // gateways.md 61: old streams that end well during half-open counted as recovery.
        let (mut e, cfg) = ejected();
        e.on_trial(&cfg, at(2), key(50));
        assert_eq!((e.on_first_byte(false), e.on_end(&cfg, at(2), key(4), Verdict::Success, true)), (None, None));
        assert!(e.is_out());
        assert_eq!(e.on_first_byte(true), Some(Change::Returned));
    }

    #[test]
    fn a_trial_that_settles_nothing_frees_its_place() {
        // governance.md 14 and 15: a probe answered 404, or one that never ended, wedged the breaker for days.
        let (mut e, cfg) = ejected();
        for (n, verdict) in
            [Verdict::Cancelled, Verdict::ClientError, Verdict::Throttled { retry_after: None }].into_iter().enumerate()
        {
            e.on_trial(&cfg, at(2), key(60 + n as u32));
            assert_eq!(e.trial_at(), Some(at(32)), "one trial at a time");
            assert_eq!(e.on_end(&cfg, at(2), key(60 + n as u32), verdict, true), None);
            assert_eq!(e.trial_at(), Some(at(2)));
        }
    }

    #[test]
    fn a_trial_that_hangs_does_not_wedge_it() {
        // gateways.md 33: a probe that never settles kept the breaker half-open for six days.
        let (mut e, cfg) = ejected();
        e.on_trial(&cfg, at(2), key(70));
        assert_eq!(e.trial_at(), Some(at(32)));
        e.on_trial(&cfg, at(40), key(71));
        assert_eq!(e.on_end(&cfg, at(41), key(70), FAILED, true), None, "the lease of the first is over");
        assert_eq!(e.on_first_byte(true), Some(Change::Returned), "whichever trial is answered");
    }

    #[test]
    fn an_engine_that_cuts_every_stream_is_ejected() {
        let (mut e, cfg) =
            (Ejection::default(), EjectionConfig::of(&Params::defaults(&super::super::classic::DESCRIPTOR)));
        for n in 0..5 {
            assert!(!e.is_out());
            e.on_first_byte(false);
            e.on_end(&cfg, at(0), key(n), Verdict::Failed(Failure::Truncated), true);
        }
        assert!(e.is_out());
    }

    #[test]
    fn failed_trials_wait_longer_up_to_the_maximum() {
        let (mut e, cfg) = ejected();
        let mut waits = std::vec::Vec::new();
        for n in 0..8 {
            e.on_trial(&cfg, at(2), key(n));
            if let Some(Change::Ejected(w)) = e.on_end(&cfg, at(2), key(n), FAILED, true) {
                waits.push(w.as_secs());
            }
        }
        assert_eq!(waits, [2, 4, 8, 16, 30, 30, 30, 30]);
    }
}
