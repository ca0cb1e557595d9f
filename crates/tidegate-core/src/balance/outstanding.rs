//! What is at each endpoint now, of all clients: work that waits, and requests.
//!
//! ```text
//! W_i = Q + max(0, q - Q(sample) - age/s_i) + (rho - 1) min(D - D(sample), Q)
//! N_i = n + max(0, max(0, running + waiting - n(sample)) + (rho - 1) (n - n(sample)))
//! no valid report:   W_i = rho Q       N_i = rho n
//! ```
//!
//! Q is the work sent by this replica whose first byte has not come, D all work it ever sent, n its requests; `(sample)` is their value
//! when the newest report was sampled, q the queued tokens it told, rho the replicas. First term: own work, exact and fresh. Second: the
//! others' at the sample, drained since. Third: the other replicas did since the sample what this one did. As a report ages the rule slides
//! into "least outstanding work of my own" by itself. A report whose counters stand still while own tokens come is no report.
//! Source: notes, adaptive, sections 2 and 5.

use super::tie::PerEndpoint;
use crate::endpoint::Endpoints;
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::load::{LoadReport, WorkReport};
use crate::pool::Dispatch;
use crate::pool::config::PoolConfig;
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;

/// KV use above which the barrier no longer grows: beyond that the engine preempts anyway.
const FULL: f64 = 0.999;
/// Changes remembered since the newest sample.
const LOGGED: usize = 256;
/// Weight of the newest request in the mean work of one.
const MEAN_WEIGHT: f64 = 0.02;
/// Weight of the newest report in the learned number of replicas.
const REPLICAS_WEIGHT: f64 = 0.02;
/// Own requests at the samples below which a report says nothing about replicas.
const REPLICAS_FROM: f64 = 4.0;
/// Reports in a row that know of fewer requests than there are own, after which one without counters is frozen.
const BELOW_OWN: u32 = 3;
/// What an answer may be older than its arrival.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// The state of one endpoint at an instant.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at: Instant,
    /// Own requests.
    n: f64,
    /// Own work whose first byte has not come.
    queued: f64,
    /// Own work ever sent.
    sent: f64,
}

/// The newest report.
#[derive(Clone, Copy, Debug)]
struct Seen {
    sampled_at: Instant,
    work: WorkReport,
    then: Mark,
}

#[derive(Debug, Default)]
struct Known {
    now: Mark,
    /// Work sent whose first byte has not come: when, what was predicted, how much; oldest first.
    pending: VecDeque<(Instant, f64, f64)>,
    log: VecDeque<Mark>,
    seen: Option<Seen>,
    /// The sample at which the counters were seen to move last.
    moved_at: Option<Instant>,
    /// The first own tokens the counters should have counted since.
    own_since: Option<Instant>,
    below_own: u32,
    frozen: bool,
}

/// What one pool's replica knows of work outstanding.
#[derive(Debug)]
pub struct Outstanding {
    known: PerEndpoint<Known>,
    /// Mean work of a request.
    mean: Option<f64>,
    /// Whether there is a source of reports.
    reports: bool,
    max_age: Duration,
    replicas: f64,
    learns_replicas: bool,
    /// Own requests at the newest samples, and requests they told, over all endpoints.
    told: PerEndpoint<(f64, f64)>,
    told_sum: (f64, f64),
}

impl Outstanding {
    /// For a pool of this configuration.
    pub fn new(cfg: &PoolConfig) -> Self {
        Self {
            known: PerEndpoint::default(),
            mean: None,
            reports: cfg.load.is_some(),
            max_age: cfg.load.map_or(Duration::ZERO, |l| l.max_age),
            replicas: cfg.replicas.max(1.0),
            learns_replicas: cfg.learn_replicas,
            told: PerEndpoint::default(),
            told_sum: (0.0, 0.0),
        }
    }

    /// Takes new settings, and keeps what it knows.
    pub fn reconfigure(&mut self, cfg: &PoolConfig) {
        let fresh = Self::new(cfg);
        (self.reports, self.max_age, self.learns_replicas) = (fresh.reports, fresh.max_age, fresh.learns_replicas);
        if !self.learns_replicas {
            self.replicas = fresh.replicas;
        }
    }

    /// Mean work of a request, prompt tokens; 1 before the first.
    fn mean_work(&self) -> f64 {
        self.mean.unwrap_or(1.0)
    }

