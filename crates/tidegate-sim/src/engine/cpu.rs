//! A service on cores that all of its requests share: image recognition, classic models, any server with a thread per request.
//!
//! Processor sharing: with n requests on c cores each advances at the pace min(1, c/n). A request needs `base + per_token (prompt + answer)` of
//! core time. The model keeps the service every request has had since the start (all have the same pace), so a request ends when that sum reaches
//! its value at arrival plus its own need: one heap entry a request, O(log n) an event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::hash::FixedMap;
use tidegate_core::time::{Duration, Instant, duration_from_secs};

use super::account::Account;
use super::line::Line;
use super::{Admission, Detail, Emission, Emitted, EngineModel, EngineRequest, RequestId, Status};

/// Parameters of [`Cpu`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuParams {
    /// Cores, at least 1.
    pub cores: u32,
    /// Core time of a request, seconds.
    pub base_s: f64,
    /// Core time per token of prompt and answer, seconds.
    pub per_token_s: f64,
    /// Requests computed at a time, at least 1; others wait.
    pub max_running: u32,
    /// Requests that may wait before 503 `overloaded`.
    pub max_waiting: u32,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    request: EngineRequest,
    arrived: Instant,
    /// Service at its start and what it needs, nanoseconds.
    from: u64,
    need: u64,
    /// The token that comes next.
    next: u32,
}

