//! A new or returned endpoint gets its share back by time, never by a switch.
//!
//! The share `a` of a returned endpoint starts at 1/16 and doubles every `D = max(20 ms, median time to first byte)`: by time, not per
//! success, so that many replicas need not each wait for their own. New endpoints follow configured steps. Either way a decision may use
//! the endpoint only if three tests pass (notes: breaker, section 5.3):
//!
//! - *share*: rules that follow shares, with probability `a f`. Rules that chase load would send it everything that passes, as it is
//!   idle: for them a bucket that each admission of the pool fills by `1.05 a f w / sum(w)`.
//! - *coldness* `f = clamp((1.3 lat0 / lat)^2, 0.05, 1)`: first bytes slower than before the trip mean that it is not warm yet.
//! - *in flight* `< ceil(m + 3 sqrt(m))`, `m = a L0`, `L0 = rate x total time` (Little): a Poisson quantile, so that one rule holds for one
//!   gateway with many requests and for many with one each.

use crate::pool::config::WarmUpStep;
use crate::rng::Rng;
use crate::time::{Duration, Instant, duration_from_secs};

/// First share of a returned endpoint.
const FIRST: f64 = 1.0 / 16.0;
/// Tokens a held-back endpoint can save up beside 20 ms of its rate.
const DEPTH: f64 = 2.0;
/// Shortest time per doubling, seconds.
const SHORTEST_S: f64 = 0.02;
/// Time per doubling where no time to first byte is known, seconds.
const UNKNOWN_S: f64 = 0.1;
/// Rules that chase load keep their bucket at least so long at the full share.
const CHASED_FOR: Duration = Duration::from_secs(3);
/// At the full share for so long, it is over, whatever is refused.
const AT_LAST: Duration = Duration::from_secs(60);

/// Times of an endpoint while it was well, seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Mean time to first byte.
    pub(crate) first_byte_s: Option<f64>,
    /// Mean time to the end.
    pub(crate) total_s: Option<f64>,
}

impl Pace {
    /// A first byte came `s` seconds after its dispatch.
    pub(crate) fn on_first_byte(&mut self, s: f64) {
        average(&mut self.first_byte_s, s);
    }

    /// A request ended `s` seconds after its dispatch.
    pub(crate) fn on_total(&mut self, s: f64) {
        average(&mut self.total_s, s);
    }
}

fn average(mean: &mut Option<f64>, sample: f64) {
    *mean = Some(mean.map_or(sample, |m| m + (sample - m) / 32.0));
}

/// What a decision knows that the ramp does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// The policy goes where load is lowest, and not by share.
    pub(crate) chases_load: bool,
    /// Own requests in flight at the endpoint.
    pub(crate) in_flight: u32,
    /// What it would have in flight if it were like the others.
    pub(crate) usual_in_flight: f64,
    /// The endpoint's fair part of the pool's requests, per second.
    pub(crate) rate: f64,
}

/// What happened lately at the full share.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    asked: u32,
    refused: u32,
    /// Sums over decisions: requests in flight, and what the others had.
    load: f64,
    usual: f64,
    ended: u32,
    failed: u32,
    /// Windows in a row in which almost nothing was held back.
    calm: u32,
}

impl Window {
    fn new(since: Instant, calm: u32) -> Self {
        Self { since, asked: 0, refused: 0, load: 0.0, usual: 0.0, ended: 0, failed: 0, calm }
    }

    /// Near capacity single refusals are normal: only more than 8 % are failures of the endpoint.
    fn fails(&self) -> bool {
        f64::from(self.failed) > 0.08 * f64::from(self.ended)
    }

    /// The one after it. Failures that were too few to be judged are kept until there are enough outcomes to judge them by.
    fn next(&self, now: Instant, calm: bool) -> Self {
        let (ended, failed) = if self.fails() { (self.ended, self.failed) } else { (0, 0) };
        Self { ended, failed, ..Self::new(now, if calm { self.calm + 1 } else { 0 }) }
    }
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// The pool's warm-up steps.
    Steps,
    /// Doublings.
    Doubling { next: Instant },
}

/// How an endpoint is being ramped up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ramp {
    form: Form,
    since: Instant,
    share: f64,
    unit: Duration,
    tokens: f64,
    before: Pace,
    latency_s: Option<f64>,
    latency_at: Instant,
    full_since: Option<Instant>,
    window: Window,
}

