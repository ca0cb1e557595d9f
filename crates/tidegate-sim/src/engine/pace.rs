//! An engine whose own time may run faster, slower or not at all.
//!
//! The engine's time is a piecewise linear function of the driver's. Scaling time instead of every parameter keeps the models free
//! of it, is exact for all of them, and may change while requests are under way: `slow` by 4 quarters the pace of running streams
//! too, and `hang` stops them.

use tidegate_core::time::{Duration, Instant};

use super::{Admission, Emission, EngineModel, EngineRequest, RequestId, Status};

/// Maps the driver's time to the engine's: `inner = inner0 + (outer - outer0) * speed`.
#[derive(Clone, Copy, Debug)]
struct Pace {
    outer0: Instant,
    inner0: Instant,
    speed: f64,
}

impl Pace {
    fn inner(&self, outer: Instant) -> Instant {
        let passed = outer.since(self.outer0).as_nanos() as f64;
        self.inner0 + Duration::from_nanos((passed * self.speed) as u64)
    }

    /// The first outer instant at which the engine's time has reached `inner`; `None` while it stands still. Rounded up, by one
    /// nanosecond more than the exact value, so that a driver that wakes then finds the event due.
    fn outer(&self, inner: Instant) -> Option<Instant> {
        if self.speed <= 0.0 {
            return None;
        }
        if self.speed == 1.0 {
            return Some(self.outer0 + inner.since(self.inner0));
        }
        let passed = inner.since(self.inner0).as_nanos() as f64;
        Some(self.outer0 + Duration::from_nanos(libm::ceil(passed / self.speed) as u64 + 1))
    }

    fn set(&mut self, now: Instant, speed: f64) {
        *self = Self { outer0: now, inner0: self.inner(now), speed };
    }
}

/// A model with a pace.
pub struct Engine {
    model: Box<dyn EngineModel>,
    pace: Pace,
    speed: f64,
}

impl Engine {
    /// `model` running `speed` times as fast as its parameters say, `> 0`: a demo shrinks time with 10.
    pub fn new(model: Box<dyn EngineModel>, speed: f64) -> Self {
        let speed = speed.max(1e-6);
        Self { model, pace: Pace { outer0: Instant::ORIGIN, inner0: Instant::ORIGIN, speed }, speed }
    }

    /// From `now` on, everything takes `factor` times as long: 1 is normal, infinity stands still.
    pub fn set_slowdown(&mut self, now: Instant, factor: f64) {
        let speed = if factor.is_infinite() { 0.0 } else { self.speed / factor.max(1e-6) };
        self.pace.set(now, speed);
    }

    /// The driver's instant for one of the engine's that has passed.
    fn past(&self, inner: Instant, now: Instant) -> Instant {
        self.pace.outer(inner).map_or(now, |at| at.min(now))
    }
}

impl EngineModel for Engine {
    fn arrive(&mut self, now: Instant, request: &EngineRequest) -> Admission {
        match self.model.arrive(self.pace.inner(now), request) {
            Admission::Rejected(mut r) => {
                r.retry_after = r.retry_after.map(|d| d.div_f64(self.speed));
                Admission::Rejected(r)
            }
            accepted @ Admission::Accepted(_) => accepted,
        }
    }

    fn cancel(&mut self, now: Instant, id: RequestId) -> bool {
        self.model.cancel(self.pace.inner(now), id)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.pace.outer(self.model.next_event_at()?)
    }

    fn advance(&mut self, now: Instant, out: &mut Vec<Emission>) {
        // Standing still, nothing comes out, not even an answer that takes no time.
        if self.pace.speed <= 0.0 {
            return;
        }
        let first = out.len();
        self.model.advance(self.pace.inner(now), out);
        for e in out.iter_mut().skip(first) {
            e.at = self.past(e.at, now);
        }
    }

    fn status_at(&self, now: Instant) -> Status {
        let mut status = self.model.status_at(self.pace.inner(now));
        let speed = if self.pace.speed > 0.0 { self.pace.speed } else { self.speed };
        status.response_time_s /= speed;
        status
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixed::{Fixed, FixedParams};
    use super::super::{Detail, Emitted};
    use super::*;

    const REQUEST: EngineRequest =
        EngineRequest { prompt_tokens: 1, cached_tokens: 0, query: None, output_tokens: 10, stream: true };

    fn engine(speed: f64) -> Engine {
        Engine::new(Box::new(Fixed::new(FixedParams::default(), Detail::EveryToken)), speed)
    }

    fn ms(i: Instant) -> u64 {
        i.as_nanos() / 1_000_000
    }

    #[test]
    fn ten_times_the_speed_is_a_tenth_of_the_time() {
        let mut e = engine(10.0);
        e.arrive(Instant::from_secs_f64(1.0), &REQUEST);
        let mut out = Vec::new();
        while let Some(at) = e.next_event_at() {
            let before = out.len();
            e.advance(at, &mut out);
            assert!(out.len() > before, "the driver is never woken for nothing");
        }
        assert_eq!((ms(out[0].at), ms(out[10].at)), (1010, 1100));
        assert!(libm::fabs(e.status_at(Instant::from_secs_f64(2.0)).response_time_s - 0.1) < 1e-9);
    }

    #[test]
    fn a_hung_engine_freezes_its_streams_and_goes_on_where_it_was() {
        let mut e = engine(1.0);
        e.arrive(Instant::ORIGIN, &REQUEST);
        let mut out = Vec::new();
        e.advance(Instant::from_secs_f64(0.35), &mut out);
        e.set_slowdown(Instant::from_secs_f64(0.35), f64::INFINITY);
        assert_eq!(e.next_event_at(), None);
        e.advance(Instant::from_secs_f64(60.0), &mut out);
        assert_eq!(out.len(), 3);
        e.set_slowdown(Instant::from_secs_f64(60.0), 2.0);
        assert_eq!(e.next_event_at().map(ms), Some(60_100), "0.05 s were left, at half the pace");
        e.advance(Instant::from_secs_f64(61.3), &mut out);
        assert_eq!(out.last().map(|x| (ms(x.at), x.what)), Some((61_300, Emitted::Done { tokens: 10 })));
    }

    #[test]
    fn a_hung_engine_that_takes_no_time_still_hangs() {
        let params = FixedParams { delay_s: 0.0, ..FixedParams::default() };
        let mut e = Engine::new(Box::new(Fixed::new(params, Detail::EveryToken)), 1.0);
        e.set_slowdown(Instant::from_secs_f64(1.0), f64::INFINITY);
        e.arrive(Instant::from_secs_f64(2.0), &REQUEST);
        let mut out = Vec::new();
        e.advance(Instant::from_secs_f64(3.0), &mut out);
        assert!(out.is_empty() && e.next_event_at().is_none());
        e.set_slowdown(Instant::from_secs_f64(4.0), 1.0);
        e.advance(Instant::from_secs_f64(4.0), &mut out);
        assert_eq!(out.len(), 11, "ten tokens and the end");
    }
}
