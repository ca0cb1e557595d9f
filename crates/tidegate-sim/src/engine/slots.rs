//! Places that serve one request each, and a first-come queue in front of them, for engines that know at arrival how long a request takes.

use tidegate_core::time::{Duration, Instant};

use super::account::Account;
use super::line::Line;
use super::timeline::Timeline;
use super::{Admission, Detail, Emission, EngineRequest, Rejection, RequestId, Status};

/// The places and who waits for one.
#[derive(Debug)]
pub(super) struct Slots {
    /// Places; `None`: any number.
    places: Option<u32>,
    /// Requests that may wait before 503 `overloaded`.
    max_waiting: u32,
    running: Timeline,
    waiting: Line<(EngineRequest, Duration)>,
    account: Account,
}

impl Slots {
    /// All free; `expected_s` is the response time that is told until one is known.
    pub(super) fn new(places: Option<u32>, max_waiting: u32, expected_s: f64, detail: Detail) -> Self {
        Self {
            places,
            max_waiting,
            running: Timeline::new(detail),
            waiting: Line::default(),
            account: Account::new(expected_s),
        }
    }

    fn free(&self) -> bool {
        self.places.is_none_or(|places| self.running.len() < places.max(1) as usize)
    }

    fn fill(&mut self, now: Instant) {
        while self.free() {
            let Some((id, (request, takes))) = self.waiting.pop() else { break };
            self.running.start(now, id, &request, takes);
        }
    }

    /// A request that will take `takes` once it has a place.
    pub(super) fn arrive(&mut self, now: Instant, request: &EngineRequest, takes: Duration) -> Admission {
        if !self.free() && self.waiting.len() >= self.max_waiting as usize {
            return Admission::Rejected(Rejection { status: 503, code: "overloaded", retry_after: Some(takes) });
        }
        let id = self.account.take();
        self.account.on_request(request);
        self.waiting.push(id, (*request, takes));
        self.fill(now);
        Admission::Accepted(id)
    }

    pub(super) fn cancel(&mut self, now: Instant, id: RequestId) -> bool {
        if self.running.cancel(id) {
            self.fill(now);
            return true;
        }
        self.waiting.remove(id)
    }

    pub(super) fn next_event_at(&self) -> Option<Instant> {
        self.running.next_at()
    }

    pub(super) fn advance(&mut self, now: Instant, out: &mut Vec<Emission>) {
        while let Some(finished) = self.running.pop(now, out) {
            if let Some(f) = finished {
                self.account.on_done(f.took.as_secs_f64(), f.tokens);
                self.fill(f.at);
            }
        }
    }

    /// How it stands; `full` requests in it are load 1.
    pub(super) fn status(&self, full: u32) -> Status {
        self.account.status(self.running.len(), self.waiting.len(), f64::from(full))
    }
}
