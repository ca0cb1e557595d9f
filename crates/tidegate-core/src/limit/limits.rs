//! All limits of the process: what a request asks is read against every rule, then taken from every one.
//!
//! Rules are read first and taken only when all admit, so a refusal leaves every balance as it was and there is nothing to roll back;
//! where several refuse, the one that lasts longest is told, so that its `retry_after` is true. What was taken is a [`Reservation`], which is
//! consumed by settling: settling twice does not compile. O(rules x depth) per request, plus the ticks of trees that are due.

pub mod config;
mod levels;
mod rate_rule;
mod reservation;
mod saving;
mod shares_rule;

pub use levels::{Headroom, Level};
pub use reservation::{Limited, Reservation};
pub use saving::Charge;

use crate::limit::concurrency::{Concurrency, Refused};
use crate::limit::gradient::Gradient;
use crate::limit::quantity::{Actual, Ask, Quantity, Scope};
use crate::limit::tree::{NodeId, Source};
use crate::time::{Duration, Instant};
use alloc::string::String;
use alloc::vec::Vec;
use config::{ConcurrencyRuleConfig, LimitConfig, LimitsConfig, RuleConfig};
use rate_rule::{RateRule, Verdict};
use reservation::Hold;
use shares_rule::SharesRule;

#[derive(Clone, Debug)]
enum State {
    Rate(RateRule),
    Shares(SharesRule),
}

#[derive(Clone, Debug)]
struct Rule {
    number: u32,
    /// As configured, whatever was set since.
    told: RuleConfig,
    name: String,
    only: Option<String>,
    quantity: Quantity,
    state: State,
}

#[derive(Clone, Debug)]
struct ConcurrencyRule {
    number: u32,
    /// As configured, whatever was set since.
    told: ConcurrencyRuleConfig,
    name: String,
    scope: Scope,
    seats: Concurrency,
    gradient: Option<Gradient>,
}

/// Where a request's tokens would come from in one rule.
#[derive(Clone, Copy, Debug)]
struct Found {
    slot: u32,
    leaf: Option<(NodeId, Option<Source>)>,
}

/// See the module. One per process, under its own lock.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    rules: Vec<Rule>,
    concurrency: Vec<ConcurrencyRule>,
    numbered: u32,
    outstanding: u64,
    scratch: Vec<Found>,
}

impl Limits {
    /// Limits as configured, each starting with its initial fill.
    pub fn new(now: Instant, cfg: &LimitsConfig) -> Self {
        let mut limits = Self::default();
        limits.configure(now, cfg);
        limits
    }

    /// Takes a new configuration. A rule with the same name, quantity, scope or levels keeps its balances, which shrink with their depth and
    /// never rise; others start anew. One whose settings are what they were keeps the rates that were set since, too. Reservations of rules
    /// that are gone settle to nothing.
    pub fn configure(&mut self, now: Instant, cfg: &LimitsConfig) {
        let mut old = core::mem::take(&mut self.rules);
        self.rules = cfg.rules.iter().map(|rule| self.rule(now, &mut old, rule)).collect();
        let mut old = core::mem::take(&mut self.concurrency);
        self.concurrency = cfg.concurrency.iter().map(|rule| self.concurrency_rule(&mut old, rule)).collect();
    }

    /// Asks every rule. Either all give what is asked, or nothing is taken anywhere.
    pub fn reserve(&mut self, now: Instant, ask: &Ask<'_>) -> Result<Reservation, Limited> {
        let mut found = core::mem::take(&mut self.scratch);
        found.clear();
        let refused = self.read(now, ask, &mut found);
        let answer = match refused {
            Some(limited) => {
                self.remember_need(now, ask, &found, &limited);
                Err(limited)
            }
            None => Ok(self.take(now, ask, &found)),
        };
        self.scratch = found;
        answer
    }

    /// The request used `actual`: what it took beyond that is given back, what it took less is charged, as debt if need be.
    pub fn settle(&mut self, now: Instant, reservation: Reservation, actual: &Actual) {
        self.end(now, reservation, Some(actual));
    }

    /// The request used nothing: it was never sent.
    pub fn release(&mut self, now: Instant, reservation: Reservation) {
        self.end(now, reservation, None);
    }

