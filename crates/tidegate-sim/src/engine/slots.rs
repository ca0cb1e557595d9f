//! Places that serve one request each, and a first-come queue in front of them, for engines that know at arrival how long a request takes.

use std::collections::VecDeque;

use tidegate_core::time::{Duration, Instant};

use super::timeline::Timeline;
use super::{Admission, Detail, Emission, EngineRequest, Rejection, RequestId, ResponseTime, Status};

/// The places and who waits for one.
#[derive(Debug)]
pub(super) struct Slots {
    /// Places; `None`: any number.
    places: Option<u32>,
    /// Requests that may wait before 503 `overloaded`.
    max_waiting: u32,
    running: Timeline,
    waiting: VecDeque<(RequestId, EngineRequest, Duration)>,
    next_id: u64,
    response_time: ResponseTime,
    prompt_tokens: u64,
    generation_tokens: u64,
}

impl Slots {
    /// All free; `expected_s` is the response time that is told until one is known.
    pub(super) fn new(places: Option<u32>, max_waiting: u32, expected_s: f64, detail: Detail) -> Self {
        Self {
            places,
            max_waiting,
            running: Timeline::new(detail),
            waiting: VecDeque::new(),
            next_id: 0,
            response_time: ResponseTime(expected_s),
            prompt_tokens: 0,
            generation_tokens: 0,
        }
    }

    fn free(&self) -> bool {
        self.places.is_none_or(|places| self.running.len() < places.max(1) as usize)
    }

    fn fill(&mut self, now: Instant) {
        while self.free() {
            let Some((id, request, takes)) = self.waiting.pop_front() else { break };
            self.running.start(now, id, &request, takes);
        }
    }

    /// A request that will take `takes` once it has a place.
    pub(super) fn arrive(&mut self, now: Instant, request: &EngineRequest, takes: Duration) -> Admission {
        if !self.free() && self.waiting.len() >= self.max_waiting as usize {
            return Admission::Rejected(Rejection { status: 503, code: "overloaded", retry_after: Some(takes) });
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.prompt_tokens += u64::from(request.prompt_tokens);
        self.waiting.push_back((id, *request, takes));
        self.fill(now);
        Admission::Accepted(id)
    }

    pub(super) fn cancel(&mut self, now: Instant, id: RequestId) -> bool {
        if self.running.cancel(id) {
            self.fill(now);
            return true;
        }
        match self.waiting.binary_search_by_key(&id, |(waiting, ..)| *waiting) {
            Ok(at) => self.waiting.remove(at).is_some(),
            Err(_) => false,
        }
    }

    pub(super) fn next_event_at(&self) -> Option<Instant> {
        self.running.next_at()
    }

    pub(super) fn advance(&mut self, now: Instant, out: &mut Vec<Emission>) {
        while let Some(finished) = self.running.pop(now, out) {
            if let Some(f) = finished {
                self.response_time.on_done(f.took.as_secs_f64());
                self.generation_tokens += u64::from(f.tokens);
                self.fill(f.at);
            }
        }
    }

    /// How it stands; `full` requests in it are load 1.
    pub(super) fn status(&self, full: u32) -> Status {
        let (running, waiting) = (self.running.len() as u32, self.waiting.len() as u32);
        Status {
            load: (f64::from(running + waiting) / f64::from(full.max(1))).min(1.0),
            response_time_s: self.response_time.0,
            running,
            waiting,
            prompt_tokens: self.prompt_tokens,
            generation_tokens: self.generation_tokens,
            ..Status::default()
        }
    }
}