    fn seen(&self, id: EndpointId, now: Instant) -> Option<&Seen> {
        let known = self.known.get(id)?;
        let fresh = |s: &&Seen| now.since(s.sampled_at) < self.max_age;
        known.seen.as_ref().filter(fresh).filter(|_| !known.frozen)
    }

    /// Uncached prompt tokens ahead of a newcomer at `id`, of all replicas. `seconds_per_token` says how fast the others' drain; 0: they
    /// do not.
    pub fn ahead(&self, id: EndpointId, now: Instant, seconds_per_token: f64) -> f64 {
        let Some(known) = self.known.get(id) else { return 0.0 };
        let own = known.now;
        let Some(seen) = self.seen(id, now) else { return self.replicas * own.queued };
        let mean = self.mean_work();
        let told = seen.work.queued_tokens.or(seen.work.waiting.map(|w| w * mean)).unwrap_or(0.0);
        let drained = if seconds_per_token > 0.0 { now.secs_since(seen.sampled_at) / seconds_per_token } else { 0.0 };
        let others = (told - seen.then.queued - drained).max(0.0);
        own.queued + others + (self.replicas - 1.0) * (own.sent - seen.then.sent).min(own.queued)
    }

    /// Requests at `id`, of all replicas.
    pub fn present(&self, id: EndpointId, now: Instant, in_flight: u32) -> f64 {
        let n = f64::from(in_flight);
        let Some(seen) = self.seen(id, now) else { return self.replicas * n };
        let told = total(&seen.work).unwrap_or(0.0);
        let others = (told - seen.then.n).max(0.0) + (self.replicas - 1.0) * (n - seen.then.n);
        n + others.max(0.0)
    }

    /// Seconds that the KV memory of `id` is to count as: `half_s` where half of it is used, without bound as it fills.
    pub(super) fn barrier_s(&self, id: EndpointId, now: Instant, in_flight: u32, half_s: f64) -> f64 {
        let used = self.memory(id, now, in_flight).unwrap_or(0.0).min(FULL);
        half_s * used / (1.0 - used)
    }

    /// Used share of the KV memory of `id`, 0..1, as told, grown or shrunk with the requests that came and went since; `None` if untold.
    fn memory(&self, id: EndpointId, now: Instant, in_flight: u32) -> Option<f64> {
        let seen = self.seen(id, now)?;
        let told = total(&seen.work).filter(|&n| n >= 1.0);
        let grown = told.map_or(1.0, |n| self.present(id, now, in_flight) / n);
        Some((seen.work.kv_usage? * grown).min(1.0))
    }

    /// When the oldest request whose first byte is due was sent, and the work predicted for it.
    pub fn oldest(&self, id: EndpointId) -> Option<(Instant, f64)> {
        self.known.get(id)?.pending.front().map(|&(sent, predicted, _)| (sent, predicted))
    }

    /// What happened at `id`.
    pub fn on_event(&mut self, now: Instant, id: EndpointId, event: &EndpointEvent<'_>, endpoints: &Endpoints) {
        match event {
            EndpointEvent::Added { .. } | EndpointEvent::Removed => {
                *self.known.at(id) = Known::default();
                self.forget_told(id);
            }
            EndpointEvent::Dispatched(d) => {
                let mean = self.mean.get_or_insert(d.work);
                *mean += MEAN_WEIGHT * (d.work - *mean);
                let known = self.known.at(id);
                known.now.queued += d.work;
                known.now.sent += d.work;
                known.pending.push_back(waiting(d));
                self.mark(now, id, endpoints);
            }
            EndpointEvent::FirstByte(d, _) => {
                self.known.at(id).on_begun(d);
                let known = self.known.at(id);
                known.note_tokens(now - ON_ITS_WAY.min(now.since(Instant::ORIGIN)));
                self.mark(now, id, endpoints);
            }
            EndpointEvent::Ended(d, _, _) => {
                if d.first_byte_at.is_none() {
                    self.known.at(id).on_begun(d);
                }
                self.mark(now, id, endpoints);
            }
            EndpointEvent::Progress { tokens, elapsed, .. } if *tokens > 0 => {
                let began = now - (*elapsed).min(now.since(Instant::ORIGIN));
                self.known.at(id).note_tokens(began);
            }
            EndpointEvent::Reported(report) => self.on_report(id, report),
            _ => {}
        }
    }