    /// A request waits behind the one its tenant asks for at each tick: shares see its need. No balance changes.
    pub fn want(&mut self, now: Instant, ask: &Ask<'_>) {
        for rule in self.rules.iter_mut().filter(|r| r.counts(ask)) {
            if let State::Shares(s) = &mut rule.state {
                s.tree.advance(now);
                if let Some((_, leaf)) = s.locate(now, ask) {
                    s.tree.want(now, leaf, ask.amount(rule.quantity), 0.0);
                }
            }
        }
    }

    /// When shares change next by time alone: a request that was kept instead of refused is asked for again then.
    pub fn next_tick_at(&self) -> Option<Instant> {
        let trees = self.rules.iter().filter_map(|rule| match &rule.state {
            State::Shares(s) => Some(s.tree.next_tick_at()),
            State::Rate(_) => None,
        });
        trees.min()
    }

    /// A new rate, in units/s, minting nothing: of the whole rule for an empty path, of a name, or of a node of the shares (its assured
    /// rate). `false` if there is no such rule or path.
    pub fn set_rate(&mut self, now: Instant, rule: &str, path: &[&str], rate: f64) -> bool {
        let Some(rule) = self.rules.iter_mut().find(|r| r.name == rule) else { return false };
        match (&mut rule.state, path) {
            (State::Rate(r), _) => {
                let mut cfg = r.cfg.clone();
                let amount = rate * cfg.period.as_secs_f64();
                match path {
                    [] => cfg.amount = amount,
                    [name] => match cfg.amounts.iter_mut().find(|(n, _)| n == name) {
                        Some(entry) => entry.1 = amount,
                        None => cfg.amounts.push(((*name).into(), amount)),
                    },
                    _ => return false,
                }
                r.set(now, cfg);
                true
            }
            (State::Shares(s), []) => {
                s.cfg.rate = rate;
                s.tree.set_rate(now, rate);
                true
            }
            (State::Shares(s), path) => s.node_at(path).is_some_and(|node| s.tree.set_assured(now, node, rate)),
        }
    }

    /// A new total of requests in flight, for instance from a gradient. `false` if there is no such rule.
    pub fn set_total(&mut self, rule: &str, total: u32) -> bool {
        let found = self.concurrency.iter_mut().find(|r| r.name == rule);
        found.is_some_and(|rule| {
            rule.seats.set_total(total);
            true
        })
    }

    /// The rate that [`Limits::set_rate`] sets, in units/s: what is in force now. `None` if there is no such rule or path.
    pub fn rate(&self, rule: &str, path: &[&str]) -> Option<f64> {
        match (&self.rules.iter().find(|r| r.name == rule)?.state, path) {
            (State::Rate(r), []) => Some(r.cfg.amount / r.cfg.period.as_secs_f64()),
            (State::Rate(r), [name]) => Some(r.rate(name).0),
            (State::Rate(_), _) => None,
            (State::Shares(s), []) => Some(s.tree.rate()),
            (State::Shares(s), path) => s.tree.assured(s.node_at(path)?),
        }
    }

    /// The total of requests in flight that [`Limits::set_total`] sets. `None` if there is no such rule.
    pub fn total(&self, rule: &str) -> Option<u32> {
        self.concurrency.iter().find(|r| r.name == rule).map(|r| r.seats.total())
    }

    /// Limits that follow response times learn from one, or from an engine that had too much (`dropped`).
    pub fn on_response(&mut self, now: Instant, rtt: Duration, dropped: bool) {
        for rule in &mut self.concurrency {
            if let Some(gradient) = &mut rule.gradient {
                gradient.on_sample(now, rtt, rule.seats.in_flight(), dropped);
                rule.follow();
            }
        }
    }

    /// Whether some limit follows response times.
    pub fn follows_responses(&self) -> bool {
        self.concurrency.iter().any(|r| r.gradient.is_some())
    }

    /// Reservations that were made and not settled or released.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Finds the places of a request and the refusal that lasts longest, if any.
    fn read(&mut self, now: Instant, ask: &Ask<'_>, found: &mut Vec<Found>) -> Option<Limited> {
        let mut worst: Option<Limited> = None;
        let mut note = |limited: Limited| {
            if worst.as_ref().is_none_or(|w| limited.outlasts(w)) {
                worst = Some(limited);
            }
        };
        for rule in &mut self.rules {
            if !rule.counts(ask) {
                found.push(Found { slot: 0, leaf: None });
                continue;
            }
            let (place, limited) = rule.read(now, ask);
            found.push(place);
            limited.into_iter().for_each(&mut note);
        }
        for rule in &self.concurrency {
            rule.read(ask).into_iter().for_each(&mut note);
        }
        worst
    }

