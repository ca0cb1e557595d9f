//! Places in an engine's batch, where they and not its speed are what is scarce.
//!
//! An engine computes for at most so many requests at a time (vLLM's `max_num_seqs`); once they are taken a newcomer waits until one of them
//! ends, however few tokens stand before it. What an engine tells while requests wait shows how many places it has, and own answers show how
//! long one is held:
//!
//! ```text
//! seat_i = sqrt(C_i) ln(1 + e^z) h_i / C_i        z = (N_i + 1 - C_i) / sqrt(C_i)                       [s]
//! ```
//!
//! `C_i` places, `h_i` seconds from first byte to end, `N_i` requests present. Beyond `C_i` that is each one's wait, a place being free every
//! `h_i / C_i`; below it, what the last places are worth to those who come next, numbers in a batch of `C_i` going up and down by `sqrt(C_i)`.
//! The places are learned: the most that ever ran, once most of those that wait are seen to wait beside about as many, tokens being made and
//! memory being there. An engine whose totals fall was started anew.

use crate::load::WorkReport;

/// Weight of the newest answer in the mean time a place is held.
const WEIGHT: f64 = 0.05;
/// Requests that must have been seen to wait beside a full batch, over all reports.
const ENOUGH: f64 = 12.0;
/// Of one report as many of them count at most.
const CROWD: f64 = 6.0;
/// Part of all that were seen to wait that must have been seen so: where work is what requests wait for, they wait beside any number.
const PART: f64 = 0.6;
/// Part of the places in use at which a batch counts as full: at the moment of a report one may have ended.
const FULL: f64 = 0.98;
/// Requests seen to wait after which the older ones count half.
const REMEMBERED: f64 = 200.0;
/// Used share of KV memory above which requests may wait for that.
const MEMORY: f64 = 0.7;

/// The places of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seats {
    /// Most that ever ran.
    most: f64,
    /// Requests seen to wait: beside as many as ever ran, and beside fewer.
    full: f64,
    other: f64,
    /// Tokens ever made, as told last: a page that stands still teaches nothing.
    made: f64,
    held_s: Option<f64>,
}

impl Seats {
    /// The engine told how many run and wait.
    pub(super) fn on_report(&mut self, work: &WorkReport) {
        let (Some(running), Some(waiting), Some(made)) = (work.running, work.waiting, work.generated_total) else {
            *self = Self { held_s: self.held_s, ..Self::default() };
            return;
        };
        if made < self.made {
            // Another process.
            *self = Self { held_s: self.held_s, ..Self::default() };
        }
        let stands_still = core::mem::replace(&mut self.made, made).to_bits() == made.to_bits();
        if stands_still {
            return;
        }
        if running > self.most {
            (self.other, self.full) = (self.other + self.full, 0.0);
            self.most = running;
        }
        let is_memory = work.kv_usage.is_some_and(|k| k > MEMORY);
        if waiting < 1.0 || is_memory {
            return;
        }
        *(if running >= FULL * self.most { &mut self.full } else { &mut self.other }) += waiting.min(CROWD);
        if self.full + self.other > REMEMBERED {
            (self.full, self.other) = (self.full / 2.0, self.other / 2.0);
        }
    }

    /// The places, as far as they are known.
    pub(super) fn places(&self) -> Option<f64> {
        let is_known = self.full >= ENOUGH && self.full >= PART * (self.full + self.other);
        is_known.then_some(self.most).filter(|m| *m >= 1.0)
    }

    /// An answer took so long from its first byte to its end.
    pub(super) fn on_end(&mut self, seconds: f64) {
        let held = self.held_s.get_or_insert(seconds);
        *held += WEIGHT * (seconds - *held);
    }