    /// Remembers how things stand, for reports that are sampled from now on.
    fn mark(&mut self, now: Instant, id: EndpointId, endpoints: &Endpoints) {
        let known = self.known.at(id);
        (known.now.at, known.now.n) = (now, f64::from(endpoints.get(id).in_flight));
        if !self.reports {
            return;
        }
        match known.log.back_mut() {
            Some(last) if last.at >= now => *last = known.now,
            _ => known.log.push_back(known.now),
        }
        if known.log.len() > LOGGED {
            known.log.pop_front();
        }
    }

    fn on_report(&mut self, id: EndpointId, report: &LoadReport) {
        if report.work.is_empty() {
            self.known.at(id).seen = None;
            self.forget_told(id);
            return;
        }
        let known = self.known.at(id);
        let then = known.at(report.sampled_at);
        known.judge(report, then.n);
        known.seen = Some(Seen { sampled_at: report.sampled_at, work: report.work, then });
        if known.frozen {
            self.forget_told(id);
            return;
        }
        let told = total(&report.work).unwrap_or(0.0);
        let was = core::mem::replace(self.told.at(id), (then.n, told));
        self.told_sum = (self.told_sum.0 + then.n - was.0, self.told_sum.1 + told - was.1);
        if self.learns_replicas && self.told_sum.0 >= REPLICAS_FROM {
            let x = (self.told_sum.1 / self.told_sum.0).clamp(1.0, 64.0);
            self.replicas += REPLICAS_WEIGHT * (x - self.replicas);
        }
    }

    fn forget_told(&mut self, id: EndpointId) {
        let was = core::mem::take(self.told.at(id));
        self.told_sum = (self.told_sum.0 - was.0, self.told_sum.1 - was.1);
    }
}

impl Known {
    fn on_begun(&mut self, d: &Dispatch) {
        if let Some(place) = self.pending.iter().position(|&p| p == waiting(d)) {
            self.pending.remove(place);
            // Sums of differences drift; an empty queue is exactly empty.
            self.now.queued = if self.pending.is_empty() { 0.0 } else { (self.now.queued - d.work).max(0.0) };
        }
    }

    /// Tokens of own streams came that the engine made at or after `at`.
    fn note_tokens(&mut self, at: Instant) {
        if self.own_since.is_none() && self.moved_at.is_some_and(|m| at > m) {
            self.own_since = Some(at);
        }
    }

    /// How things stood at `sample`.
    fn at(&mut self, sample: Instant) -> Mark {
        while self.log.get(1).is_some_and(|m| m.at <= sample) {
            self.log.pop_front();
        }
        let before = Mark { at: sample, ..Mark::default() };
        match self.log.front() {
            Some(mark) if mark.at <= sample || self.log.len() == LOGGED => *mark,
            // Everything there is came after the sample.
            Some(mark) => Mark { sent: mark.sent - mark.queued, ..before },
            None => self.now,
        }
    }

    /// Whether a report is of now: its counters move when own tokens come.
    fn judge(&mut self, report: &LoadReport, own: f64) {
        let counters = |w: &WorkReport| [w.generated_total, w.prompt_total];
        let is_counted = counters(&report.work).iter().any(Option::is_some);
        if is_counted {
            let moved = self.seen.as_ref().is_none_or(|s| counters(&s.work) != counters(&report.work));
            if moved {
                (self.moved_at, self.own_since, self.frozen) = (Some(report.sampled_at), None, false);
            } else {
                self.frozen |= self.own_since.is_some_and(|at| at < report.sampled_at);
            }
        } else {
            // One that tells only what waits knows of few by its nature.
            let is_whole = report.work.running.is_some();
            let below = is_whole && total(&report.work).is_some_and(|t| t < own);
            self.below_own = if below { self.below_own + 1 } else { 0 };
            self.frozen = self.below_own >= BELOW_OWN;
        }
    }
}

/// The entry of a dispatch among the pending.
fn waiting(d: &Dispatch) -> (Instant, f64, f64) {
    (d.at, d.predicted.work().unwrap_or(0.0), d.work)
}

/// Requests a report knows of.
fn total(work: &WorkReport) -> Option<f64> {
    match (work.running, work.waiting) {
        (None, None) => None,
        (running, waiting) => Some(running.unwrap_or(0.0) + waiting.unwrap_or(0.0)),
    }
}
