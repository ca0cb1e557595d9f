//! `adaptive`: sequential tests against the endpoint's own past and its peers.
//!
//! Three sums of evidence run beside each other for every endpoint: [`hard`](hard) asks whether it answers almost nobody and opens; a soft
//! one asks whether it fails five times as often as expected and a slow one whether first bytes come later than twice the peers' 95th
//! percentile, and both only lower its weight; [`stall`](stall) sees requests that never end. What they may count is decided once, here:
//! a failure of a request that was sent before a success of a much later one is old news, the third failure of one connection within
//! 50 ms is more of the same, a request that fails at two endpoints fails by itself. notes: breaker, sections 2 and 3. O(1) per event.

mod baseline;
mod causes;
mod cusum;
mod hard;
mod histogram;
mod slow;
mod stall;
mod suspicion;
mod waiting;

use super::circuit::{Found, Look};
use super::params::{AFTER_RECOVERY, MAX_EJECTED};
use super::peers::Contribution;
use crate::descriptor::{Descriptor, Param, ParamKind, Value};
use crate::id::RequestKey;
use crate::time::{Duration, Instant, duration_from_secs};
use alloc::vec::Vec;
use baseline::Baseline;
use causes::Clumps;
use cusum::{Cusum, fade};
use hard::{Failed, Hard, Trip};
use histogram::Histogram;
use slow::Slow;
use stall::{Stall, Stalled};
use suspicion::Suspicion;
use waiting::Waiting;

/// Threshold of the tests that lower a weight, nats: `ln 1e3`.
const H_SOFT: f64 = 6.9;
/// Shortest time between the first failure and a lower weight, seconds.
const SOFT_AFTER_S: f64 = 0.1;
/// Failures that can be taken back.
const COUNTED: usize = 8;
/// Failures older than this are not taken back: the retry would have come.
const TAKE_BACK_WITHIN: Duration = Duration::from_secs(120);

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "adaptive",
    summary: "sequential tests against the endpoint's own past and its peers; cuts its weight first, then opens; sees hung requests",
    source: "CUSUM (Page 1954) with de-duplication by cause; notes: breaker",
    example: "breaker: { name: adaptive, stall_after: 2s, probe_cap: 250ms }",
    warms_up: false,
    chases_load: false,
    params: &[
        Param {
            name: "stall_after",
            summary: "time without any progress, with requests waiting, that opens; set it above the engines' longest prefill pause",
            unit: "s",
            kind: ParamKind::Duration { min: 0.1, max: 3600.0, can_be_off: false },
            default: Value::Duration(2.0),
            example: "2s",
        },
        MAX_EJECTED,
        Param {
            name: "probe_cap",
            summary: "longest time between two out-of-band probes of an open endpoint; recovery takes about this long",
            unit: "s",
            kind: ParamKind::Duration { min: 0.05, max: 60.0, can_be_off: false },
            default: Value::Duration(0.25),
            example: "250ms",
        },
        Param {
            name: "probe_timeout",
            summary: "a probe that takes longer has failed",
            unit: "s",
            kind: ParamKind::Duration { min: 0.01, max: 60.0, can_be_off: false },
            default: Value::Duration(1.0),
            example: "1s",
        },
        Param {
            name: "health_path",
            summary: "what a probe asks for after it connected; the path of the pool's HTTP checks where not set, connect only without one",
            unit: "",
            kind: ParamKind::Path,
            default: Value::Off,
            example: "/health",
        },
        AFTER_RECOVERY,
    ],
};

/// Why the weight is lowered: bits.
mod reason {
    pub(super) const FAILURES: u8 = 1;
    pub(super) const SLOW: u8 = 2;
    pub(super) const STALL: u8 = 4;
    pub(super) const GUARD: u8 = 8;
}

/// A failure that counted, so that it can be taken back.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    at: Instant,
    tenant: u64,
    hard: f64,
    soft: f64,
    valid: bool,
}

/// A request as the tests see it at its first byte or end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// When it was sent.
    pub(crate) sent_at: Instant,
    /// Its upstream connection.
    pub(crate) connection: u64,
    /// Its tenant.
    pub(crate) tenant: u64,
    /// Its turn among those that wait.
    pub(crate) turn: u64,
}

/// The tests of one endpoint for one route class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adaptive {
    baseline: Baseline,
    histogram: Histogram,
    firsts: Firsts,
    hard: Hard,
    soft: Cusum,
    slow: Slow,
    suspicion: Suspicion,
    waiting: Waiting,
    stall: Stall,
    clumps: Clumps,
    /// When the success that was sent last was sent.
    newest_good: Option<Instant>,
    counted: [Counted; COUNTED],
    next_counted: u8,
    reasons: u8,
    /// Requests sent before have been judged by the stall test.
    judged_before: Instant,
}

