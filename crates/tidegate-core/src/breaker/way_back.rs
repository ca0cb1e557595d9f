//! The way back of an open endpoint: probes and a hold, then one leased trial.
//!
//! Probes go out of band every 50, 100, 200 ms and then every `probe_cap`, each +-25 %, so that recovery needs no user's request. `hold`
//! damps what flaps and what is half dead, which probes cannot: nothing at a first trip; after a failed trial, or a trip within max(10 s,
//! 20 requests) of closing, `m += 1` and `hold = 0.25 s x 2^m`, up to 8 s; `m -= 1` per 10 s healthy. The classic breaker has no probes
//! and waits `cool_down x 2^m`. notes: breaker, sections 4 and 5.1.

use super::circuit::Look;
use super::settings::{Kind, Settings};
use crate::id::RequestKey;
use crate::ramp::{Pace, Ramp};
use crate::rng::Rng;
use crate::time::{Duration, Instant};

/// First time between two probes.
const FIRST: Duration = Duration::from_millis(50);
/// Unit of the hold, and its most doublings.
const HOLD: Duration = Duration::from_millis(250);
const MOST_DOUBLINGS: u32 = 5;
/// Doublings of the classic pause that are told apart.
const MOST_PAUSES: u32 = 16;
/// Spread of every wait.
const SPREAD: f64 = 0.25;
/// A trip this soon after closing, in time or in requests, is a relapse.
const RELAPSE: Duration = Duration::from_secs(10);
const RELAPSE_REQUESTS: u32 = 20;

/// Memory of how often it went wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    m: u32,
    closed_at: Option<Instant>,
    since_closed: u32,
}

impl Backoff {
    /// One that has gone wrong so often.
    pub(super) fn after(doublings: u32) -> Self {
        Self { m: doublings.min(MOST_PAUSES), closed_at: None, since_closed: 0 }
    }

    /// How often it went wrong.
    pub(super) fn doublings(&self) -> u32 {
        self.m
    }

    /// A request was sent.
    pub(super) fn on_dispatch(&mut self) {
        self.since_closed = self.since_closed.saturating_add(1);
    }

    /// Closed again.
    pub(super) fn on_close(&mut self, now: Instant) {
        (self.closed_at, self.since_closed) = (Some(now), 0);
    }

    /// Opens, `again`: from half-open. The time nobody goes there.
    pub(super) fn on_open(&mut self, now: Instant, settings: &Settings, again: bool, rng: &mut Rng) -> Duration {
        let classic = settings.kind == Kind::Classic;
        let healthy = self.closed_at.map_or(Duration::ZERO, |at| now.since(at));
        let relapse = self.closed_at.is_some() && (healthy < RELAPSE || self.since_closed < RELAPSE_REQUESTS);
        let (unit, most) = if classic { (settings.forgive_after, MOST_PAUSES) } else { (RELAPSE, MOST_DOUBLINGS) };
        if !again {
            let forgiven = healthy.as_nanos() / unit.as_nanos().max(1);
            self.m = self.m.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX));
        }
        if again || (relapse && !classic) {
            self.m = (self.m + 1).min(most);
        }
        self.closed_at = None;
        let wait = match classic {
            true => settings.cool_down.saturating_mul(1 << self.m).min(settings.max_cool_down),
            false if again || relapse => HOLD * (1 << self.m),
            false => Duration::ZERO,
        };
        rng.jitter(wait, SPREAD)
    }
}

/// Nobody goes there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// No trial before.
    pub(super) hold_until: Instant,
    /// The next probe; `None` where time alone decides.
    pub(super) probe_at: Option<Instant>,
    step: u32,
    /// Probes up to this number were sent before it opened.
    before: u32,
}

impl Open {
    /// For at least `hold`; `probes`: the number of the last probe so far, where probes decide.
    pub(super) fn new(now: Instant, hold: Duration, probes: Option<u32>, cap: Duration, rng: &mut Rng) -> Self {
        let hold_until = now + hold;
        let first = probes.map(|_| (now + rng.jitter(FIRST.min(cap), SPREAD)).max(hold_until));
        Self { hold_until, probe_at: first, step: 0, before: probes.unwrap_or(0) }
    }

    /// A probe was sent.
    pub(super) fn on_sent(&mut self, now: Instant, cap: Duration, rng: &mut Rng) {
        self.step += 1;
        let wait = (FIRST * (1 << self.step.min(10))).min(cap);
        self.probe_at = Some(now + rng.jitter(wait, SPREAD));
    }

    /// Whether probe `number` was sent since it opened.
    pub(super) fn is_own(&self, number: u32) -> bool {
        number > self.before
    }
}

/// A trial request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Trial {
    /// The next request is it.
    #[default]
    Wanted,
    /// It is out. A lease: one that hangs until then has failed.
    Out {
        /// The request.
        key: RequestKey,
        /// The end of its lease.
        until: Instant,
    },
    /// Enough have passed.
    Done,
}

/// Trial, then ramp.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HalfOpen {
    pub(super) trial: Trial,
    passed: u32,
    /// When the ramp began.
    pub(super) since: Instant,
    pub(super) ramp: Option<Ramp>,
}

impl HalfOpen {
    /// Whether `key` is the trial under way.
    pub(super) fn is_trial(&self, key: RequestKey) -> bool {
        matches!(self.trial, Trial::Out { key: k, .. } if k == key)
    }

    /// The trial was answered: the next one, or the ramp.
    pub(super) fn on_passed(&mut self, look: &Look<'_>, pace: Pace, median_s: Option<f64>, rng: &mut Rng) {
        self.passed += 1;
        if self.passed < look.settings.success_threshold {
            self.trial = Trial::Wanted;
            return;
        }
        self.trial = Trial::Done;
        self.since = look.now;
        self.ramp = Some(match look.settings.steps {
            true => Ramp::steps(look.now, look.steps, pace),
            false => Ramp::doubling(look.now, pace, median_s, rng.unit()),
        });
    }
}
