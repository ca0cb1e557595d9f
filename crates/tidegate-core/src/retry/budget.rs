//! A budget for the whole pool: retries may add a stated share of traffic and no more, so an outage is not multiplied by them.
//!
//! Finagle's rule in fixed point: each admission deposits `ratio`, each retry withdraws 1; the balance is bounded, and a small floor
//! keeps a quiet pool able to retry. Fixed point, since a million deposits of 0.2 in floating point drift.

/// The balance, in thousandths of a retry.
#[derive(Clone, Copy, Debug)]
pub struct RetryBudget {
    deposit: u32,
    balance: u32,
}

/// Retries a full budget holds.
const CAPACITY: u32 = 100_000;
/// Retries a fresh pool may make before any traffic paid for them.
const START: u32 = 10_000;

impl RetryBudget {
    /// A budget of `ratio` retries per admission (0..1).
    pub fn new(ratio: f64) -> Self {
        let deposit = (ratio.clamp(0.0, 1.0) * 1000.0) as u32;
        Self { deposit, balance: if deposit == 0 { 0 } else { START } }
    }

    /// A first attempt was admitted.
    pub fn on_admission(&mut self) {
        self.balance = (self.balance + self.deposit).min(CAPACITY);
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
        assert_eq!(retries, 2_000 + 10);
        assert!(!RetryBudget::new(0.0).withdraw());
    }
}
