//! The load of one endpoint, 0..1: the last report, corrected by what was sent since.
//!
//! A report is a photograph: everybody who acts on the same one sends to the same endpoint until the next. So the requests
//! dispatched since the sample are added at a known load per request (water-filling; notes: algorithms, sections 0.1 and 3.1):
//! `L_c = L + replicas * c * (n - n_sample)`. Reports that are old, frozen, impossible or missing count for nothing and say so.

use super::{LoadReport, Unfit};
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;

/// Reports in a row with one and the same load, after which it is called frozen if own requests came and went meanwhile.
const FROZEN_REPORTS: u32 = 10;

/// Changes of the in-flight count that are remembered, to know what it was when a report was sampled.
const LOGGED: usize = 256;

/// Why a signal cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Degraded {
    /// No report has arrived, or polls fail.
    Missing,
    /// The last report is older than `max_age`.
    Old,
    /// The same load again and again although requests came and went.
    Frozen,
    /// A number that cannot be.
    Impossible,
}

impl Degraded {
    /// A short stable word for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Old => "old",
            Self::Frozen => "frozen",
            Self::Impossible => "impossible",
        }
    }
}

/// The load one request adds, by decayed least squares on changes between reports: changes leave the background out as far as it
/// drifts slowly.
#[derive(Clone, Copy, Debug)]
struct PerRequest {
    first_guess: f64,
    nn: f64,
    nl: f64,
}

impl PerRequest {
    /// Weight of the first guess, in squared requests.
    const PRIOR: f64 = 10.0;
    /// Part that is kept per report.
    const KEPT: f64 = 0.99;

    /// `more` requests were there, and the load was higher by `load`. Returns the new estimate.
    fn on_change(&mut self, more: f64, load: f64) -> f64 {
        self.nn = self.nn * Self::KEPT + more * more;
        self.nl = self.nl * Self::KEPT + more * load;
        ((self.nl + Self::PRIOR * self.first_guess) / (self.nn + Self::PRIOR)).clamp(1e-4, 1.0)
    }
}

/// The load of one endpoint.
#[derive(Clone, Debug)]
pub struct LoadSignal {
    /// Load that one own request adds, 0..1; learned where it was not given.
    pub per_request: f64,
    learned: Option<PerRequest>,
    max_age: Duration,
    replicas: f64,
    last: Option<LoadReport>,
    in_flight_then: u32,
    /// Own requests in flight from each instant on, oldest first, since the newest report's sample.
    log: VecDeque<(Instant, u32)>,
    dispatched_then: u64,
    same: u32,
    sent_while_same: u64,
    impossible: bool,
    by_answers: bool,
    in_flight: u32,
    /// When the first request was sent since the newest report.
    asked_at: Option<Instant>,
}

impl LoadSignal {
    /// A signal without a report yet.
    pub fn new(per_request: f64, max_age: Duration, replicas: f64) -> Self {
        Self {
            per_request,
            learned: None,
            max_age,
            replicas,
            last: None,
            in_flight_then: 0,
            log: VecDeque::new(),
            dispatched_then: 0,
            same: 0,
            sent_while_same: 0,
            impossible: false,
            by_answers: false,
            in_flight: 0,
            asked_at: None,
        }
    }

    /// Whether reports come with answers alone. Then an endpoint that is sent nothing has nothing to say: its last word is not old before
    /// `max_age` has passed since the first request that was to bring another, though its load counts for nothing by then.
    pub fn set_by_answers(&mut self, by_answers: bool) {
        self.by_answers = by_answers;
    }

    /// As [`LoadSignal::new`], but `first_guess` is corrected by what reports say when more or fewer own requests are there.
    pub fn learning(first_guess: f64, max_age: Duration, replicas: f64) -> Self {
        let learned = Some(PerRequest { first_guess, nn: 0.0, nl: 0.0 });
        Self { learned, ..Self::new(first_guess, max_age, replicas) }
    }

