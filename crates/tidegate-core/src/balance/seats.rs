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
//! The places are learned: the number that runs stands still while others wait, tokens are made and there is memory. It is forgotten when more run, or when
//! somebody waits beside free ones.

use crate::load::WorkReport;

/// Weight of the newest answer in the mean time a place is held.
const WEIGHT: f64 = 0.05;
/// Reports in a row with the same number running, while others wait, after which that number is taken for that of the places: where work is
/// what requests wait for, the number running goes up and down.
const STEADY: u32 = 3;
/// Used share of KV memory above which requests may wait for that.
const MEMORY: f64 = 0.7;
/// Part of the places in use below which nobody waits for one.
const FREE: f64 = 0.9;

/// The places of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seats {
    /// How many ran in the newest reports in a row while others waited, and how many reports those are.
    running: f64,
    steady: u32,
    /// Tokens ever made, as told last: a page that stands still teaches nothing.
    made: f64,
    /// The places, once they are known.
    places: Option<f64>,
    held_s: Option<f64>,
}

impl Seats {
    /// The engine told how many run and wait.
    pub(super) fn on_report(&mut self, work: &WorkReport) {
        let (Some(running), Some(waiting), Some(made)) = (work.running, work.waiting, work.generated_total) else {
            *self = Self { held_s: self.held_s, ..Self::default() };
            return;
        };
        let stands_still = core::mem::replace(&mut self.made, made).to_bits() == made.to_bits();
        if self.places.is_some_and(|places| running > places) {
            self.places = None;
        }
        let is_memory = work.kv_usage.is_some_and(|k| k > MEMORY);
        if waiting < 1.0 || running < 1.0 || is_memory || stands_still {
            self.steady = 0;
            return;
        }
        // Who waits beside free places waits for something else.
        if self.places.is_some_and(|places| running < FREE * places) {
            self.places = None;
        }
        self.steady = if running.to_bits() == self.running.to_bits() { self.steady.saturating_add(1) } else { 1 };
        self.running = running;
        if self.steady >= STEADY {
            self.places = Some(self.running);
        }
    }

    /// An answer took so long from its first byte to its end.
    pub(super) fn on_end(&mut self, seconds: f64) {
        let held = self.held_s.get_or_insert(seconds);
        *held += WEIGHT * (seconds - *held);
    }

    /// Seconds that a place at an endpoint with `present` requests costs.
    pub(super) fn wait_s(&self, present: f64) -> f64 {
        let (Some(places), Some(held_s)) = (self.places, self.held_s) else { return 0.0 };
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
        (1..4).for_each(|k| seats.on_report(&told(64.0, 5.0, 0.4, f64::from(k))));
        seats.on_end(16.0);
        seats
    }

    #[test]
    fn a_full_batch_costs_its_wait_and_a_nearly_full_one_a_part_of_it() {
        let seats = full();
        // A place every quarter of a second; twenty-five wait before the newcomer.
        assert!((seats.wait_s(88.0) - 6.25).abs() < 0.1, "{}", seats.wait_s(88.0));
        let costs = [63.0, 56.0, 40.0].map(|n| seats.wait_s(n));
        assert!(costs[0] > 1.0 && costs[1] < costs[0] * 0.6 && costs[2] < 0.15, "{costs:?}");
        assert!(seats.wait_s(1e6).is_finite());
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
            assert_eq!(seats.wait_s(500.0), 0.0);
        }
    }

    #[test]
    fn places_that_turn_out_to_be_more_or_no_bound_are_forgotten() {
        for disproof in [told(65.0, 0.0, 0.4, 9.0), told(30.0, 3.0, 0.4, 9.0), WorkReport::default()] {
            let mut seats = full();
            seats.on_report(&disproof);
            assert_eq!(seats.wait_s(500.0), 0.0, "{disproof:?}");
        }
        let mut seats = full();
        seats.on_report(&told(10.0, 0.0, 0.1, 9.0));
        assert!(seats.wait_s(500.0) > 0.0, "a quiet hour does not take places away");
    }
}
