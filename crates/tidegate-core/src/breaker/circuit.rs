//! The breaker of one endpoint for one route class: its level, its way out and its way back.
//!
//! The tests ([`super::adaptive`], [`super::classic`]) say *open*; this says for how long and how it ends: probes out of band or a pause,
//! one leased trial request, then a [`Ramp`]. Every change to or from open begins a generation, and what was sent in an earlier one decides
//! nothing: stragglers neither close nor open (notes: breaker, sections 1, 4 and 5).

use super::adaptive::{Adaptive, Seen};
use super::classic::Classic;
use super::level::Level;
use super::peers::{Contribution, Peers};
use super::settings::{Kind, Settings};
use super::way_back::{Backoff, HalfOpen, Open, Trial};
use crate::id::RequestKey;
use crate::outcome::{Failure, Verdict};
use crate::pool::config::WarmUpStep;
use crate::ramp::{Ask, Pace, Ramp, quantile};
use crate::rng::Rng;
use crate::saved::SavedBreaker;
use crate::time::{Duration, Instant, duration_from_secs};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A reduced endpoint gets at least so many requests per second of its part: evidence has to flow, or the tests starve on what is left.
const EVIDENCE_RATE: f64 = 1.0;
/// Part of its weight that a reduced endpoint keeps. Policies that follow shares draw for it; those that chase load would send what is
/// cheap there anyway, and half of them have no time to be told a penalty of, so for them it is a rate.
const REDUCED: f64 = 0.25;

/// What a test says beyond a change of weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// It should open, for this reason.
    Open(&'static str),
    /// It fails like everybody.
    PoolFails,
    /// Its trial was not answered in time.
    TrialHung(RequestKey),
}

/// What the tests look at besides the event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look<'a> {
    pub(crate) now: Instant,
    pub(crate) settings: &'a Settings,
    pub(crate) steps: &'a [WarmUpStep],
    pub(crate) peers: Peers,
    /// The policy goes where load is lowest.
    pub(crate) chases_load: bool,
    /// The endpoint has its full weight; the circuit knows.
    pub(crate) full: bool,
    /// The endpoint is full or reduced; the circuit knows.
    pub(crate) closed: bool,
    /// The request is of the current generation; the circuit knows.
    pub(crate) current: bool,
}

/// A dispatch as its circuit sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) key: RequestKey,
    pub(crate) seen: Seen,
    pub(crate) generation: u32,
    /// Its first byte had come before what is told now.
    pub(crate) began: bool,
}

/// A probe to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its number.
    pub(crate) number: u32,
    /// A control goes to another endpoint.
    pub(crate) suspicion: bool,
}

#[derive(Clone, Debug)]
enum Tests {
    Adaptive(Box<Adaptive>),
    Classic(Classic),
    Off,
}

#[derive(Clone, Debug)]
enum State {
    Closed,
    Open(Open),
    HalfOpen(HalfOpen),
}

/// The circuit.
#[derive(Clone, Debug)]
pub(crate) struct Circuit {
    tests: Tests,
    state: State,
    generation: u32,
    pace: Pace,
    backoff: Backoff,
    /// Probes sent so far.
    probes: u32,
    fails_fast: bool,
    /// Tokens of a lowered weight, for policies that chase load.
    tokens: f64,
    /// The level that was last told, and why the next one is what it is.
    told: Level,
    why: &'static str,
}