impl Job {
    /// The service at which token `k` is due: the last one at the end.
    fn due(&self, k: u32) -> u64 {
        let share = u128::from(self.need) * u128::from(k) / u128::from(self.request.output_tokens.max(1));
        self.from.saturating_add(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

/// The service.
#[derive(Debug)]
pub struct Cpu {
    params: CpuParams,
    detail: Detail,
    jobs: FixedMap<RequestId, Job>,
    due: BinaryHeap<Reverse<(u64, RequestId)>>,
    waiting: Line<(EngineRequest, Instant)>,
    /// Service every running request has had since the start, nanoseconds, and until when.
    service: u64,
    until: Instant,
    account: Account,
}

impl Cpu {
    /// An idle service.
    pub fn new(params: CpuParams, detail: Detail) -> Self {
        Self {
            params,
            detail,
            jobs: FixedMap::default(),
            due: BinaryHeap::new(),
            waiting: Line::default(),
            service: 0,
            until: Instant::ORIGIN,
            account: Account::new(params.base_s),
        }
    }

    /// Time per service, at least 1.
    fn slowness(&self) -> f64 {
        (self.jobs.len() as f64 / f64::from(self.params.cores.max(1))).max(1.0)
    }

    /// Lets the service of all grow until `at`.
    fn grow(&mut self, at: Instant) {
        let passed = at.since(self.until).as_nanos() as f64;
        self.service += (passed / self.slowness()) as u64;
        self.until = at;
    }

    fn fill(&mut self) {
        while self.jobs.len() < self.params.max_running.max(1) as usize {
            let Some((id, (request, arrived))) = self.waiting.pop() else { break };
            let tokens = f64::from(request.prompt_tokens) + f64::from(request.output_tokens.max(1));
            let need = duration_from_secs(self.params.base_s + self.params.per_token_s * tokens).as_nanos();
            let need = u64::try_from(need).unwrap_or(u64::MAX);
            let next = if request.stream { 1 } else { request.output_tokens.max(1) };
            let job = Job { request, arrived, from: self.service, need, next };
            self.due.push(Reverse((job.due(next), id)));
            self.jobs.insert(id, job);
        }
    }

    /// The emission that is due, at `at`.
    fn emit(&mut self, id: RequestId, at: Instant, out: &mut Vec<Emission>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let (k, tokens) = (job.next, job.request.output_tokens.max(1));
        if job.request.stream {
            out.push(Emission { id, at, what: Emitted::Token(k) });
        }
        if k < tokens {
            job.next = if self.detail == Detail::EveryToken { k + 1 } else { tokens };
            self.due.push(Reverse((job.due(job.next), id)));
            return;
        }
        out.push(Emission { id, at, what: Emitted::Done { tokens } });
        self.account.on_done(at.secs_since(job.arrived), tokens);
        self.jobs.remove(&id);
        self.fill();
    }

    /// Keeps somebody who is there on top.
    fn drop_stale(&mut self) {
        while let Some(Reverse((_, id))) = self.due.peek() {
            if self.jobs.contains_key(id) {
                break;
            }
            self.due.pop();
        }
    }
}

impl EngineModel for Cpu {
    fn arrive(&mut self, now: Instant, request: &EngineRequest) -> Admission {
        let full = self.jobs.len() >= self.params.max_running.max(1) as usize;
        if full && self.waiting.len() >= self.params.max_waiting as usize {
            return self.account.overloaded();
        }
        let id = self.account.take();
        self.account.on_request(request);
        self.grow(now);
        self.waiting.push(id, (*request, now));
        self.fill();
        Admission::Accepted(id)
    }

    fn cancel(&mut self, now: Instant, id: RequestId) -> bool {
        self.grow(now);
        if self.jobs.remove(&id).is_some() {
            self.fill();
            self.drop_stale();
            return true;
        }
        self.waiting.remove(id)
    }

    fn next_event_at(&self) -> Option<Instant> {
        let Reverse((due, _)) = self.due.peek()?;
        let left = due.saturating_sub(self.service) as f64 * self.slowness();
        // Rounded up, so that a driver that wakes then finds it due.
        Some(
            self.until + Duration::from_nanos(libm::ceil(left) as u64 + u64::from(self.slowness() > 1.0 && left > 0.0)),
        )
    }

    fn advance(&mut self, now: Instant, out: &mut Vec<Emission>) {
        while let Some(at) = self.next_event_at().filter(|at| *at <= now) {
            let at = at.max(self.until);
            self.grow(at);
            let Some(Reverse((due, id))) = self.due.pop() else { break };
            self.service = self.service.max(due);
            self.emit(id, at, out);
            self.drop_stale();
        }
        self.grow(now.max(self.until));
    }

    fn status_at(&self, _now: Instant) -> Status {
        self.account.status(self.jobs.len(), self.waiting.len(), f64::from(self.params.cores))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rejection;
    use super::*;

    const PARAMS: CpuParams = CpuParams { cores: 2, base_s: 0.100, per_token_s: 0.0, max_running: 100, max_waiting: 1 };

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn request(output_tokens: u32, stream: bool) -> EngineRequest {
        EngineRequest { prompt_tokens: 9, cached_tokens: 0, query: None, output_tokens, stream }
    }

    /// Microseconds at which things come, rounded to ten, driven from event to event.
    fn play(service: &mut Cpu) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        while let Some(next) = service.next_event_at() {
            service.advance(next, &mut out);
        }
        out.iter().map(|e| (e.id.0, (e.at.as_nanos() + 5000) / 10_000 * 10)).collect()
    }

    #[test]
    fn up_to_the_cores_each_has_its_own_and_more_share_them() {
        for (requests, ends) in [(1, 100_000), (2, 100_000), (4, 200_000), (6, 300_000)] {
            let mut service = Cpu::new(PARAMS, Detail::EveryToken);
            for _ in 0..requests {
                service.arrive(at(0), &request(1, false));
            }
            assert_eq!(play(&mut service), (0..requests).map(|k| (k, ends)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn who_comes_or_leaves_changes_the_pace_of_all() {
        let one = CpuParams { cores: 1, ..PARAMS };
        let mut service = Cpu::new(one, Detail::EveryToken);
        let mut out = Vec::new();
        service.arrive(at(0), &request(1, false));
        service.advance(at(50), &mut out);
        service.arrive(at(50), &request(1, false));
        // Half is done; the other half takes twice as long beside another. That has then half of its own left, alone.
        assert_eq!(play(&mut service), [(0, 150_000), (1, 200_000)]);
        let mut service = Cpu::new(one, Detail::EveryToken);
        service.arrive(at(0), &request(1, false));
        service.arrive(at(0), &request(1, false));
        service.advance(at(100), &mut out);
        assert!(service.cancel(at(100), RequestId(0)) && !service.cancel(at(100), RequestId(0)));
        assert_eq!(play(&mut service), [(1, 150_000)]);
    }

    #[test]
    fn tokens_of_a_stream_are_spread_over_its_time_and_cost_some() {
        let params = CpuParams { per_token_s: 0.010, ..PARAMS };
        let mut service = Cpu::new(params, Detail::EveryToken);
        service.arrive(at(0), &request(3, true));
        // 100 ms, 9 tokens of prompt and 3 of the answer at 10 each.
        let expected = [(0, 73_330), (0, 146_670), (0, 220_000), (0, 220_000)];
        assert_eq!(play(&mut service), expected);
    }

    #[test]
    fn beyond_its_places_requests_wait_and_then_are_refused() {
        let mut service = Cpu::new(CpuParams { cores: 1, max_running: 1, ..PARAMS }, Detail::EveryToken);
        service.arrive(at(0), &request(1, false));
        service.arrive(at(0), &request(1, false));
        assert!(matches!(
            service.arrive(at(0), &request(1, false)),
            Admission::Rejected(Rejection { status: 503, .. })
        ));
        assert_eq!(play(&mut service), [(0, 100_000), (1, 200_000)]);
    }
}