    /// Takes new settings; the last report stays. `per_request`: as for [`LoadSignal::new`]; `None` learns on, or from now on.
    pub fn set(&mut self, per_request: Option<f64>, first_guess: f64, max_age: Duration, replicas: f64) {
        (self.max_age, self.replicas) = (max_age, replicas);
        match (per_request, &self.learned) {
            (Some(given), _) => (self.per_request, self.learned) = (given, None),
            (None, Some(_)) => {}
            (None, None) => {
                self.per_request = first_guess;
                self.learned = Some(PerRequest { first_guess, nn: 0.0, nl: 0.0 });
            }
        }
    }

    /// From `now` on, `in_flight` own requests are there.
    pub fn on_in_flight(&mut self, now: Instant, in_flight: u32) {
        if in_flight > self.in_flight {
            self.asked_at.get_or_insert(now);
        }
        self.in_flight = in_flight;
        match self.log.back_mut() {
            Some(last) if last.0 >= now => last.1 = in_flight,
            _ => self.log.push_back((now, in_flight)),
        }
        if self.log.len() > LOGGED {
            self.log.pop_front();
        }
    }

    /// A report arrived after `dispatched` own requests in all. False if it was not taken: impossible, or sampled before the one held.
    pub fn on_report(&mut self, report: &LoadReport, dispatched: u64) -> bool {
        self.impossible = !report.is_possible();
        if self.impossible || self.last.is_some_and(|l| l.sampled_at >= report.sampled_at) {
            return false;
        }
        self.asked_at = None;
        let counters = |r: &LoadReport| [r.work.generated_total, r.work.prompt_total];
        let unchanged = self.last.as_ref().is_some_and(|last| {
            if counters(report).iter().any(Option::is_some) {
                counters(last) == counters(report)
            } else {
                report.load.is_some_and(|v| v > 0.0) && last.load == report.load
            }
        });
        if unchanged {
            self.same += 1;
            self.sent_while_same += dispatched.saturating_sub(self.dispatched_then);
        } else {
            (self.same, self.sent_while_same) = (0, 0);
        }
        let before = self.last.replace(*report).and_then(|l| l.load).map(|load| (load, self.in_flight_then));
        // As of the sample, not of its arrival: what was sent in between is not in the reported load.
        while self.log.get(1).is_some_and(|&(at, _)| at <= report.sampled_at) {
            self.log.pop_front();
        }
        let then = self.log.front().filter(|&&(at, _)| at <= report.sampled_at).map(|&(_, n)| n);
        self.in_flight_then = then.unwrap_or(if self.log.len() == LOGGED { self.log[0].1 } else { 0 });
        self.dispatched_then = dispatched;
        if let (Some(learned), Some((was, n)), Some(load)) = (&mut self.learned, before, report.load) {
            let more = self.replicas * (f64::from(self.in_flight_then) - f64::from(n));
            self.per_request = learned.on_change(more, load - was);
        }
        true
    }

    /// The newest report, whatever its age.
    pub fn last(&self) -> Option<&LoadReport> {
        self.last.as_ref()
    }

    /// Own requests in flight when the newest report was sampled.
    pub fn in_flight_then(&self) -> u32 {
        self.in_flight_then
    }

    /// The part of the newest reported load that was our own requests, 0..1.
    pub fn own_load(&self) -> f64 {
        self.load_of(self.in_flight_then)
    }

    /// The load that `requests` of ours put on the endpoint, those of all replicas alike, 0..1.
    pub fn load_of(&self, requests: u32) -> f64 {
        self.replicas * self.per_request * f64::from(requests)
    }

    /// The next instant after `now` at which the signal changes by time alone.
    pub fn expires_after(&self, now: Instant) -> Option<Instant> {
        let of_report = self.last.map(|l| l.sampled_at + self.held(&l));
        let of_silence = self.asked_at.filter(|_| self.by_answers).map(|at| at + self.max_age);
        [of_report, of_silence].into_iter().flatten().filter(|&at| at > now).min()
    }

    /// How long a report counts.
    fn held(&self, report: &LoadReport) -> Duration {
        report.holds_for.map_or(self.max_age, |held| held.max(self.max_age))
    }

    fn is_old(&self, now: Instant, report: &LoadReport) -> bool {
        if self.by_answers { self.is_silent(now) } else { now.since(report.sampled_at) >= self.held(report) }
    }

    /// Whether requests were sent for as long as a report counts, and brought none.
    fn is_silent(&self, now: Instant) -> bool {
        self.asked_at.is_some_and(|at| now.since(at) >= self.max_age)
    }

