//! A budget for the whole pool: retries may add a stated share of traffic and no more, so an outage is not multiplied by them.
//!
//! Finagle's rule in fixed point: each admission deposits `ratio`, each retry withdraws 1, the balance is bounded. A fresh pool gets its
//! first retries in advance, so that it can retry before traffic paid for them; the first deposits pay that back, so over any run of
//! some length attempts stay within `(1 + ratio) x requests` and not a retry more. Fixed point, since a million deposits of 0.2 in
//! floating point drift.

/// The balance, in thousandths of a retry.
#[derive(Clone, Copy, Debug)]
pub struct RetryBudget {
    deposit: u32,
    balance: u32,
    /// What was given in advance and is not paid back yet.
    owed: u32,
}

/// Retries a full budget holds.
const CAPACITY: u32 = 100_000;
/// Retries a fresh pool may make before any traffic paid for them.
const START: u32 = 10_000;

impl RetryBudget {
    /// A budget of `ratio` retries per admission (0..1).
    pub fn new(ratio: f64) -> Self {
        let deposit = (ratio.clamp(0.0, 1.0) * 1000.0) as u32;
        let advance = if deposit == 0 { 0 } else { START };
        Self { deposit, balance: advance, owed: advance }
    }

    /// A first attempt was admitted.
    pub fn on_admission(&mut self) {
        let paid_back = self.owed.min(self.deposit);
        self.owed -= paid_back;
        self.balance = (self.balance + self.deposit - paid_back).min(CAPACITY);
    }

    /// Takes one retry out, if there is one.
    pub fn withdraw(&mut self) -> bool {
        match self.balance.checked_sub(1000) {
            Some(rest) => {
                self.balance = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_stay_within_their_share() {
        let mut b = RetryBudget::new(0.2);
        let mut retries = 0;
        for _ in 0..10_000 {
            b.on_admission();
            while b.withdraw() {
                retries += 1;
            }
        }
        assert_eq!(retries, 2_000);
        assert!(!RetryBudget::new(0.0).withdraw());
        // The first ten come before any traffic paid for them.
        let mut fresh = RetryBudget::new(0.2);
        assert_eq!((0..20).filter(|_| fresh.withdraw()).count(), 10);
    }
}