/// The last eight times to first byte.
#[derive(Clone, Copy, Debug, Default)]
struct Firsts {
    ring: [f32; 8],
    seen: u32,
}

impl Firsts {
    fn on_sample(&mut self, seconds: f64) {
        self.ring[self.seen as usize % 8] = seconds as f32;
        self.seen = self.seen.wrapping_add(1).max(1);
    }

    /// Their mean, or the last one where it is longer.
    fn lately(&self) -> Option<f64> {
        let held = self.seen.min(8);
        let last = f64::from(self.ring[self.seen.wrapping_sub(1) as usize % 8]);
        (held > 0).then(|| (self.ring.iter().map(|&s| f64::from(s)).sum::<f64>() / f64::from(held)).max(last))
    }
}

impl Adaptive {
    /// What the others are told of this endpoint.
    pub(super) fn contribution(&self, now: Instant) -> Contribution {
        // Who waits for it now tells as much of its speed as who was answered.
        let gap = (self.waiting.len() > 0).then(|| self.stall.gap_s(now));
        Contribution {
            failed: self.baseline.failed.shrunk_share_at(now),
            late: self.baseline.late.shrunk_share_at(now),
            p95_s: self.histogram.p95_s(),
            now_s: self.firsts.lately().map(|s| s.max(gap.unwrap_or(0.0))),
        }
    }

    /// Median time to first byte in seconds; `None` below twenty samples.
    pub(super) fn median_s(&self) -> Option<f64> {
        self.histogram.median_s()
    }