    fn take(&mut self, now: Instant, ask: &Ask<'_>, found: &[Found]) -> Reservation {
        let holds = Vec::with_capacity(self.rules.len());
        let mut reservation = Reservation { holds, permits: Vec::new(), not_before: now };
        for (rule, place) in self.rules.iter_mut().zip(found) {
            if !rule.counts(ask) {
                continue;
            }
            let taken = ask.amount(rule.quantity);
            match (&mut rule.state, place.leaf) {
                (State::Rate(r), _) => {
                    if let Verdict::Go(at) = r.check(now, place.slot, taken) {
                        reservation.not_before = reservation.not_before.max(at);
                    }
                    r.take(now, place.slot, taken);
                }
                (State::Shares(s), Some((leaf, Some(source)))) => {
                    s.tree.take(now, leaf, taken, source);
                    s.hold(place.slot);
                }
                (State::Shares(_), _) => continue,
            }
            let leaf = place.leaf.map(|(leaf, _)| leaf);
            reservation.holds.push(Hold { rule: rule.number, slot: place.slot, leaf, taken });
        }
        for rule in &mut self.concurrency {
            if let Ok(permit) = rule.seats.acquire(ask.name(rule.scope)) {
                reservation.permits.push((rule.number, permit));
            }
        }
        self.outstanding += 1;
        reservation
    }

    /// Shares that were short see the need, if nothing else stood in the request's way.
    fn remember_need(&mut self, now: Instant, ask: &Ask<'_>, found: &[Found], limited: &Limited) {
        let by_shares_alone = limited.quantity.is_some()
            && !limited.terminal
            && self.rules.iter().any(|r| r.name == limited.rule && matches!(r.state, State::Shares(_)));
        if !by_shares_alone {
            return;
        }
        for (rule, place) in self.rules.iter_mut().zip(found) {
            if let (State::Shares(s), Some((leaf, None))) = (&mut rule.state, place.leaf) {
                let n = ask.amount(rule.quantity);
                if s.tree.check(now, leaf, n).is_err_and(|r| !r.ceiling) {
                    s.tree.want(now, leaf, n, n);
                }
            }
        }
    }

    fn end(&mut self, now: Instant, reservation: Reservation, actual: Option<&Actual>) {
        self.outstanding = self.outstanding.saturating_sub(1);
        for hold in &reservation.holds {
            let Some(rule) = self.rules.iter_mut().find(|r| r.number == hold.rule) else { continue };
            let used = actual.map_or(0.0, |a| a.amount(rule.quantity));
            match (&mut rule.state, hold.leaf) {
                (State::Rate(r), _) => r.settle(now, hold.slot, hold.taken, used),
                (State::Shares(s), Some(leaf)) => {
                    s.tree.advance(now);
                    s.tree.settle(now, leaf, used - hold.taken);
                    s.let_go(hold.slot);
                }
                (State::Shares(_), None) => {}
            }
        }
        for (number, permit) in reservation.permits {
            if let Some(rule) = self.concurrency.iter_mut().find(|r| r.number == number) {
                rule.seats.release(permit);
            }
        }
    }

    fn number(&mut self) -> u32 {
        self.numbered = self.numbered.wrapping_add(1);
        self.numbered
    }

    fn rule(&mut self, now: Instant, old: &mut Vec<Rule>, cfg: &RuleConfig) -> Rule {
        let kept =
            old.iter().position(|r| r.name == cfg.name && r.quantity == cfg.quantity && r.state.fits(&cfg.limit));
        if let Some(mut rule) = kept.map(|at| old.swap_remove(at)) {
            if rule.told == *cfg {
                return rule;
            }
            rule.told = cfg.clone();
            rule.only.clone_from(&cfg.only);
            match (&mut rule.state, &cfg.limit) {
                (State::Rate(r), LimitConfig::Rate(cfg)) => r.set(now, cfg.clone()),
                (State::Shares(s), LimitConfig::Shares(cfg)) => s.set(now, cfg.clone()),
                _ => {}
            }
            return rule;
        }
        let state = match &cfg.limit {
            LimitConfig::Rate(cfg) => State::Rate(RateRule::new(cfg.clone())),
            LimitConfig::Shares(cfg) => State::Shares(SharesRule::new(now, cfg.clone())),
        };
        let (name, only) = (cfg.name.clone(), cfg.only.clone());
        Rule { number: self.number(), told: cfg.clone(), name, only, quantity: cfg.quantity, state }
    }