impl Circuit {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            tests: match settings.kind {
                Kind::Adaptive => Tests::Adaptive(Box::default()),
                Kind::Classic => Tests::Classic(Classic::default()),
                Kind::Off => Tests::Off,
            },
            state: State::Closed,
            generation: 0,
            pace: Pace::default(),
            backoff: Backoff::default(),
            probes: 0,
            fails_fast: false,
            tokens: 0.0,
            told: Level::Full,
            why: "",
        }
    }

    /// Where it stands.
    pub(crate) fn level(&self) -> Level {
        match &self.state {
            State::Open(_) => Level::Open,
            State::HalfOpen(_) => Level::HalfOpen,
            State::Closed if self.reduced().is_some() => Level::Reduced,
            State::Closed => Level::Full,
        }
    }

    fn reduced(&self) -> Option<&'static str> {
        match &self.tests {
            Tests::Adaptive(tests) => tests.reduced(),
            Tests::Classic(_) | Tests::Off => None,
        }
    }

    /// Whether only a trial may go there.
    pub(crate) fn is_out(&self) -> bool {
        match &self.state {
            State::Closed => self.fails_fast,
            State::Open(_) => true,
            State::HalfOpen(half) => half.ramp.is_none(),
        }
    }

    /// Whether a decision may have to leave it out.
    pub(crate) fn holds_back(&self) -> bool {
        !matches!(self.state, State::Closed) || self.fails_fast || self.reduced().is_some()
    }

    /// Whether it counts as one that is left when another opens.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed) && !self.fails_fast
    }

    /// Whether the next request may be its trial.
    pub(crate) fn wants_trial(&self) -> bool {
        matches!(&self.state, State::HalfOpen(half) if matches!(half.trial, Trial::Wanted))
    }

    /// The generation of requests sent now.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The ramp of a half-open endpoint.
    pub(crate) fn ramp(&self) -> Option<&Ramp> {
        match &self.state {
            State::HalfOpen(half) => half.ramp.as_ref(),
            _ => None,
        }
    }

    /// The same, to be asked and told.
    pub(crate) fn ramp_mut(&mut self) -> Option<&mut Ramp> {
        match &mut self.state {
            State::HalfOpen(half) => half.ramp.as_mut(),
            _ => None,
        }
    }

    /// The pool admitted a request: `fair` is this endpoint's full part of the traffic, 0..1, and `rate` the same per second.
    pub(crate) fn on_admission(&mut self, now: Instant, fair: f64, rate: f64) {
        match &mut self.state {
            State::HalfOpen(HalfOpen { ramp: Some(ramp), .. }) => ramp.on_admission(now, fair, rate),
            _ => self.tokens = (self.tokens + 1.05 * reduced(rate) * fair).min(2.0),
        }
    }

    /// Whether a decision may use the endpoint: always at its full weight, never while only a trial may go there.
    pub(crate) fn passes(&mut self, now: Instant, ask: Ask, rng: &mut Rng) -> bool {
        if self.is_out() {
            return false;
        }
        if let Some(ramp) = self.ramp_mut() {
            return ramp.passes(now, ask, rng);
        }
        if self.reduced().is_none() {
            return true;
        }
        let bound = if self.is_guarded() { self.pace.total_s.map(|s| quantile(ask.rate * s)) } else { None };
        let shared = if ask.chases_load { self.tokens >= 1.0 } else { rng.unit() < reduced(ask.rate) };
        shared && bound.is_none_or(|most| f64::from(ask.in_flight) < libm::ceil(most).max(1.0))
    }

    /// The share of its weight: 1 at full weight, 0 while only a trial may go there.
    pub(crate) fn share(&self) -> f64 {
        match self.ramp() {
            _ if self.is_out() => 0.0,
            Some(ramp) => ramp.share(),
            None if self.reduced().is_some() => REDUCED,
            None => 1.0,
        }
    }

    /// Times while it was well.
    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// Usual time to first byte, seconds.
    pub(crate) fn median_s(&self) -> Option<f64> {
        match &self.tests {
            Tests::Adaptive(tests) => tests.median_s(),
            Tests::Classic(_) | Tests::Off => None,
        }
    }

    /// What the others are told of it; nothing while it is open, or without tests that compare.
    pub(crate) fn contribution(&self, now: Instant) -> Option<Contribution> {
        match (&self.tests, &self.state) {
            (_, State::Open(_)) | (Tests::Classic(_) | Tests::Off, _) => None,
            (Tests::Adaptive(tests), _) => Some(tests.contribution(now)),
        }
    }

    /// The change of level since the last call.
    pub(crate) fn take_change(&mut self) -> Option<(Level, Level, &'static str)> {
        let level = self.level();
        if level == self.told {
            return None;
        }
        let from = core::mem::replace(&mut self.told, level);
        let why = match (from, level) {
            (_, Level::Reduced) => self.reduced().unwrap_or(self.why),
            (Level::Reduced, Level::Full) => "evidence_gone",
            _ => self.why,
        };
        Some((from, level, why))
    }

    /// Completes what the tests look at, about a request of `generation`.
    fn view<'a>(&self, look: &Look<'a>, generation: u32) -> Look<'a> {
        let level = self.level();
        Look {
            full: level == Level::Full,
            closed: matches!(level, Level::Full | Level::Reduced),
            current: generation == self.generation,
            ..*look
        }
    }

    /// A request was sent there, as its trial or not. Its turn, and what the tests say.
    pub(crate) fn on_dispatch(&mut self, look: &Look<'_>, key: RequestKey, tenant: u64, trial: bool) -> (u64, Found) {
        let look = &self.view(look, self.generation);
        self.backoff.on_dispatch();
        if let State::HalfOpen(half) = &mut self.state {
            if trial {
                let patience = (4.0 * self.pace.first_byte_s.unwrap_or(0.0)).max(2.0);
                half.trial = Trial::Out { key, until: look.now + duration_from_secs(patience) };
            } else if let Some(ramp) = &mut half.ramp {
                ramp.on_dispatch();
            }
        } else {
            self.tokens = (self.tokens - 1.0).max(0.0);
        }
        let judged = matches!(&self.state, State::Closed) || self.ramp().is_some();
        match &mut self.tests {
            Tests::Adaptive(tests) => {
                let (turn, found) = tests.on_dispatch(look, key, tenant);
                (turn, if judged { found } else { Found::Nothing })
            }
            Tests::Classic(_) | Tests::Off => (0, Found::Nothing),
        }
    }

    /// The first byte of an answer that is none of failure came.
    pub(crate) fn on_first_byte(&mut self, look: &Look<'_>, sent: &Sent, took_s: f64, rng: &mut Rng) -> Found {
        let look = &self.view(look, sent.generation);
        let current = look.current;
        if current && look.full {
            self.pace.on_first_byte(took_s);
        }
        let found = match &mut self.tests {
            Tests::Adaptive(tests) => {
                tests.on_first_byte(look, &sent.seen, took_s);
                Found::Nothing
            }
            Tests::Classic(tests) if current && look.closed => tests.on_first_byte(look.settings, look.now, took_s),
            Tests::Classic(_) | Tests::Off => Found::Nothing,
        };
        let median_s = self.median_s();
        if let State::HalfOpen(half) = &mut self.state
            && current
        {
            if let Some(ramp) = &mut half.ramp {
                ramp.on_first_byte(look.now, took_s);
            } else if half.is_trial(sent.key) {
                half.on_passed(look, self.pace, median_s, rng);
            }
        }
        found
    }

    /// A request ended. A success has had its first byte.
    pub(crate) fn on_end(
        &mut self,
        look: &Look<'_>,
        sent: &Sent,
        verdict: Verdict,
        took_s: f64,
        rng: &mut Rng,
    ) -> Found {
        let look = &self.view(look, sent.generation);
        let (current, failed) = (look.current, matches!(verdict, Verdict::Failed(_)));
        if verdict == Verdict::Success && current && look.full {
            self.pace.on_total(took_s);
        }
        let found = self.test_end(look, sent, verdict, current);
        let State::HalfOpen(half) = &mut self.state else { return found };
        if !current {
            return Found::Nothing;
        }
        if half.is_trial(sent.key) {
            // Its first byte has settled a trial that was answered, so this one was not.
            half.trial = Trial::Wanted;
            if failed {
                self.open(look.now, look.settings, "trial_failed", rng);
            }
            return Found::Nothing;
        }
        let Some(ramp) = &mut half.ramp else { return Found::Nothing };
        match verdict {
            Verdict::Throttled { .. } => {
                ramp.halve(look.now);
            }
            Verdict::Failed(_) if ramp.on_failure(look.now) => {
                self.open(look.now, look.settings, "ramp_failed", rng);
            }
            _ => {}
        }
        Found::Nothing
    }

    fn test_end(&mut self, look: &Look<'_>, sent: &Sent, verdict: Verdict, current: bool) -> Found {
        let failure = match verdict {
            Verdict::Failed(failure) => Some(failure),
            _ => None,
        };
        match &mut self.tests {
            Tests::Adaptive(tests) => {
                tests.on_end(look, &sent.seen, sent.began, is_progress(verdict));
                match failure {
                    Some(f) => tests.on_failure(look, &sent.seen, f == Failure::FirstByteTimeout),
                    None => Found::Nothing,
                }
            }
            Tests::Classic(tests) if current && look.closed => match verdict {
                Verdict::Failed(_) => tests.on_failure(look.settings, look.now, sent.began),
                Verdict::Success | Verdict::ClientError => {
                    tests.on_alive();
                    Found::Nothing
                }
                Verdict::Cancelled | Verdict::Throttled { .. } => Found::Nothing,
            },
            Tests::Classic(_) | Tests::Off => Found::Nothing,
        }
    }

    /// The same request failed elsewhere as well.
    pub(crate) fn take_back(&mut self, now: Instant, tenant: u64) {
        if let Tests::Adaptive(tests) = &mut self.tests {
            tests.take_back(now, tenant);
        }
    }

    /// Tokens of own streams came.
    pub(crate) fn on_tokens(&mut self, now: Instant) {
        if let Tests::Adaptive(tests) = &mut self.tests {
            tests.on_tokens(now);
        }
    }

    /// Probe `number`, or its control, was answered.
    pub(crate) fn on_probe(&mut self, look: &Look<'_>, number: u32, of_control: bool, passed: bool) -> Found {
        let look = &self.view(look, self.generation);
        if let State::Open(open) = &self.state {
            if passed && !of_control && open.is_own(number) && look.now >= open.hold_until {
                self.half_open("probe_passed");
            }
            return Found::Nothing;
        }
        let Tests::Adaptive(tests) = &mut self.tests else { return Found::Nothing };
        let found = tests.on_probe(look, number, of_control, passed);
        self.fails_fast &= tests.is_corroborated();
        found
    }

    /// Other evidence says that it is up again: one trial at once.
    pub(crate) fn on_healthy(&mut self, now: Instant) {
        match &self.state {
            State::Open(open) if now >= open.hold_until || open.probe_at.is_none() => self.half_open("check_passed"),
            _ => {}
        }
    }

    /// Lets time pass.
    pub(crate) fn on_time(&mut self, look: &Look<'_>, rng: &mut Rng) -> Found {
        let look = &self.view(look, self.generation);
        let now = look.now;
        let mut found = Found::Nothing;
        if let Tests::Adaptive(tests) = &mut self.tests {
            tests.settle_reasons(now);
            self.fails_fast &= tests.is_corroborated();
            let ramps = matches!(&self.state, State::HalfOpen(half) if half.ramp.is_some());
            if (look.closed || ramps) && tests.stall_at(now, look.settings.stall_after_s, ramps).is_some() {
                found = tests.judge_stall(look);
            }
        }
        match &mut self.state {
            State::Closed => {}
            State::Open(open) if open.probe_at.is_none() && now >= open.hold_until => self.half_open("cool_down_over"),
            State::Open(_) => {}
            State::HalfOpen(half) => {
                if let Trial::Out { key, until } = half.trial
                    && now >= until
                {
                    // It was ours, not its client's: it should not wait for an engine that hangs.
                    found = Found::TrialHung(key);
                    self.open(now, look.settings, "trial_hung", rng);
                } else if let Some(ramp) = &mut half.ramp {
                    let oldest = match &self.tests {
                        Tests::Adaptive(tests) => tests.oldest_since(half.since),
                        Tests::Classic(_) | Tests::Off => None,
                    };
                    if ramp.on_time(now, look.steps, oldest, look.chases_load) {
                        self.close(now);
                    }
                }
            }
        }
        found
    }

    /// When the next probe is due.
    pub(crate) fn probe_at(&self) -> Option<Instant> {
        match (&self.state, &self.tests) {
            (State::Open(open), _) => open.probe_at,
            (State::Closed, Tests::Adaptive(tests)) => tests.probe_at(),
            _ => None,
        }
    }

    /// A probe that is due.
    pub(crate) fn due_probe(
        &mut self,
        now: Instant,
        settings: &Settings,
        alone: bool,
        rng: &mut Rng,
    ) -> Option<Wanted> {
        let number = self.probes + 1;
        let suspicion = match (&mut self.state, &mut self.tests) {
            (State::Open(open), _) => {
                open.probe_at.filter(|&at| at <= now)?;
                open.on_sent(now, settings.probe_cap, rng);
                false
            }
            (State::Closed, Tests::Adaptive(tests)) => {
                tests.probe_at().filter(|&at| at <= now)?;
                let cap = self.fails_fast.then_some(settings.probe_cap);
                tests.on_probe_sent(now, number, !alone, cap);
                true
            }
            _ => return None,
        };
        self.probes = number;
        Some(Wanted { number, suspicion })
    }

    /// When time alone next changes something.
    pub(crate) fn next_at(&self, now: Instant, settings: &Settings, steps: &[WarmUpStep]) -> Option<Instant> {
        match (&self.state, &self.tests) {
            (State::Open(open), _) => Some(open.probe_at.unwrap_or(open.hold_until)),
            (State::HalfOpen(half), tests) => match half.trial {
                Trial::Out { until, .. } => Some(until),
                _ => {
                    let stall = match tests {
                        Tests::Adaptive(tests) => tests.stall_at(now, settings.stall_after_s, half.ramp.is_some()),
                        Tests::Classic(_) | Tests::Off => None,
                    };
                    half.ramp.as_ref().and_then(|r| r.next_change_at(now, steps)).into_iter().chain(stall).min()
                }
            },
            (State::Closed, Tests::Adaptive(tests)) => {
                // Evidence fades by itself; nobody needs to know to the second when it is gone.
                let fades = (!tests.is_calm()).then(|| now + Duration::from_secs(5));
                let stall = tests.stall_at(now, settings.stall_after_s, false);
                tests.probe_at().into_iter().chain(fades).chain(stall).min()
            }
            (State::Closed, _) => None,
        }
    }

    /// Opens. The way back depends on what led here.
    pub(crate) fn open(&mut self, now: Instant, settings: &Settings, why: &'static str, rng: &mut Rng) {
        let again = !matches!(self.state, State::Closed);
        let wait = self.backoff.on_open(now, settings, again, rng);
        let probed = settings.kind == Kind::Adaptive;
        self.state = State::Open(Open::new(now, wait, probed.then_some(self.probes), settings.probe_cap, rng));
        self.generation = self.generation.wrapping_add(1);
        (self.why, self.fails_fast) = (why, false);
        match &mut self.tests {
            Tests::Adaptive(tests) => tests.on_opened(),
            Tests::Classic(tests) => tests.clear(),
            Tests::Off => {}
        }
    }

    fn half_open(&mut self, why: &'static str) {
        self.state = State::HalfOpen(HalfOpen::default());
        self.generation = self.generation.wrapping_add(1);
        self.why = why;
    }

    fn close(&mut self, now: Instant) {
        self.state = State::Closed;
        self.why = "ramp_finished";
        self.backoff.on_close(now);
        match &mut self.tests {
            Tests::Adaptive(tests) => tests.on_closed(now),
            Tests::Classic(tests) => tests.clear(),
            Tests::Off => {}
        }
    }

    /// It should open, but too few would be left. `alone`: nobody would, so it fails fast while probes say that it is down.
    pub(crate) fn on_guarded(&mut self, alone: bool) {
        if let Tests::Adaptive(tests) = &mut self.tests {
            tests.on_guarded();
            self.fails_fast = alone && tests.is_corroborated();
        }
    }

    /// Whether its weight is lowered because too few would be left: then its requests in flight are bounded as well.
    fn is_guarded(&self) -> bool {
        self.is_closed() && self.reduced() == Some("max_ejected")
    }

    /// The requests that hang, into `into`.
    pub(crate) fn waiting(&self, into: &mut Vec<RequestKey>) {
        if let Tests::Adaptive(tests) = &self.tests {
            into.extend(tests.waiting());
        }
    }

    /// What another process is told.
    pub(crate) fn save(&self, now: Instant) -> SavedBreaker {
        let hold_until = match &self.state {
            State::Open(open) => open.hold_until,
            _ => now,
        };
        let (own_rate, histogram) = match &self.tests {
            Tests::Adaptive(tests) => tests.save(),
            Tests::Classic(_) | Tests::Off => (0.0, Vec::new()),
        };
        SavedBreaker {
            is_out: !matches!(self.state, State::Closed),
            hold_until: hold_until.as_nanos(),
            doublings: self.backoff.doublings(),
            pace: (self.pace.first_byte_s, self.pace.total_s),
            own_rate,
            histogram,
        }
    }

    /// Goes on from what another process knew: out stays out until a probe and a trial, or the pause, say otherwise.
    pub(crate) fn restore(&mut self, now: Instant, settings: &Settings, saved: &SavedBreaker, rng: &mut Rng) {
        (self.pace.first_byte_s, self.pace.total_s) = saved.pace;
        self.backoff = Backoff::after(saved.doublings);
        if let Tests::Adaptive(tests) = &mut self.tests {
            tests.restore(saved.own_rate, &saved.histogram);
        }
        if saved.is_out && settings.kind != Kind::Off {
            let hold = Instant::from_nanos(saved.hold_until).since(now);
            let probed = settings.kind == Kind::Adaptive;
            self.state = State::Open(Open::new(now, hold, probed.then_some(self.probes), settings.probe_cap, rng));
            self.generation = self.generation.wrapping_add(1);
            self.why = "taken_over";
        }
    }

    /// Other tests judge from now on: what the old ones found is void, what is in flight is a straggler, the usual times stay.
    pub(crate) fn replace_tests(&mut self, settings: &Settings) {
        let fresh = Self::new(settings);
        (self.tests, self.state, self.backoff) = (fresh.tests, State::Closed, fresh.backoff);
        (self.fails_fast, self.tokens, self.why) = (false, 0.0, "reconfigured");
        self.generation = self.generation.wrapping_add(1);
        if let Tests::Adaptive(tests) = &mut self.tests {
            // Turns of their own, so that an old request's turn is never taken for that of a new one.
            tests.number_turns_from(u64::from(self.generation) << 32);
        }
    }

    /// Another process answers at the same address.
    pub(crate) fn on_replaced(&mut self) {
        self.state = State::Closed;
        self.generation = self.generation.wrapping_add(1);
        (self.backoff, self.fails_fast, self.told) = (Backoff::default(), false, Level::Full);
        match &mut self.tests {
            Tests::Adaptive(tests) => tests.on_replaced(),
            Tests::Classic(tests) => tests.clear(),
            Tests::Off => {}
        }
    }
}

/// Part that a reduced endpoint keeps of its `rate` per second, 0.25..1.
fn reduced(rate: f64) -> f64 {
    (EVIDENCE_RATE / rate.max(1e-9)).clamp(REDUCED, 1.0)
}

/// Whether an end shows that the endpoint moves (notes: breaker, section 2).
pub(crate) fn is_progress(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Success | Verdict::ClientError | Verdict::Throttled { .. } => true,
        Verdict::Failed(f) => matches!(f, Failure::Status | Failure::Truncated | Failure::Stalled),
        Verdict::Cancelled => false,
    }
}