impl Ramp {
    /// Doublings from 1/16. `median_s`: usual time to first byte; `start`, uniform in 0..1: so that replicas do not send their first
    /// request together.
    pub(crate) fn doubling(now: Instant, before: Pace, median_s: Option<f64>, start: f64) -> Self {
        let unit = duration_from_secs(median_s.or(before.first_byte_s).unwrap_or(UNKNOWN_S).max(SHORTEST_S));
        Self::new(now, Form::Doubling { next: now + unit }, FIRST, unit, before, start)
    }

    /// The pool's warm-up steps.
    pub(crate) fn steps(now: Instant, steps: &[WarmUpStep], before: Pace) -> Self {
        let unit = duration_from_secs(before.first_byte_s.unwrap_or(UNKNOWN_S).max(SHORTEST_S));
        let share = steps.first().map_or(1.0, |s| s.share);
        Self::new(now, Form::Steps, share, unit, before, 0.0)
    }

    fn new(now: Instant, form: Form, share: f64, unit: Duration, before: Pace, tokens: f64) -> Self {
        let window = Window::new(now, 0);
        let full_since = (share >= 1.0).then_some(now);
        Self { form, since: now, share, unit, tokens, before, latency_s: None, latency_at: now, full_since, window }
    }

    /// Whether the endpoint was in use before.
    pub(crate) fn is_recovery(&self) -> bool {
        matches!(self.form, Form::Doubling { .. })
    }

    /// When it began.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// The share, up to 1.
    pub(crate) fn share(&self) -> f64 {
        self.share
    }

    /// Lets time pass. `oldest`: when the oldest request that waits was sent. True once the ramp is over.
    pub(crate) fn on_time(
        &mut self,
        now: Instant,
        steps: &[WarmUpStep],
        oldest: Option<Instant>,
        chases: bool,
    ) -> bool {
        let patience = duration_from_secs(4.0 * self.before.first_byte_s.unwrap_or(f64::INFINITY));
        match &mut self.form {
            Form::Steps => {
                let age = now.since(self.since);
                let reached = steps.iter().rev().find(|s| s.at <= age).map(|s| s.share);
                // A pool that has no steps any more holds nobody back by them.
                self.share = reached.unwrap_or(if steps.is_empty() { 1.0 } else { self.share });
                return self.share >= 1.0;
            }
            Form::Doubling { next } => {
                while self.share < 1.0 && *next <= now {
                    if oldest.is_none_or(|at| *next <= at + patience) {
                        self.share = (2.0 * self.share).min(1.0);
                        *next = *next + self.unit;
                    } else {
                        // Somebody waits too long: ask again a unit later.
                        *next = now + self.unit;
                    }
                }
            }
        }
        if self.share < 1.0 {
            return false;
        }
        if self.full_since.is_none() {
            self.full_since = Some(now);
            self.window = Window::new(now, 0);
        }
        let hangs = oldest.is_some_and(|at| now > at + patience);
        self.is_over(now, chases, hangs)
    }

    /// At the full share: whether almost nothing is held back any more, and nothing fails or `hangs`.
    fn is_over(&mut self, now: Instant, chases: bool, hangs: bool) -> bool {
        if self.full_since.is_some_and(|since| now.since(since) >= AT_LAST) {
            return true;
        }
        if now < self.window.since + self.hold() {
            return false;
        }
        let w = self.window;
        // A rule that chases load asks for more than its part until the endpoint is as busy as the others, and no herd comes from then on.
        // Where the others have less than one request each there is no load to chase.
        let like_others = w.load >= 0.7 * w.usual || w.usual < f64::from(w.asked);
        let free = if chases { like_others } else { 50 * w.refused <= w.asked };
        // Some break ties by the rate of the last second, so its memory has to fade as well.
        let long = !chases || self.full_since.is_some_and(|since| now.since(since) >= CHASED_FOR);
        let calm = free && long && !hangs && !w.fails() && self.slowness_at(now) <= 1.5;
        self.window = w.next(now, calm);
        self.window.calm >= if chases { 2 } else { 1 }
    }

    /// Length of a window: 0.5 s, or 20 times to first byte.
    fn hold(&self) -> Duration {
        (self.unit * 20).max(Duration::from_millis(500))
    }