    /// Seconds that a place at an endpoint with `present` requests costs. While its own places are not known, those of its peers are assumed
    /// as long as it was not seen to have more.
    pub(super) fn wait_s(&self, present: f64, of_peers: Option<f64>) -> f64 {
        let places = self.places().or(of_peers.filter(|&places| self.most <= places));
        let (Some(places), Some(held_s)) = (places, self.held_s) else { return 0.0 };
        let spread = libm::sqrt(places);
        let z = (present + 1.0 - places) / spread;
        // ln(1 + e^z), which is z from there on.
        let over = if z > 30.0 { z } else { libm::log1p(libm::exp(z)) };
        spread * over * held_s / places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(running: f64, waiting: f64, kv_usage: f64, made: f64) -> WorkReport {
        WorkReport {
            running: Some(running),
            waiting: Some(waiting),
            kv_usage: Some(kv_usage),
            generated_total: Some(made),
            ..WorkReport::default()
        }
    }

    fn full() -> Seats {
        let mut seats = Seats::default();
        (1..5).for_each(|k| seats.on_report(&told(64.0, 5.0, 0.4, f64::from(k))));
        seats.on_end(16.0);
        seats
    }

    #[test]
    fn a_full_batch_costs_its_wait_and_a_nearly_full_one_a_part_of_it() {
        let seats = full();
        // A place every quarter of a second; twenty-five wait before the newcomer.
        assert!((seats.wait_s(88.0, None) - 6.25).abs() < 0.1, "{}", seats.wait_s(88.0, None));
        let costs = [63.0, 56.0, 40.0].map(|n| seats.wait_s(n, None));
        assert!(costs[0] > 1.0 && costs[1] < costs[0] * 0.6 && costs[2] < 0.15, "{costs:?}");
        assert!(seats.wait_s(1e6, None).is_finite());
    }

    #[test]
    fn what_waits_for_work_or_memory_is_not_taken_for_a_full_batch() {
        let mut moving = Seats::default();
        (0..50).for_each(|k| moving.on_report(&told(40.0 + f64::from(k % 7), 5.0, 0.4, f64::from(k))));
        let mut memory = Seats::default();
        (0..50).for_each(|k| memory.on_report(&told(64.0, 5.0, 0.95, f64::from(k))));
        let mut idle = Seats::default();
        (0..50).for_each(|k| idle.on_report(&told(64.0, 0.0, 0.4, f64::from(k))));
        let mut frozen = Seats::default();
        (0..50).for_each(|_| frozen.on_report(&told(64.0, 5.0, 0.4, 9.0)));
        for mut seats in [moving, memory, idle, frozen] {
            seats.on_end(16.0);
            assert_eq!(seats.wait_s(500.0, None), 0.0);
        }
    }

    #[test]
    fn places_that_turn_out_to_be_more_or_no_bound_are_forgotten() {
        for disproof in [told(65.0, 0.0, 0.4, 9.0), told(64.0, 0.0, 0.4, 1.0), WorkReport::default()] {
            let mut seats = full();
            seats.on_report(&disproof);
            assert_eq!(seats.wait_s(500.0, None), 0.0, "{disproof:?}");
        }
        let mut seats = full();
        (0..4).for_each(|k| seats.on_report(&told(30.0, 6.0, 0.4, 10.0 + f64::from(k))));
        assert_eq!(seats.wait_s(500.0, None), 0.0, "who waits beside free places waits for something else");
        let mut seats = full();
        seats.on_report(&told(10.0, 0.0, 0.1, 9.0));
        assert!(seats.wait_s(500.0, None) > 0.0, "a quiet hour does not take places away");
    }

    #[test]
    fn places_of_peers_are_assumed_until_more_run() {
        let mut seats = Seats::default();
        seats.on_end(16.0);
        seats.on_report(&told(40.0, 0.0, 0.4, 1.0));
        assert!(seats.wait_s(80.0, None) == 0.0 && seats.wait_s(80.0, Some(64.0)) > 1.0);
        seats.on_report(&told(65.0, 0.0, 0.4, 2.0));
        assert_eq!(seats.wait_s(80.0, Some(64.0)), 0.0);
    }
}
