//! A plain limit: one bucket per name of a scope.

use super::config::RateConfig;
use crate::limit::directory::{Directory, OTHERS};
use crate::limit::{Leaky, TokenBucket};
use crate::time::{Duration, Instant};

/// A meter that refuses, or one that spaces out.
#[derive(Clone, Debug)]
pub(super) enum Meter {
    Bucket(TokenBucket),
    Leaky(Leaky),
}

#[derive(Clone, Debug)]
pub(super) struct Metered {
    pub(super) meter: Meter,
    pub(super) outstanding: u32,
}

/// What a meter says of a request.
pub(super) enum Verdict {
    /// It may go, at the earliest at this instant.
    Go(Instant),
    /// Not now; when it would fit, if it ever does.
    Wait { retry_after: Option<Duration>, terminal: bool },
}

#[derive(Clone, Debug)]
pub(super) struct RateRule {
    pub(super) cfg: RateConfig,
    pub(super) names: Directory<Metered>,
}

/// Rate in units/s and depth in units of a name.
fn rate_and_depth(cfg: &RateConfig, name: &str) -> (f64, f64) {
    let amount = cfg.amounts.iter().find(|(n, _)| n == name).map_or(cfg.amount, |(_, a)| *a);
    let default_depth = if cfg.max_wait.is_some() { 1.0 } else { amount };
    (amount / cfg.period.as_secs_f64().max(1e-9), cfg.burst.unwrap_or(default_depth))
}

impl RateRule {
    pub(super) fn new(cfg: RateConfig) -> Self {
        Self { names: Directory::new(cfg.max_names), cfg }
    }

    pub(super) fn rate(&self, name: &str) -> (f64, f64) {
        rate_and_depth(&self.cfg, name)
    }

    /// The slot of a name, which is made if it has none. Only a bucket that is full and that nobody holds makes room for it.
    pub(super) fn locate(&mut self, now: Instant, name: &str) -> u32 {
        if let Some(slot) = self.names.find(0, name) {
            self.names.touch(slot);
            return slot;
        }
        if self.names.is_full() {
            let gone = self.names.victim(|_, m| {
                let is_fresh = match &m.meter {
                    Meter::Bucket(b) => b.level_at(now) >= b.depth(),
                    Meter::Leaky(l) => l.is_empty_at(now),
                };
                is_fresh && m.outstanding == 0
            });
            match gone {
                Some(gone) => {
                    self.names.remove(gone);
                }
                None if name != OTHERS => return self.locate(now, OTHERS),
                None => {}
            }
        }
        let meter = self.fresh(now, name);
        self.names.insert(0, name, Metered { meter, outstanding: 0 })
    }

    fn fresh(&self, now: Instant, name: &str) -> Meter {
        let (rate, depth) = self.rate(name);
        match self.cfg.max_wait {
            None => Meter::Bucket(TokenBucket::new(now, rate, depth).filled(self.cfg.initial_fill)),
            Some(max_wait) => Meter::Leaky(Leaky::new(rate, depth as u64, max_wait)),
        }
    }

    pub(super) fn check(&self, now: Instant, slot: u32, n: f64) -> Verdict {
        match self.names.get(slot).map(|m| &m.meter) {
            None => Verdict::Wait { retry_after: None, terminal: false },
            Some(Meter::Bucket(b)) if b.fits(now, n) => Verdict::Go(now),
            Some(Meter::Bucket(b)) => {
                Verdict::Wait { retry_after: b.fits_at(now, n).map(|at| at.since(now)), terminal: b.is_terminal(n) }
            }
            Some(Meter::Leaky(l)) => match l.go_at(now) {
                Ok(go) => Verdict::Go(go),
                Err(wait) => Verdict::Wait { retry_after: Some(wait), terminal: false },
            },
        }
    }

    /// Takes what [`RateRule::check`] let through in the same instant.
    pub(super) fn take(&mut self, now: Instant, slot: u32, n: f64) {
        if let Some(m) = self.names.get_mut(slot) {
            m.outstanding += 1;
            match &mut m.meter {
                Meter::Bucket(b) => b.charge(now, n),
                Meter::Leaky(l) => l.charge(now, whole(n)),
            }
        }
    }

    /// `taken` were taken, `used` were used.
    pub(super) fn settle(&mut self, now: Instant, slot: u32, taken: f64, used: f64) {
        if let Some(m) = self.names.get_mut(slot) {
            m.outstanding = m.outstanding.saturating_sub(1);
            match &mut m.meter {
                Meter::Bucket(b) => b.settle(now, used - taken),
                Meter::Leaky(l) if used >= taken => l.charge(now, whole(used) - whole(taken)),
                Meter::Leaky(l) => l.give_back(whole(taken) - whole(used)),
            }
        }
    }

    /// `more` were used elsewhere; negative gives back.
    pub(super) fn charge(&mut self, now: Instant, slot: u32, more: f64) {
        match self.names.get_mut(slot).map(|m| &mut m.meter) {
            Some(Meter::Bucket(b)) => b.settle(now, more),
            Some(Meter::Leaky(l)) if more >= 0.0 => l.charge(now, whole(more)),
            Some(Meter::Leaky(l)) => l.give_back(whole(-more)),
            None => {}
        }
    }

    /// New numbers for all names, minting nothing.
    pub(super) fn set(&mut self, now: Instant, cfg: RateConfig) {
        self.cfg = cfg;
        let slots: alloc::vec::Vec<u32> = self.names.iter().map(|(slot, _, _)| slot).collect();
        for slot in slots {
            let Some((_, name)) = self.names.name(slot) else { continue };
            let (rate, depth) = rate_and_depth(&self.cfg, name);
            let max_wait = self.cfg.max_wait;
            match (self.names.get_mut(slot).map(|m| &mut m.meter), max_wait) {
                (Some(Meter::Bucket(b)), _) => b.set(now, rate, depth),
                (Some(Meter::Leaky(l)), Some(max_wait)) => l.set(rate, depth as u64, max_wait),
                _ => {}
            }
        }
    }
}

/// Shaping counts whole tokens, rounded up.
fn whole(n: f64) -> u64 {
    libm::ceil(n) as u64
}