    /// When time alone next changes something.
    pub(crate) fn next_change_at(&self, now: Instant, steps: &[WarmUpStep]) -> Option<Instant> {
        match self.form {
            Form::Steps => steps.iter().map(|s| self.since + s.at).find(|&t| t > now),
            Form::Doubling { next } if self.share < 1.0 => Some(next),
            Form::Doubling { .. } => Some(self.window.since + self.hold()),
        }
    }

    /// The pool admitted a request: `fair` is this endpoint's full part of the traffic, 0..1.
    pub(crate) fn on_admission(&mut self, now: Instant, fair: f64, rate: f64) {
        let depth = DEPTH + 0.02 * rate;
        self.tokens = (self.tokens + 1.05 * self.share * self.coldness_at(now) * fair).min(depth);
    }

    /// Whether this decision may use the endpoint.
    pub(crate) fn passes(&mut self, now: Instant, ask: Ask, rng: &mut Rng) -> bool {
        let shared = if ask.chases_load {
            self.tokens >= 1.0
        } else {
            let p = self.share * self.coldness_at(now);
            p >= 1.0 || rng.unit() < p
        };
        let passes = shared && ask.in_flight < self.most_in_flight(ask.rate);
        self.window.asked += 1;
        self.window.load += f64::from(ask.in_flight);
        self.window.usual += ask.usual_in_flight;
        self.window.refused += u32::from(!passes);
        passes
    }

    /// `ceil(m + 3 sqrt(m))`, at least 1; without a bound where no total time is known.
    fn most_in_flight(&self, rate: f64) -> u32 {
        let Some(total_s) = self.before.total_s else { return u32::MAX };
        (libm::ceil(quantile(self.share * rate * total_s)) as u32).max(1)
    }

    /// A request went there.
    pub(crate) fn on_dispatch(&mut self) {
        self.tokens = (self.tokens - 1.0).max(0.0);
    }

    /// A request of this generation got its first byte `took_s` seconds after it was sent.
    pub(crate) fn on_first_byte(&mut self, now: Instant, took_s: f64) {
        self.window.ended += 1;
        let Some(lat0) = self.before.first_byte_s else { return };
        let then = self.latency_at(now).unwrap_or(lat0);
        // The last eight, or the last ten usual times to first byte.
        let aged = 1.0 - libm::exp(-now.secs_since(self.latency_at) / (10.0 * lat0).max(1e-6));
        let weight = if self.latency_s.is_none() { 1.0 } else { aged.max(1.0 / 8.0) };
        self.latency_s = Some(then + weight * (took_s - then));
        self.latency_at = now;
    }

    /// A request of this generation failed. True if the endpoint has to open again.
    pub(crate) fn on_failure(&mut self, now: Instant) -> bool {
        self.window.ended += 1;
        self.window.failed += 1;
        // Near capacity single refusals are normal.
        let few = self.window.failed < 3 || !self.window.fails();
        if few && self.share >= 1.0 && self.is_recovery() {
            return false;
        }
        !self.halve(now)
    }

    /// A step failed. False where there is none to go back to.
    pub(crate) fn halve(&mut self, now: Instant) -> bool {
        let Form::Doubling { next } = &mut self.form else { return true };
        let was = self.share;
        self.share = (was / 2.0).max(FIRST);
        *next = now + self.unit * 2;
        self.full_since = None;
        was > FIRST
    }

    /// `clamp((1.3 lat0 / lat)^2, 0.05, 1)`.
    fn coldness_at(&self, now: Instant) -> f64 {
        let slowness = self.slowness_at(now);
        if slowness <= 1.3 { 1.0 } else { (1.69 / (slowness * slowness)).clamp(0.05, 1.0) }
    }

    /// First bytes now over first bytes before.
    fn slowness_at(&self, now: Instant) -> f64 {
        match (self.latency_at(now), self.before.first_byte_s) {
            (Some(latency), Some(lat0)) if lat0 > 0.0 => latency / lat0,
            _ => 1.0,
        }
    }

    /// Time to first byte now, fading back to what it was before while no sample comes.
    fn latency_at(&self, now: Instant) -> Option<f64> {
        let (latency, lat0) = (self.latency_s?, self.before.first_byte_s?);
        let gone = now.secs_since(self.latency_at) / (10.0 * self.unit.as_secs_f64());
        Some(lat0 + (latency - lat0) * libm::exp(-gone))
    }
}