    /// A page could not be read: what an earlier one said that cannot be is no news any more, only that there is none.
    pub fn on_missed(&mut self) {
        self.impossible = false;
    }

    /// Why the endpoint should get nothing new at `now`, by a report that counts.
    pub fn unfit_at(&self, now: Instant) -> Option<Unfit> {
        self.last?.unfit.filter(|_| self.degraded_at(now).is_none())
    }

    /// Why the signal cannot be used at `now`, if so.
    pub fn degraded_at(&self, now: Instant) -> Option<Degraded> {
        match self.last {
            _ if self.impossible => Some(Degraded::Impossible),
            None if self.by_answers && !self.is_silent(now) => None,
            None => Some(Degraded::Missing),
            Some(l) if self.is_old(now, &l) => Some(Degraded::Old),
            Some(_) if self.same >= FROZEN_REPORTS && self.sent_while_same >= u64::from(FROZEN_REPORTS) => {
                Some(Degraded::Frozen)
            }
            Some(l) if l.is_empty() => Some(Degraded::Missing),
            Some(_) => None,
        }
    }

    /// The load at `now` with `in_flight` own requests there, from 0 up; above 1 only by own credit. `None` when degraded.
    pub fn load_at(&self, now: Instant, in_flight: u32) -> Option<f64> {
        if self.degraded_at(now).is_some() {
            return None;
        }
        let last = self.last.filter(|l| now.since(l.sampled_at) < self.held(l))?;
        let reported = last.load?;
        let sent = f64::from(in_flight) - f64::from(self.in_flight_then);
        Some((reported + self.replicas * self.per_request * sent).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(ms)
    }
    fn signal() -> LoadSignal {
        LoadSignal::new(0.1, Duration::from_secs(3), 1.0)
    }
    fn report(ms: u64, load: f64) -> LoadReport {
        LoadReport { sampled_at: at(ms), load: Some(load), ..LoadReport::default() }
    }

    #[test]
    fn a_burst_between_two_reports_is_counted() {
        // gateways.md 9: N concurrent requests inside one interval all went to the same endpoint.
        let mut s = signal();
        s.on_in_flight(at(0), 1);
        assert!(s.on_report(&report(0, 0.2), 1));
        assert_eq!(s.load_at(at(10), 1), Some(0.2));
        assert!((s.load_at(at(10), 5).unwrap() - 0.6).abs() < 1e-12);
        assert!((s.load_at(at(10), 0).unwrap() - 0.1).abs() < 1e-12);
    }

    #[test]
    fn what_was_sent_between_sample_and_arrival_is_credited() {
        let mut s = signal();
        for k in 1..=5 {
            s.on_in_flight(at(100 * k), k as u32);
        }
        assert!(s.on_report(&report(250, 0.2), 5));
        assert_eq!(s.in_flight_then(), 2);
        assert!((s.load_at(at(510), 5).unwrap() - 0.5).abs() < 1e-12);
        for k in 0..10 * LOGGED as u64 {
            s.on_in_flight(at(1000 + k), 1);
        }
        assert_eq!(s.log.len(), LOGGED);
    }

    #[test]
    fn the_load_of_one_request_is_learned_where_it_was_not_given() {
        let mut s = LoadSignal::learning(0.01, Duration::from_secs(3), 1.0);
        for k in 0..200u64 {
            let n = (k * 7 % 5) as u32;
            s.on_in_flight(at(k * 100), n);
            s.on_report(&report(k * 100, 0.1 + 0.15 * f64::from(n)), k);
        }
        assert!((s.per_request - 0.15).abs() < 0.01, "{}", s.per_request);
    }

    #[test]
    fn a_missing_signal_is_never_an_idle_endpoint() {
        let s = signal();
        assert_eq!((s.load_at(at(0), 0), s.degraded_at(at(0))), (None, Some(Degraded::Missing)));
    }

    #[test]
    fn old_impossible_and_late_reports_do_not_count() {
        let mut s = signal();
        s.on_report(&report(1000, 0.5), 0);
        assert!(!s.on_report(&report(900, 0.1), 0), "a late report must not replace a newer one");
        assert_eq!(s.load_at(at(1000), 0), Some(0.5));
        assert_eq!(s.degraded_at(at(4000)), Some(Degraded::Old));
        assert!(!s.on_report(&report(4100, 7.0), 0));
        assert_eq!(s.degraded_at(at(4100)), Some(Degraded::Impossible));
        assert!(s.on_report(&report(4200, 0.7), 0));
        assert_eq!(s.degraded_at(at(4200)), None);
    }

    #[test]
    fn a_report_holds_as_long_as_it_says_where_it_is_asked_for_less_often() {
        let mut s = signal();
        let slow = LoadReport { holds_for: Some(Duration::from_secs(12)), ..report(0, 0.5) };
        s.on_report(&slow, 0);
        assert_eq!((s.degraded_at(at(11_000)), s.load_at(at(11_000), 0)), (None, Some(0.5)));
        assert_eq!((s.degraded_at(at(12_000)), s.expires_after(at(0))), (Some(Degraded::Old), Some(at(12_000))));
        let quick = LoadReport { holds_for: Some(Duration::from_millis(5)), ..report(20_000, 0.5) };
        s.on_report(&quick, 0);
        assert_eq!(s.degraded_at(at(22_000)), None, "never shorter than configured");
    }

    #[test]
    fn who_tells_with_answers_is_not_old_while_nothing_is_asked() {
        let mut s = signal();
        s.set_by_answers(true);
        assert_eq!((s.degraded_at(at(60_000)), s.load_at(at(60_000), 0)), (None, None), "nothing was sent so far");
        s.on_in_flight(at(60_000), 1);
        assert_eq!(s.expires_after(at(60_000)), Some(at(63_000)));
        assert_eq!(s.degraded_at(at(63_000)), Some(Degraded::Missing), "asked, and told nothing");
        s.on_report(&report(63_500, 0.95), 1);
        s.on_in_flight(at(63_600), 0);
        assert_eq!((s.degraded_at(at(90_000)), s.load_at(at(65_000), 1)), (None, Some(0.95)));
        assert_eq!(s.load_at(at(90_000), 0), None, "a last word that is old keeps nobody out");
        s.on_in_flight(at(90_000), 1);
        s.on_in_flight(at(91_000), 2);
        assert_eq!((s.degraded_at(at(92_999)), s.degraded_at(at(93_000))), (None, Some(Degraded::Old)));
    }

    #[test]
    fn an_unfit_endpoint_is_so_as_long_as_its_report_counts() {
        let mut s = signal();
        s.on_report(&LoadReport { load: None, unfit: Some(Unfit::GpuTooHot), ..report(0, 0.0) }, 0);
        assert_eq!((s.unfit_at(at(2999)), s.degraded_at(at(2999))), (Some(Unfit::GpuTooHot), None));
        assert_eq!(s.unfit_at(at(3000)), None, "what is old counts for nothing");
    }

    #[test]
    fn a_page_that_was_impossible_and_is_gone_is_old_or_missing() {
        let mut s = signal();
        assert!(!s.on_report(&report(0, 7.0), 0));
        assert_eq!(s.degraded_at(at(100)), Some(Degraded::Impossible));
        s.on_missed();
        assert_eq!(s.degraded_at(at(200)), Some(Degraded::Missing));
        s.on_report(&report(300, 0.5), 0);
        s.on_report(&report(400, 7.0), 0);
        s.on_missed();
        assert_eq!((s.degraded_at(at(500)), s.degraded_at(at(3300))), (None, Some(Degraded::Old)));
    }

    #[test]
    fn a_load_that_does_not_move_under_traffic_is_frozen() {
        let mut s = signal();
        for k in 0..=10 {
            s.on_report(&report(k * 100, 0.4), k * 3);
        }
        assert_eq!(s.degraded_at(at(1000)), Some(Degraded::Frozen));
        s.on_report(&report(1100, 0.41), 40);
        assert_eq!(s.degraded_at(at(1100)), None);
        let mut idle = signal();
        for k in 0..=20 {
            idle.on_report(&report(k * 100, 0.4), 0);
        }
        assert_eq!(idle.degraded_at(at(2000)), None, "no traffic, no suspicion");
    }
}
