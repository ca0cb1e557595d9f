//! How full limits are: what headers and the admin view say. Reading changes nothing.

use super::rate_rule::Meter;
use super::{Limits, State};
use crate::limit::quantity::{Ask, Quantity, Scope};
use crate::time::{Duration, Instant, duration_from_secs};
use alloc::vec::Vec;

/// What is left of the tightest rule, for `RateLimit-*` headers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Headroom<'a> {
    /// The rule's name.
    pub rule: &'a str,
    /// What it counts.
    pub quantity: Quantity,
    /// Units that can be used at once when nothing is in use.
    pub limit: f64,
    /// Units that can be used now, at least 0.
    pub remaining: f64,
    /// When `remaining` is `limit` again, if nothing more is used.
    pub reset: Duration,
}

/// One bucket, balance or group of seats, for the admin view.
#[derive(Clone, Debug, PartialEq)]
pub struct Level<'a> {
    /// The rule's name.
    pub rule: &'a str,
    /// What it counts; absent for requests in flight.
    pub quantity: Option<Quantity>,
    /// What the last name of the path is.
    pub scope: Scope,
    /// Names from the top; empty for everybody together.
    pub path: Vec<&'a str>,
    /// Units per second: of a plain limit its rate, of shares what is assured; 0 for requests in flight.
    pub rate: f64,
    /// Units it holds, negative while in debt; requests in flight.
    pub level: f64,
    /// Units it holds at most; requests in flight at most.
    pub depth: f64,
    /// Reservations that are not settled.
    pub outstanding: u32,
}

impl Limits {
    /// What is left for a request like `ask` in the rule that has the smallest part left. `None` without rules that count.
    pub fn headroom_at(&self, now: Instant, ask: &Ask<'_>) -> Option<Headroom<'_>> {
        let part = |h: &Headroom<'_>| if h.limit > 0.0 { h.remaining / h.limit } else { 0.0 };
        let all = self.rules.iter().filter(|r| r.counts(ask)).filter_map(|rule| {
            let (limit, remaining, rate) = match &rule.state {
                State::Rate(r) => {
                    let name = ask.name(r.cfg.scope);
                    let (rate, depth) = r.rate(name);
                    match r.names.find(0, name).and_then(|slot| r.names.get(slot)).map(|m| &m.meter) {
                        Some(Meter::Bucket(b)) => (b.depth(), b.level_at(now), b.rate()),
                        Some(Meter::Leaky(_)) => return None,
                        None if r.cfg.max_wait.is_some() => return None,
                        None => (depth, depth * r.cfg.initial_fill.clamp(0.0, 1.0), rate),
                    }
                }
                State::Shares(s) => {
                    let node = s.find(ask)?.node;
                    (s.tree.depth(node)?, s.tree.balance(node)?, s.tree.inflow(node)?)
                }
            };
            let remaining = remaining.max(0.0);
            let reset =
                if rate > 0.0 { duration_from_secs((limit - remaining).max(0.0) / rate) } else { Duration::ZERO };
            Some(Headroom { rule: &rule.name, quantity: rule.quantity, limit, remaining, reset })
        });
        all.reduce(|a, b| if part(&b) < part(&a) { b } else { a })
    }

    /// Every bucket, balance and group of seats.
    pub fn levels_at(&self, now: Instant) -> Vec<Level<'_>> {
        let mut levels = Vec::new();
        for rule in &self.rules {
            let of = |scope, path, rate, level, depth, outstanding| Level {
                rule: &rule.name,
                quantity: Some(rule.quantity),
                scope,
                path,
                rate,
                level,
                depth,
                outstanding,
            };
            match &rule.state {
                State::Rate(r) => levels.extend(r.names.iter().map(|(_, name, m)| {
                    let path = if r.cfg.scope == Scope::Global { Vec::new() } else { alloc::vec![name] };
                    let (rate, level, depth) = match &m.meter {
                        Meter::Bucket(b) => (b.rate(), b.level_at(now), b.depth()),
                        Meter::Leaky(_) => {
                            let (rate, depth) = r.rate(name);
                            (rate, depth, depth)
                        }
                    };
                    of(r.cfg.scope, path, rate, level, depth, m.outstanding)
                })),
                State::Shares(s) => {
                    let seen = |node| (s.tree.balance(node).unwrap_or(0.0), s.tree.depth(node).unwrap_or(0.0));
                    let (level, depth) = seen(s.tree.root());
                    levels.push(of(Scope::Global, Vec::new(), s.tree.rate(), level, depth, 0));
                    levels.extend(s.places.iter().map(|(slot, _, place)| {
                        let path = s.path(slot);
                        let (level, depth) = seen(place.node);
                        let assured = s.tree.assured(place.node).unwrap_or(0.0);
                        of(s.scope(path.len()), path, assured, level, depth, place.outstanding)
                    }));
                }
            }
        }
        for rule in &self.concurrency {
            let of = |scope, path, in_flight: u32, most: u32| Level {
                rule: &rule.name,
                quantity: None,
                scope,
                path,
                rate: 0.0,
                level: f64::from(in_flight),
                depth: f64::from(most),
                outstanding: in_flight,
            };
            levels.push(of(Scope::Global, Vec::new(), rule.seats.in_flight(), rule.seats.total()));
            let groups = rule.seats.groups().filter(|(name, ..)| !name.is_empty());
            levels.extend(groups.map(|(name, held, most)| of(rule.scope, alloc::vec![name], held, most)));
        }
        levels
    }
}