    /// Whether the weight is lowered, and the word for why.
    pub(super) fn reduced(&self) -> Option<&'static str> {
        let words = [
            (reason::FAILURES, "failures"),
            (reason::SLOW, "slow"),
            (reason::STALL, "no_progress"),
            (reason::GUARD, "max_ejected"),
        ];
        words.into_iter().find(|(bit, _)| self.reasons & bit != 0).map(|(_, word)| word)
    }

    /// A request was sent. Its turn, and what the stall test says.
    pub(super) fn on_dispatch(&mut self, look: &Look<'_>, key: RequestKey, tenant: u64) -> (u64, Found) {
        if self.waiting.len() == 0 && self.stall.streams == 0 {
            self.stall.on_idle_ends(look.now);
        }
        let turn = self.waiting.on_dispatch(look.now, key);
        self.hard.on_dispatch(tenant);
        self.watch_late(look);
        (turn, self.judge_stall(look))
    }

    /// What the stall test says now.
    pub(super) fn judge_stall(&mut self, look: &Look<'_>) -> Found {
        let stalled = self.stall.judge(look, &self.waiting, &self.histogram, self.firsts.lately());
        match stalled {
            Stalled::No => {}
            Stalled::Soft if look.closed => self.reasons |= reason::STALL,
            Stalled::Soft => {}
            Stalled::Hard => {
                self.judged_before = look.now;
                return Found::Open("stall");
            }
        }
        Found::Nothing
    }

    /// An answer began well, `took_s` seconds after it was sent.
    pub(super) fn on_first_byte(&mut self, look: &Look<'_>, seen: &Seen, took_s: f64) {
        let now = look.now;
        self.watch_late(look);
        self.on_progress(now);
        if let Some(late) = self.waiting.on_answer(seen.turn) {
            self.stall.streams += 1;
            if look.current && !late {
                self.slow.on_time(now);
                self.baseline.late.on_outcome(now, false);
            }
        }
        if !look.current {
            return;
        }
        self.histogram.on_sample(took_s);
        self.firsts.on_sample(took_s);
        if look.full {
            self.slow.on_usual(self.histogram.p95_s());
        }
        self.newest_good = self.newest_good.max(Some(seen.sent_at));
        self.baseline.on_outcome(now, false, look.full);
        let counts = look.closed && self.hard.on_success(now, seen.sent_at, self.baseline.own());
        if counts && self.soft.at(now) > 0.0 {
            let expected = self.baseline.expected(look.peers.failed);
            let suspected = (5.0 * expected).clamp(0.15, 0.5);
            self.soft.add(now, libm::log((1.0 - suspected) / (1.0 - expected)), H_SOFT + 4.0);
        }
        self.settle_reasons(now);
    }

    /// A request failed; `began`: after its first byte.
    pub(super) fn on_failure(&mut self, look: &Look<'_>, seen: &Seen, timed_out: bool) -> Found {
        // Whoever hung when the stall test spoke is no news when its time is up.
        if !look.current || (timed_out && seen.sent_at < self.judged_before) || self.is_old_news(seen.sent_at) {
            return Found::Nothing;
        }
        self.baseline.on_outcome(look.now, true, look.full);
        if !look.closed || self.clumps.is_more_of_one(look.now, seen.connection) {
            return Found::Nothing;
        }
        let failed = Failed { sent_at: seen.sent_at, connection: seen.connection, tenant: seen.tenant, probe: false };
        self.count(look, &failed)
    }

    /// Takes a failure into the sums, and asks whether to trip.
    fn count(&mut self, look: &Look<'_>, failed: &Failed) -> Found {
        let now = look.now;
        let expected = self.baseline.expected(look.peers.failed);
        if let Some(hard) = self.hard.on_failure(now, failed, expected) {
            let suspected = (5.0 * expected).clamp(0.15, 0.5);
            let soft = libm::log(suspected / expected);
            self.soft.add(now, soft, H_SOFT + 4.0);
            let counted = Counted { at: now, tenant: failed.tenant, hard, soft, valid: true };
            self.counted[usize::from(self.next_counted)] = counted;
            self.next_counted = (self.next_counted + 1) % COUNTED as u8;
        }
        if self.suspicion.next_at().is_none() {
            self.suspicion.begin(now);
        }
        if self.soft.at(now) >= H_SOFT && self.soft.age_s(now) >= SOFT_AFTER_S {
            self.reasons |= reason::FAILURES;
        }
        let (probed, share) = (self.suspicion.corroborates(), self.baseline.failed.share());
        let median_s = self.histogram.median_s().unwrap_or(0.0);
        match self.hard.trips(now, probed, share, &look.peers, median_s) {
            Trip::No => Found::Nothing,
            Trip::Yes => Found::Open("failures"),
            Trip::PoolFails => Found::PoolFails,
        }
    }

    /// A request dispatched much later has succeeded already: the late time-outs of a pulse.
    fn is_old_news(&self, sent_at: Instant) -> bool {
        let later = (4.0 * self.histogram.median_s().unwrap_or(0.0)).max(1.0);
        self.newest_good.is_some_and(|good| good > sent_at + duration_from_secs(later))
    }

    /// A request that waited ended; `began`: its first byte had come.
    pub(super) fn on_end(&mut self, look: &Look<'_>, seen: &Seen, began: bool, progress: bool) {
        if began {
            self.stall.streams = self.stall.streams.saturating_sub(1);
        } else {
            self.watch_late(look);
            let _ = self.waiting.on_answer(seen.turn);
        }
        if progress {
            self.on_progress(look.now);
        }
    }

    /// Tokens came.
    pub(super) fn on_tokens(&mut self, now: Instant) {
        if self.stall.streams > 0 {
            self.stall.on_tokens(now, self.baseline.late.shrunk_share_at(now));
            self.reasons &= !reason::STALL;
        }
    }

    fn on_progress(&mut self, now: Instant) {
        self.stall.on_progress(now, self.baseline.late.shrunk_share_at(now));
        self.reasons &= !reason::STALL;
    }

    /// The request failed elsewhere as well: it is the request. Takes its failure here back.
    pub(super) fn take_back(&mut self, now: Instant, tenant: u64) {
        let same = |c: &&mut Counted| c.valid && c.tenant == tenant && now.since(c.at) < TAKE_BACK_WITHIN;
        let Some(counted) = self.counted.iter_mut().filter(same).max_by_key(|c| c.at) else { return };
        counted.valid = false;
        let left = fade(now.secs_since(counted.at));
        let (hard, soft) = (counted.hard * left, counted.soft * left);
        self.hard.take_back(now, hard);
        self.soft.add(now, -soft, H_SOFT + 4.0);
        self.baseline.failed.take_back(now);
        self.settle_reasons(now);
    }

    /// Counts whoever has become late.
    fn watch_late(&mut self, look: &Look<'_>) {
        let Some(oldest) = self.waiting.oldest() else { return };
        let after = self.slow.late_after_s(look.peers.p95_s, self.histogram.p95_s(), look.peers.alone);
        let Some(before) = after.map(|s| look.now - duration_from_secs(s)).filter(|&t| oldest < t) else { return };
        let late = self.waiting.pass(before);
        if !look.closed {
            return;
        }
        for _ in 0..late {
            self.baseline.late.on_outcome(look.now, true);
            if self.slow.on_late(look.now, look.peers.late, self.baseline.late.share()) {
                self.reasons |= reason::SLOW;
            }
        }
    }

    /// Lets go what is over.
    pub(super) fn settle_reasons(&mut self, now: Instant) {
        self.hard.end_if_over(now);
        if !self.hard.is_suspicious() && self.suspicion.next_at().is_some() {
            self.suspicion.end();
        }
        if self.reasons == 0 {
            return;
        }
        let over = |bit: u8, sum: f64| if sum == 0.0 { bit } else { 0 };
        self.reasons &= !(over(reason::FAILURES, self.soft.at(now))
            | over(reason::SLOW, self.slow.at(now))
            | over(reason::GUARD, self.hard.at(now)));
    }

    /// When the stall test wants to look again: once it has spoken softly, and while the endpoint ramps up, as what bounds the requests in
    /// flight there also keeps the next one away.
    pub(super) fn stall_at(&self, now: Instant, stall_after_s: f64, ramps: bool) -> Option<Instant> {
        let asks = self.reasons & reason::STALL != 0 || ramps;
        (asks && self.waiting.len() > 0).then(|| self.stall.due_at(now, stall_after_s))
    }

    /// When the next probe of a suspicion is due.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        self.suspicion.next_at()
    }

    /// A probe of a suspicion was sent.
    pub(super) fn on_probe_sent(&mut self, now: Instant, number: u32, controlled: bool, cap: Option<Duration>) {
        self.suspicion.on_sent(now, number, controlled, cap);
    }

    /// A probe of a suspicion, or its control, was answered.
    pub(super) fn on_probe(&mut self, look: &Look<'_>, number: u32, of_control: bool, passed: bool) -> Found {
        let failed_before = self.suspicion.corroborates();
        let failed = self.suspicion.on_answer(number, of_control, passed);
        if failed_before && !self.suspicion.corroborates() {
            self.hard.on_probes_pass_again(look.now);
        }
        if failed != Some(true) || !look.closed {
            return Found::Nothing;
        }
        self.baseline.failed.on_outcome(look.now, true);
        // A connection and a tenant of its own.
        let own = (1 << 63) | u64::from(number);
        self.count(look, &Failed { sent_at: look.now, connection: own, tenant: own, probe: true })
    }

    /// Whether the newest probe failed.
    pub(super) fn is_corroborated(&self) -> bool {
        self.suspicion.corroborates()
    }

    /// Whether nothing speaks against the endpoint.
    pub(super) fn is_calm(&self) -> bool {
        self.reasons == 0 && !self.hard.is_suspicious()
    }

    /// It should open, and too few would be left.
    pub(super) fn on_guarded(&mut self) {
        self.reasons |= reason::GUARD;
    }

    /// The requests that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = RequestKey> {
        self.waiting.keys()
    }

    /// When the oldest that waits was sent, of those sent since then.
    pub(super) fn oldest_since(&self, since: Instant) -> Option<Instant> {
        self.waiting.times().find(|&at| at >= since)
    }

    /// It opens.
    pub(super) fn on_opened(&mut self) {
        self.hard.clear();
        self.soft = Cusum::default();
        self.slow.clear();
        self.suspicion.end();
        self.reasons = 0;
    }

    /// It is closed again: half the evidence re-opens; what was lately is forgotten, histogram and baselines are kept.
    pub(super) fn on_closed(&mut self, now: Instant) {
        self.hard.on_closed(now);
        self.suspicion.begin(now);
        self.baseline.on_generation();
        self.counted = [Counted::default(); COUNTED];
    }

    /// The next request that is sent gets this turn.
    pub(super) fn number_turns_from(&mut self, turn: u64) {
        self.waiting.number_from(turn);
    }

    /// The usual failures and times, for another process.
    pub(super) fn save(&self) -> (f64, Vec<u16>) {
        (self.baseline.own(), self.histogram.counts().to_vec())
    }

    /// Goes on from the usual failures and times that another process saw.
    pub(super) fn restore(&mut self, own_rate: f64, histogram: &[u16]) {
        self.baseline.assume(own_rate);
        self.histogram = Histogram::of(histogram);
    }

    /// Another process answers at the same address: its speed is a good guess, its failures are not.
    pub(super) fn on_replaced(&mut self) {
        let histogram = core::mem::take(&mut self.histogram);
        *self = Self { histogram, ..Self::default() };
    }
}
