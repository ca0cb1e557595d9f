//! Events per second over about the last second, in two words.

use crate::time::Instant;

/// A counter that fades with a time constant of one second: in a steady state its value is the rate per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    value: f64,
    updated: Instant,
    rank: Option<f64>,
}

impl Rate {
    /// One event happened.
    pub fn on_event(&mut self, now: Instant) {
        self.value = self.per_second_at(now) + 1.0;
        self.updated = self.updated.max(now);
        self.rank = Some(libm::log(self.value) + self.updated.as_secs_f64());
    }

    /// One event happened; the rank, which costs a logarithm, is not kept.
    pub fn count(&mut self, now: Instant) {
        let x = now.secs_since(self.updated);
        let fade = if x < 0.01 { 1.0 - x * (1.0 - 0.5 * x) } else { libm::exp(-x) };
        self.value = self.value * fade + 1.0;
        self.updated = self.updated.max(now);
    }

    /// Orders rates, at whatever time, without an exponential: all fade alike, so `ln(value) + time of the last event` says which is
    /// higher. Lowest for one that saw no event.
    pub fn rank(&self) -> f64 {
        self.rank.unwrap_or(f64::NEG_INFINITY)
    }

    /// The rate at `now`.
    pub fn per_second_at(&self, now: Instant) -> f64 {
        if self.value == 0.0 { 0.0 } else { self.value * libm::exp(-now.secs_since(self.updated)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_order_as_rates_do_at_any_time() {
        let at = Instant::from_secs_f64;
        let (mut many, mut late, never) = (Rate::default(), Rate::default(), Rate::default());
        (0..5).for_each(|_| many.on_event(at(1.0)));
        late.on_event(at(2.0));
        for now in [2.0, 3.0, 10.0] {
            assert!(many.per_second_at(at(now)) > late.per_second_at(at(now)));
        }
        assert!(many.rank() > late.rank() && late.rank() > never.rank());
        late.on_event(at(3.0));
        assert!(late.per_second_at(at(3.0)) > many.per_second_at(at(3.0)) && late.rank() > many.rank());
    }
}
