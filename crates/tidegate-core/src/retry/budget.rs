//! A budget for the whole pool: retries may add a stated share of traffic and no more, so an outage is not multiplied by them.
//!
//! Finagle's rule in fixed point: each admission deposits `ratio`, each retry withdraws 1. What can be saved up is bounded by the deposits
//! of the last ten seconds, and never below [`RESERVE`] for quiet pools: a busy pool in which an endpoint hangs has as many requests to
//! send elsewhere as it is busy. A fresh pool gets its first retries in advance, so that it can retry before traffic paid for them; the
//! first deposits pay that back, so over any run of some length attempts stay within `(1 + ratio) x requests` and not a retry more.
//! Fixed point, since a million deposits of 0.2 in floating point drift.

use crate::time::Instant;

/// Retries that can be saved up whatever the traffic, in thousandths.
const RESERVE: u64 = 100_000;
/// Retries a fresh pool may make before any traffic paid for them, in thousandths.
const START: u64 = 10_000;
/// Seconds whose deposits can be saved up.
const WINDOW: usize = 10;

/// The balance, in thousandths of a retry.
#[derive(Clone, Copy, Debug)]
pub struct RetryBudget {
    deposit: u64,
    balance: u64,
    /// What was given in advance and is not paid back yet.
    owed: u64,
    /// Deposits of each of the last seconds, and of all of them.
    recent: [u64; WINDOW],
    recent_sum: u64,
    second: u64,
}

impl RetryBudget {
    /// A budget of `ratio` retries per admission (0..1).
    pub fn new(ratio: f64) -> Self {
        let deposit = (ratio.clamp(0.0, 1.0) * 1000.0) as u64;
        let advance = if deposit == 0 { 0 } else { START };
        Self { deposit, balance: advance, owed: advance, recent: [0; WINDOW], recent_sum: 0, second: 0 }
    }

    /// Takes a new ratio. What was saved up stays: a change neither mints nor loses retries, but for the advance that a budget of 0 never
    /// got.
    pub fn set_ratio(&mut self, ratio: f64) {
        let fresh = Self::new(ratio);
        if self.deposit == 0 && self.balance == 0 {
            (self.balance, self.owed) = (fresh.balance, fresh.owed);
        } else if fresh.deposit == 0 {
            (self.balance, self.owed) = (0, 0);
        }
        self.deposit = fresh.deposit;
    }

    /// A first attempt was admitted.
    pub fn on_admission(&mut self, now: Instant) {
        self.forget(now);
        let paid_back = self.owed.min(self.deposit);
        self.owed -= paid_back;
        self.recent[self.second as usize % WINDOW] += self.deposit;
        self.recent_sum += self.deposit;
        self.balance = (self.balance + self.deposit - paid_back).min(self.recent_sum.max(RESERVE));
    }

    /// Takes one retry out, if there is one.
    pub fn withdraw(&mut self, now: Instant) -> bool {
        self.forget(now);
        self.balance = self.balance.min(self.recent_sum.max(RESERVE));
        match self.balance.checked_sub(1000) {
            Some(rest) => {
                self.balance = rest;
                true
            }
            None => false,
        }
    }

    /// Lets the deposits of seconds that are over go. A clock that steps back forgets nothing.
    fn forget(&mut self, now: Instant) {
        let second = now.as_nanos() / 1_000_000_000;
        let passed = second.saturating_sub(self.second).min(WINDOW as u64);
        for k in 1..=passed {
            let slot = &mut self.recent[(self.second + k) as usize % WINDOW];
            self.recent_sum -= core::mem::take(slot);
        }
        self.second = self.second.max(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> Instant {
        Instant::from_secs_f64(s)
    }

    #[test]
    fn retries_stay_within_their_share() {
        let mut b = RetryBudget::new(0.2);
        let mut retries = 0;
        for k in 0..10_000 {
            let now = at(f64::from(k) * 0.01);
            b.on_admission(now);
            while b.withdraw(now) {
                retries += 1;
            }
        }
        assert_eq!(retries, 2_000);
        assert!(!RetryBudget::new(0.0).withdraw(at(0.0)));
        // The first ten come before any traffic paid for them.
        let mut fresh = RetryBudget::new(0.2);
        assert_eq!((0..20).filter(|_| fresh.withdraw(at(0.0))).count(), 10);
    }

    #[test]
    fn a_busy_pool_has_as_many_as_its_last_seconds_paid_for_and_a_quiet_one_keeps_some() {
        let all = |b: &mut RetryBudget, now| (0..100_000).take_while(|_| b.withdraw(now)).count();
        // 2,400 a second for a minute, and then an endpoint hangs.
        let mut busy = RetryBudget::new(0.2);
        (0..60 * 2400).for_each(|k| busy.on_admission(at(f64::from(k) / 2400.0)));
        let had = all(&mut busy, at(60.0));
        assert!((4_000..=4_800).contains(&had), "{had}");
        // The same pool, quiet for a while: what was saved is mostly gone.
        let mut quiet = RetryBudget::new(0.2);
        (0..60 * 2400).for_each(|k| quiet.on_admission(at(f64::from(k) / 2400.0)));
        assert_eq!(all(&mut quiet, at(100.0)), 100);
        // A clock that steps back mints nothing.
        quiet.on_admission(at(5.0));
        assert_eq!(all(&mut quiet, at(5.0)), 0);
    }
}
