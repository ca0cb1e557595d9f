//! An engine that takes a fixed delay per request, whatever is asked.
//!
//! Either any number in parallel, or `slots` at a time with a first-come queue (1 slot: "serves one at a time"). A stream's tokens
//! are spread evenly over the delay, so that the whole answer takes exactly the delay.

use tidegate_core::time::{Duration, Instant};

use super::slots::Slots;
use super::{Admission, Detail, Emission, EngineModel, EngineRequest, RequestId, Status};

/// Parameters of [`Fixed`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedParams {
    /// Time a request occupies the engine, seconds, `>= 0`.
    pub delay_s: f64,
    /// Requests served at a time; `None`: any number.
    pub slots: Option<u32>,
    /// Requests that may wait for a slot before 503 `overloaded`.
    pub max_waiting: u32,
    /// In-flight requests that count as load 1 where there are no slots.
    pub full_at: u32,
}

impl Default for FixedParams {
    fn default() -> Self {
        Self { delay_s: 1.0, slots: None, max_waiting: 100_000, full_at: 64 }
    }
}

/// The fixed-delay engine.
#[derive(Debug)]
pub struct Fixed {
    params: FixedParams,
    delay: Duration,
    slots: Slots,
}

impl Fixed {
    /// An idle engine.
    pub fn new(params: FixedParams, detail: Detail) -> Self {
        let delay = tidegate_core::time::duration_from_secs(params.delay_s);
        Self { params, delay, slots: Slots::new(params.slots, params.max_waiting, params.delay_s, detail) }
    }
}

impl EngineModel for Fixed {
    fn arrive(&mut self, now: Instant, request: &EngineRequest) -> Admission {
        self.slots.arrive(now, request, self.delay)
    }

    fn cancel(&mut self, now: Instant, id: RequestId) -> bool {
        self.slots.cancel(now, id)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.slots.next_event_at()
    }

    fn advance(&mut self, now: Instant, out: &mut Vec<Emission>) {
        self.slots.advance(now, out);
    }

    fn status_at(&self, _now: Instant) -> Status {
        self.slots.status(self.params.slots.unwrap_or(self.params.full_at))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Emitted, Rejection};
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn request(output_tokens: u32, stream: bool) -> EngineRequest {
        EngineRequest { prompt_tokens: 8, cached_tokens: 0, query: None, output_tokens, stream }
    }

    fn accepted(a: Admission) -> RequestId {
        match a {
            Admission::Accepted(id) => id,
            Admission::Rejected(r) => panic!("rejected: {r:?}"),
        }
    }

    fn run(engine: &mut Fixed, until: Instant) -> Vec<(u64, u64, Emitted)> {
        let mut out = Vec::new();
        engine.advance(until, &mut out);
        out.iter().map(|e| (e.at.as_nanos() / 1_000_000, e.id.0, e.what)).collect()
    }

    #[test]
    fn a_stream_takes_the_delay_and_its_tokens_are_evenly_spread() {
        let mut e = Fixed::new(FixedParams { delay_s: 1.0, ..FixedParams::default() }, Detail::EveryToken);
        accepted(e.arrive(at(100), &request(4, true)));
        assert_eq!(e.next_event_at(), Some(at(350)));
        let got = run(&mut e, at(2000));
        let token = |k| Emitted::Token(k);
        let want = [(350, 0, token(1)), (600, 0, token(2)), (850, 0, token(3)), (1100, 0, token(4))];
        assert_eq!(got[..4], want);
        assert_eq!(got[4], (1100, 0, Emitted::Done { tokens: 4 }));
        assert_eq!(e.next_event_at(), None);
    }

    #[test]
    fn one_slot_serves_one_at_a_time_in_order() {
        let params = FixedParams { delay_s: 1.0, slots: Some(1), max_waiting: 2, ..FixedParams::default() };
        let mut e = Fixed::new(params, Detail::EveryToken);
        for _ in 0..3 {
            accepted(e.arrive(at(0), &request(5, false)));
        }
        let fourth = e.arrive(at(0), &request(5, false));
        assert!(
            matches!(fourth, Admission::Rejected(Rejection { status: 503, .. })),
            "the queue is bounded: {fourth:?}"
        );
        assert_eq!(e.status_at(at(0)).load, 1.0);
        let done = Emitted::Done { tokens: 5 };
        assert_eq!(run(&mut e, at(3000)), [(1000, 0, done), (2000, 1, done), (3000, 2, done)]);
    }

    #[test]
    fn a_cancelled_request_frees_its_slot_at_once() {
        let mut e = Fixed::new(FixedParams { slots: Some(1), ..FixedParams::default() }, Detail::EveryToken);
        let first = accepted(e.arrive(at(0), &request(1, false)));
        let second = accepted(e.arrive(at(0), &request(1, false)));
        let third = accepted(e.arrive(at(0), &request(1, false)));
        assert!(e.cancel(at(200), first) && !e.cancel(at(200), first));
        assert!(e.cancel(at(300), third));
        assert_eq!(run(&mut e, at(5000)), [(1200, second.0, Emitted::Done { tokens: 1 })]);
        assert_eq!(
            e.status_at(at(5000)),
            Status { response_time_s: 1.0, prompt_tokens: 24, generation_tokens: 1, ..Status::default() }
        );
    }

    #[test]
    fn first_and_done_leaves_the_middle_out() {
        let mut e = Fixed::new(FixedParams::default(), Detail::FirstAndDone);
        accepted(e.arrive(at(0), &request(10, true)));
        assert_eq!(
            run(&mut e, at(1000)),
            [(100, 0, Emitted::Token(1)), (1000, 0, Emitted::Token(10)), (1000, 0, Emitted::Done { tokens: 10 })]
        );
    }
}
