//! Events per second over about the last second, in two words.

use crate::time::Instant;

/// A counter that fades with a time constant of one second: in a steady state its value is the rate per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    value: f64,
    updated: Instant,
}

impl Rate {
    /// One event happened.
    pub fn on_event(&mut self, now: Instant) {
        self.value = self.per_second_at(now) + 1.0;
        self.updated = self.updated.max(now);
    }

    /// The rate at `now`.
    pub fn per_second_at(&self, now: Instant) -> f64 {
        if self.value == 0.0 { 0.0 } else { self.value * libm::exp(-now.secs_since(self.updated)) }
    }
}
