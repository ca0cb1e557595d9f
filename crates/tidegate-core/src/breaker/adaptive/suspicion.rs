//! Asking while in doubt: probes during an episode of the hard test.
//!
//! A request and a probe that fail for the same reason are told apart from a clump by the probe's own connection, and in a pool of 0.2
//! requests per second nothing else can. At once, then every 0.1 s five times, then doubling to 5 s, or to
//! 0.25 s while they fail. Each goes to one other endpoint too,
//! the control: if that fails as well, it is our network or everybody, and the probe counts as passed. A passed probe proves little,
//! as a half-dead engine answers its health path (notes: breaker, section 3.2).

use crate::time::{Duration, Instant};

/// Probes whose answer may still come.
const OUT: usize = 8;
const FAST: Duration = Duration::from_millis(100);
const SLOWEST: Duration = Duration::from_secs(5);
/// Longest wait after one that failed: what it says has to be of now.
const FAILING: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    number: u32,
    own: Option<bool>,
    control: Option<bool>,
    told: bool,
}

/// The probes of one episode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Suspicion {
    next_at: Option<Instant>,
    sent: u32,
    asked: [Asked; OUT],
    /// The newest probe with a verdict, and whether it failed.
    newest: Option<(u32, bool)>,
    /// The control of the probe decided last failed.
    control_failed: bool,
}

impl Suspicion {
    /// An episode began: ask at once.
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Self { next_at: Some(now), ..Self::default() };
    }

    /// The episode is over.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// When the next probe is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.next_at
    }

    /// Probe `number` was sent; `controlled`: to another endpoint too. No wait is longer than `cap`.
    pub(super) fn on_sent(&mut self, now: Instant, number: u32, controlled: bool, cap: Option<Duration>) {
        let place = self.sent as usize % OUT;
        self.asked[place] = Asked { number, own: None, control: (!controlled).then_some(true), told: false };
        self.sent += 1;
        let wait = if self.sent <= 5 { FAST } else { (FAST * 2u32.pow((self.sent - 5).min(6))).min(SLOWEST) };
        let wait = if self.corroborates() { wait.min(FAILING) } else { wait };
        self.next_at = Some(now + cap.map_or(wait, |cap| wait.min(cap)));
    }

    /// An answer. Says once per probe whether it failed, when that is known.
    pub(super) fn on_answer(&mut self, number: u32, of_control: bool, passed: bool) -> Option<bool> {
        let asked = self.asked[..].iter_mut().find(|a| a.number == number && number != 0)?;
        let part = if of_control { &mut asked.control } else { &mut asked.own };
        *part = Some(passed);
        let failed = match (asked.own?, asked.control) {
            (true, _) => false,
            // Its own control, and the one before: where every other connect fails, half of the controls pass.
            (false, control) => control? && !self.control_failed,
        };
        self.control_failed = asked.control == Some(false);
        if core::mem::replace(&mut asked.told, true) {
            return None;
        }
        if self.newest.is_none_or(|(newest, _)| number >= newest) {
            self.newest = Some((number, failed));
        }
        Some(failed)
    }

    /// Whether the newest probe that is decided failed.
    pub(super) fn corroborates(&self) -> bool {
        self.newest.is_some_and(|(_, failed)| failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_the_control_fails_as_well_it_is_our_network() {
        let mut s = Suspicion::default();
        s.begin(Instant::ORIGIN);
        s.on_sent(Instant::ORIGIN, 1, true, None);
        assert_eq!(s.on_answer(1, false, false), None, "the control has not said anything yet");
        assert_eq!(s.on_answer(1, true, false), Some(false));
        assert!(!s.corroborates());
        s.on_sent(Instant::ORIGIN, 2, true, None);
        assert_eq!((s.on_answer(2, true, true), s.on_answer(2, false, false)), (None, Some(false)), "nor right after");
        s.on_sent(Instant::ORIGIN, 3, true, None);
        assert_eq!((s.on_answer(3, true, true), s.on_answer(3, false, false)), (None, Some(true)));
        assert!(s.corroborates());
        s.on_sent(Instant::ORIGIN, 4, false, None);
        assert_eq!((s.on_answer(4, false, true), s.on_answer(4, false, false)), (Some(false), None));
        assert!(!s.corroborates(), "the newest counts");
        assert_eq!(s.on_answer(99, false, false), None);
    }

    #[test]
    fn probes_slow_down_to_one_in_five_seconds() {
        let (mut s, mut now) = (Suspicion::default(), Instant::ORIGIN);
        s.begin(now);
        let mut waits = std::vec::Vec::new();
        for number in 1..14 {
            s.on_sent(now, number, true, None);
            let next = s.next_at().unwrap();
            waits.push(next.since(now).as_millis());
            now = next;
        }
        assert_eq!(waits, [100, 100, 100, 100, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    }

    #[test]
    fn while_probes_fail_the_next_is_never_far() {
        let (mut s, mut now) = (Suspicion::default(), Instant::ORIGIN);
        s.begin(now);
        for number in 1..14 {
            s.on_sent(now, number, false, None);
            assert_eq!(s.on_answer(number, false, false), Some(true));
            let next = s.next_at().unwrap();
            assert!(next.since(now) <= FAILING, "{number}");
            now = next;
        }
    }
}
