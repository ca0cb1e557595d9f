//! Handing balances to another process. See [`crate::saved`].
//!
//! What is restored never holds more than the process that saved it: a bucket or share that it did not know begins as it would have begun
//! there, an idle name of a plain limit full, a node of shares empty.

use super::rate_rule::Meter;
use super::{Limits, State};
use crate::limit::quantity::{Ask, Quantity};
use crate::limit::tree::NodeId;
use crate::saved::{SavedLimits, SavedRule, SavedShare};
use crate::time::Instant;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// A change of what was used, told by a process that goes on serving what it began: negative gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Charge {
    /// Requests.
    pub requests: f64,
    /// Prompt tokens.
    pub prompt_tokens: f64,
    /// Output tokens.
    pub output_tokens: f64,
    /// Cost.
    pub cost: f64,
}

impl Limits {
    /// All balances, at `now`.
    pub fn save(&mut self, now: Instant) -> SavedLimits {
        let save = |rule: &mut super::Rule| {
            let mut saved = SavedRule {
                name: rule.name.clone(),
                quantity: rule.quantity.name().to_owned(),
                ..SavedRule::default()
            };
            match &mut rule.state {
                State::Rate(r) => {
                    for (_, name, metered) in r.names.iter() {
                        match &metered.meter {
                            Meter::Bucket(b) => saved.buckets.push((name.to_owned(), b.level_at(now))),
                            Meter::Leaky(l) => saved.leaks.push((name.to_owned(), l.empty_at().as_nanos())),
                        }
                    }
                }
                State::Shares(s) => {
                    s.tree.advance(now);
                    saved.ticked = s.tree.ticked_at().as_nanos();
                    let slots: Vec<u32> = s.places.iter().map(|(slot, _, _)| slot).collect();
                    let paths = slots.iter().map(|&slot| s.path(slot).iter().map(|n| (*n).to_owned()).collect());
                    let mut paths: Vec<Vec<String>> = paths.collect();
                    // Parents before their children, the root first.
                    paths.push(Vec::new());
                    paths.sort_by_key(Vec::len);
                    for path in paths {
                        let names: Vec<&str> = path.iter().map(String::as_str).collect();
                        let node = s.node_at(&names);
                        let held = node.and_then(|node| s.tree.held(node)).unwrap_or_default();
                        saved.shares.push(SavedShare { path, balance: held.0, owed: held.1 });
                    }
                }
            }
            saved
        };
        SavedLimits { at: now.as_nanos(), rules: self.rules.iter_mut().map(save).collect() }
    }

    /// Takes over the balances of another process, before any request. Rules are matched by name and by what they count; what `saved` holds
    /// beyond a depth is cut off.
    pub fn restore(&mut self, now: Instant, saved: &SavedLimits) {
        let at = Instant::from_nanos(saved.at).min(now);
        for rule in &mut self.rules {
            let fits = |s: &&SavedRule| s.name == rule.name && s.quantity == rule.quantity.name();
            let Some(saved) = saved.rules.iter().find(fits) else { continue };
            match &mut rule.state {
                State::Rate(r) => {
                    for (name, level) in &saved.buckets {
                        let slot = r.locate(at, name);
                        if let Some(Meter::Bucket(b)) = r.names.get_mut(slot).map(|m| &mut m.meter) {
                            b.restore(at, *level);
                        }
                    }
                    for (name, empty_at) in &saved.leaks {
                        let slot = r.locate(at, name);
                        if let Some(Meter::Leaky(l)) = r.names.get_mut(slot).map(|m| &mut m.meter) {
                            l.restore(Instant::from_nanos(*empty_at));
                        }
                    }
                }
                State::Shares(s) if !saved.shares.is_empty() => {
                    s.tree.empty(Instant::from_nanos(saved.ticked).min(at));
                    // First all nodes: one that joins gets what its parent holds, which is nothing yet.
                    let nodes: Vec<Option<NodeId>> =
                        saved.shares.iter().map(|share| s.enter_path(at, &share.path)).collect();
                    for (share, node) in saved.shares.iter().zip(nodes) {
                        if let Some(node) = node {
                            s.tree.hold(node, share.balance, share.owed);
                        }
                    }
                }
                State::Shares(_) => {}
            }
        }
    }

    /// Another process used `charge` for a request like `ask`.
    pub fn charge(&mut self, now: Instant, ask: &Ask<'_>, charge: &Charge) {
        for rule in self.rules.iter_mut().filter(|r| r.counts(ask)) {
            let more = match rule.quantity {
                Quantity::Requests => charge.requests,
                Quantity::PromptTokens => charge.prompt_tokens,
                Quantity::OutputTokens => charge.output_tokens,
                Quantity::TotalTokens => charge.prompt_tokens + charge.output_tokens,
                Quantity::Cost => charge.cost,
            };
            match &mut rule.state {
                State::Rate(r) => {
                    let slot = r.locate(now, ask.name(r.cfg.scope));
                    r.charge(now, slot, more);
                }
                State::Shares(s) => {
                    s.tree.advance(now);
                    if let Some((_, leaf)) = s.locate(now, ask) {
                        s.tree.settle(now, leaf, more);
                    }
                }
            }
        }
    }
}