/// A number that a Poisson count of mean `m` rarely exceeds.
pub(crate) fn quantile(m: f64) -> f64 {
    m + 3.0 * libm::sqrt(m)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> Instant {
        Instant::from_secs_f64(s)
    }
    const PACE: Pace = Pace { first_byte_s: Some(0.1), total_s: Some(0.1) };

    #[test]
    fn default_steps() {
        let steps = WarmUpStep::defaults();
        let share = |s: f64| {
            let mut ramp = Ramp::steps(at(10.0), &steps, PACE);
            (ramp.on_time(at(s), &steps, None, false), ramp.share())
        };
        assert_eq!([share(10.0), share(39.0), share(40.0)], [(false, 0.25), (false, 0.25), (false, 0.5)]);
        assert_eq!(share(70.0), (true, 1.0));
        assert_eq!(Ramp::steps(at(10.0), &steps, PACE).next_change_at(at(41.0), &steps), Some(at(70.0)));
    }

    #[test]
    fn recovery_doubles_with_time_and_waits_for_who_waits_too_long() {
        let pace = Pace { first_byte_s: Some(0.06), ..PACE };
        let mut ramp = Ramp::doubling(at(0.0), pace, Some(0.1), 0.0);
        let mut share = |s: f64, oldest: Option<Instant>| {
            ramp.on_time(at(s), &[], oldest, false);
            ramp.share()
        };
        assert_eq!([share(0.0, None), share(0.15, None)], [1.0 / 16.0, 0.125]);
        assert_eq!(share(0.45, Some(at(0.0))), 0.25, "up to four usual times nobody waits too long");
        assert_eq!(share(0.5, Some(at(0.0))), 0.25);
        assert_eq!((share(0.6, None), share(1.0, None)), (0.5, 1.0));
    }

    #[test]
    fn a_failure_at_the_first_step_opens_and_later_ones_step_back() {
        let mut ramp = Ramp::doubling(at(0.0), PACE, None, 0.0);
        assert!(ramp.on_failure(at(0.05)));
        let mut ramp = Ramp::doubling(at(0.0), PACE, None, 0.0);
        ramp.on_time(at(0.21), &[], None, false);
        assert_eq!((ramp.share(), ramp.on_failure(at(0.22)), ramp.share()), (0.25, false, 0.125));
        ramp.on_time(at(0.40), &[], None, false);
        assert_eq!(ramp.share(), 0.125, "a pause of two units");
    }

    #[test]
    fn one_refusal_near_capacity_is_no_step_back() {
        let mut ramp = Ramp::doubling(at(0.0), PACE, None, 0.0);
        ramp.on_time(at(0.5), &[], None, false);
        (0..40).for_each(|_| ramp.on_first_byte(at(0.5), 0.1));
        assert!(!ramp.on_failure(at(0.5)) && !ramp.on_failure(at(0.5)) && ramp.share() == 1.0);
        assert!(!ramp.on_failure(at(0.5)) && ramp.share() == 1.0, "three of 43 are less than 8 %");
        assert!(!ramp.on_failure(at(0.5)) && ramp.share() == 0.5);
    }

    #[test]
    fn a_ramp_is_not_over_while_something_hangs_or_fails() {
        let over = |oldest: Option<Instant>, failures: u32| {
            let mut ramp = Ramp::doubling(at(0.0), PACE, None, 0.0);
            assert!(!ramp.on_time(at(0.5), &[], None, false) && ramp.share() == 1.0);
            (0..failures).for_each(|_| assert!(!ramp.on_failure(at(1.0))));
            (ramp.on_time(at(3.0), &[], oldest, false), ramp)
        };
        assert!(over(None, 0).0 && over(Some(at(2.9)), 0).0);
        assert!(!over(Some(at(2.0)), 0).0, "one waits ten usual times");
        let (over, mut ramp) = over(None, 2);
        assert!(!over && !ramp.on_failure(at(3.1)) && ramp.share() == 0.5, "the third within two windows steps back");
    }

    #[test]
    fn a_cold_engine_is_held_back_and_forgiven_with_time() {
        let mut ramp = Ramp::doubling(at(0.0), PACE, None, 0.0);
        ramp.on_first_byte(at(1.0), 0.3);
        assert!((ramp.coldness_at(at(1.0)) - 1.69 / 9.0).abs() < 1e-9);
        assert_eq!(ramp.coldness_at(at(10.0)), 1.0);
        ramp.on_first_byte(at(10.0), 100.0);
        assert_eq!(ramp.coldness_at(at(10.0)), 0.05);
    }
}
