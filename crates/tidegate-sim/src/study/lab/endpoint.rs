//! An endpoint of the lab: what is wrong with it now, and its connections.

use tidegate_core::outcome::{Failure, Verdict};
use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant};

use super::{Setup, Shape};

/// How failing requests fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::study) enum Failing {
    /// With a status of 500, sooner than an answer would come.
    Status,
    /// Like that, or by a reset of the connection, or by a time-out.
    Mixed,
    /// By the first-byte time-out.
    TimeOut,
    /// With a 4xx: the client's fault.
    Client,
    /// With a 429.
    Throttled,
    /// By a keep-alive that the other side has closed.
    Stale,
}

/// What is wrong with an endpoint.
#[derive(Clone, Copy, Debug)]
pub(in crate::study) struct Condition {
    /// Share of requests that fail.
    pub(in crate::study) fail: f64,
    pub(in crate::study) failing: Failing,
    /// Share of attempts to connect that are refused.
    pub(in crate::study) refuse: f64,
    /// Everything takes so many times as long.
    pub(in crate::study) slow: f64,
    /// When it was so slow; from then it fades to 1 over `fades_s`, if that is above 0.
    pub(in crate::study) since: Instant,
    pub(in crate::study) fades_s: f64,
    /// Nothing is answered before; then everything.
    pub(in crate::study) paused_until: Instant,
    /// Its health path fails.
    pub(in crate::study) unwell: bool,
    /// It is really down: opening is right.
    pub(in crate::study) down: bool,
}

impl Default for Condition {
    fn default() -> Self {
        Self::failing(0.01, Failing::Status)
    }
}

impl Condition {
    /// Well, but for a share of failures.
    pub(in crate::study) fn failing(fail: f64, failing: Failing) -> Self {
        Self {
            fail,
            failing,
            refuse: 0.0,
            slow: 1.0,
            since: Instant::ORIGIN,
            fades_s: 0.0,
            paused_until: Instant::ORIGIN,
            unwell: false,
            down: false,
        }
    }

    /// Until when nothing is answered.
    pub(super) fn silent_until(&self, now: Instant) -> Option<Instant> {
        (now < self.paused_until).then_some(self.paused_until)
    }

    fn slow_at(&self, now: Instant) -> f64 {
        if self.fades_s <= 0.0 {
            return self.slow;
        }
        1.0 + (self.slow - 1.0) * (1.0 - now.secs_since(self.since) / self.fades_s).max(0.0)
    }

    /// What a probe finds, and how long that takes.
    pub(super) fn probe(&self, now: Instant, timeout: Duration, rng: &mut Rng) -> (bool, Duration) {
        let soon = Duration::from_millis(1);
        if self.refuse > 0.0 && rng.unit() < self.refuse {
            return (false, soon);
        }
        // The health path is answered by another thread than the one that hangs, unless the engine is unwell altogether.
        match self.silent_until(now).filter(|_| self.unwell) {
            Some(until) if until < now + timeout => (true, until.since(now)),
            Some(_) => (false, timeout),
            None => (!self.unwell, soon),
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) connection: u64,
    pub(super) place: u32,
    pub(super) first_byte_s: Option<f64>,
    pub(super) end_s: f64,
    pub(super) verdict: Verdict,
    /// Every slot was taken.
    pub(super) full: bool,
    pub(super) stream: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// 0: closed.
    id: u64,
    used: Instant,
}

/// An endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) condition: Condition,
    connections: Vec<Connection>,
    next: u64,
    inside: u32,
}

impl Endpoint {
    pub(super) fn new(connections: u32) -> Self {
        let connections = vec![Connection::default(); connections as usize];
        Self { condition: Condition::default(), connections, next: 0, inside: 0 }
    }

    /// Connections are closed: one, or all.
    pub(super) fn close(&mut self, one: Option<u32>) {
        match one {
            Some(place) => self.connections[place as usize].id = 0,
            None => self.connections.iter_mut().for_each(|c| c.id = 0),
        }
    }

    pub(super) fn on_end(&mut self, inside: bool) {
        self.inside -= u32::from(inside);
    }

    /// Takes a request in over one of a gateway's connections, which begin at `first`.
    pub(super) fn serve(&mut self, now: Instant, first: u32, setup: &Setup, poisoned: bool, rng: &mut Rng) -> Sent {
        let place = first + rng.below(setup.connections as usize) as u32;
        let c = self.condition;
        let connection = &mut self.connections[place as usize];
        let idle_s = now.secs_since(connection.used);
        connection.used = now;
        let mut sent = Sent {
            connection: connection.id,
            place,
            first_byte_s: None,
            end_s: 0.001,
            verdict: Verdict::Failed(Failure::Connect),
            full: false,
            stream: setup.shape == Shape::Stream,
        };
        if connection.id == 0 {
            self.next += 1;
            sent.connection = self.next;
            if c.refuse > 0.0 && rng.unit() < c.refuse {
                self.inside += 1;
                return sent;
            }
            connection.id = self.next;
        }
        if self.inside >= setup.slots {
            (sent.full, sent.verdict) = (true, Verdict::Failed(Failure::Status));
            return sent;
        }
        self.inside += 1;
        let (first_byte_s, end_s) = setup.shape.draw(rng);
        let slow = c.slow_at(now);
        (sent.first_byte_s, sent.end_s) = (Some(first_byte_s * slow), end_s * slow);
        sent.verdict = Verdict::Success;
        let fails = rng.unit() < c.fail;
        // A stale connection that was idle for long is tried again on a fresh one by the shell itself.
        if poisoned || (fails && (c.failing != Failing::Stale || idle_s < 1.0)) {
            self.fail(&mut sent, if poisoned { Failing::Status } else { c.failing }, setup, rng);
        }
        sent
    }

    fn fail(&mut self, sent: &mut Sent, failing: Failing, setup: &Setup, rng: &mut Rng) {
        let answers_s = sent.first_byte_s.unwrap_or(sent.end_s).min(1.0) * rng.uniform(0.1, 1.0);
        let kind = if failing == Failing::Mixed { rng.below(10) } else { 0 };
        let (verdict, after_s) = match failing {
            Failing::Client => (Verdict::ClientError, answers_s),
            Failing::Throttled => (Verdict::Throttled { retry_after: None }, answers_s),
            Failing::TimeOut => (Verdict::Failed(Failure::FirstByteTimeout), setup.shape.timeout_s()),
            Failing::Stale => (Verdict::Failed(Failure::Reset), 0.001),
            Failing::Mixed if kind >= 9 => (Verdict::Failed(Failure::FirstByteTimeout), setup.shape.timeout_s()),
            Failing::Mixed if kind >= 6 => (Verdict::Failed(Failure::Reset), answers_s),
            Failing::Status | Failing::Mixed => (Verdict::Failed(Failure::Status), answers_s),
        };
        if verdict == Verdict::Failed(Failure::Reset) {
            self.connections[sent.place as usize].id = 0;
        }
        (sent.first_byte_s, sent.end_s, sent.verdict) = (None, after_s, verdict);
    }
}