    fn concurrency_rule(&mut self, old: &mut Vec<ConcurrencyRule>, cfg: &ConcurrencyRuleConfig) -> ConcurrencyRule {
        let kept = old.iter().position(|r| r.name == cfg.name && r.scope == cfg.scope);
        if let Some(mut rule) = kept.map(|at| old.swap_remove(at)) {
            if rule.told == *cfg {
                return rule;
            }
            rule.told = cfg.clone();
            rule.seats.set(cfg.seats.clone());
            if rule.gradient.is_none() || cfg.adaptive.is_none() {
                rule.gradient = cfg.adaptive.map(Gradient::new);
            }
            rule.follow();
            return rule;
        }
        let seats = Concurrency::new(cfg.seats.clone());
        let gradient = cfg.adaptive.map(Gradient::new);
        let (told, name, scope) = (cfg.clone(), cfg.name.clone(), cfg.scope);
        let mut rule = ConcurrencyRule { number: self.number(), told, name, scope, seats, gradient };
        rule.follow();
        rule
    }
}

impl State {
    fn fits(&self, cfg: &LimitConfig) -> bool {
        match (self, cfg) {
            (Self::Rate(r), LimitConfig::Rate(cfg)) => {
                r.cfg.scope == cfg.scope && r.cfg.max_wait.is_some() == cfg.max_wait.is_some()
            }
            (Self::Shares(s), LimitConfig::Shares(cfg)) => s.cfg.levels == cfg.levels,
            _ => false,
        }
    }
}

impl Rule {
    /// Whether it is about this request.
    fn counts(&self, ask: &Ask<'_>) -> bool {
        let is_of_work = self.quantity != Quantity::Requests;
        self.only.as_deref().is_none_or(|route| route == ask.route) && !(is_of_work && ask.asks_no_engine)
    }

    fn read(&mut self, now: Instant, ask: &Ask<'_>) -> (Found, Option<Limited>) {
        let n = ask.amount(self.quantity);
        let limited = |scope: Scope, retry_after, terminal| Limited {
            by: scope.rate_code(),
            scope,
            rule: self.name.clone(),
            quantity: Some(self.quantity),
            retry_after,
            terminal,
        };
        match &mut self.state {
            State::Rate(r) => {
                let slot = r.locate(now, ask.name(r.cfg.scope));
                let refused = match r.check(now, slot, n) {
                    Verdict::Go(_) => None,
                    Verdict::Wait { retry_after, terminal } => Some(limited(r.cfg.scope, retry_after, terminal)),
                };
                (Found { slot, leaf: None }, refused)
            }
            State::Shares(s) => {
                s.tree.advance(now);
                let Some((slot, leaf)) = s.locate(now, ask) else {
                    return (Found { slot: 0, leaf: None }, None);
                };
                match s.tree.check(now, leaf, n) {
                    Ok(source) => (Found { slot, leaf: Some((leaf, Some(source))) }, None),
                    Err(r) => (
                        Found { slot, leaf: Some((leaf, None)) },
                        Some(limited(s.scope(r.level), r.retry_after, r.terminal)),
                    ),
                }
            }
        }
    }
}

impl ConcurrencyRule {
    fn follow(&mut self) {
        if let Some(gradient) = &self.gradient {
            self.seats.set_total(gradient.limit());
        }
    }

    fn read(&self, ask: &Ask<'_>) -> Option<Limited> {
        let scope = match self.seats.check(ask.name(self.scope)) {
            Ok(()) => return None,
            Err(Refused::Total) => Scope::Global,
            Err(Refused::Name) => self.scope,
        };
        Some(Limited {
            by: scope.concurrency_code(),
            scope,
            rule: self.name.clone(),
            quantity: None,
            retry_after: None,
            terminal: false,
        })
    }
}
