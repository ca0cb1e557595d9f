//! One node of the tree: a share, a balance, and what is wanted.

use super::Kind;
use crate::limit::TokenBucket;
use crate::time::Instant;
use alloc::vec::Vec;

/// A node's place and how often the place was used, so that a settlement for a node that is gone finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// What a node gets of its parent's rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Tokens/s it gets whenever it asks. The children of a node are assured at most its own rate together; where they are promised more,
    /// each gets its part of what there is.
    pub assured: f64,
    /// Its part of what others leave, relative to its siblings' (0: it never borrows; absent: its assured rate).
    pub weight: Option<f64>,
    /// Tokens/s it never exceeds, up to its depth of 50 ms or half the largest cost; absent: what there is.
    pub ceiling: Option<f64>,
}

/// See the module. `balance` is `E` of a leaf and `X` of a branch, `depth` the most it holds.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) parent: u32,
    pub(super) generation: u32,
    pub(super) level: u8,
    pub(super) kind: Kind,
    pub(super) gone: bool,
    pub(super) assured: f64,
    pub(super) weight: f64,
    pub(super) ceiling: Option<TokenBucket>,
    pub(super) balance: f64,
    pub(super) depth: f64,
    /// Tokens it was let in for beyond its balance and that are not repaid; what surcharges added to its debt is not among them.
    pub(super) owed: f64,
    /// Tokens asked since the latest tick, admitted or not.
    pub(super) demand: f64,
    /// The largest refused request that is still wanted.
    pub(super) wanted: f64,
    /// When a request was last refused.
    pub(super) asked: Option<Instant>,
    /// Whether its parent counts it among those in need.
    pub(super) in_need: bool,
    /// What it could use beyond its assured inflow, in the tick at work.
    pub(super) need: f64,
    /// What came in since the latest tick.
    pub(super) inflow: f64,
    pub(super) inflow_rate: f64,
    pub(super) children: u32,
    pub(super) children_assured: f64,
    /// Children that were asked and refused within [`super::WANTED_S`].
    pub(super) needing: u32,
    pub(super) active: bool,
    pub(super) active_children: Vec<u32>,
}

impl Node {
    pub(super) fn new(parent: u32, level: u8, kind: Kind) -> Self {
        Self {
            parent,
            generation: 0,
            level,
            kind,
            gone: false,
            assured: 0.0,
            weight: 0.0,
            ceiling: None,
            balance: 0.0,
            depth: 0.0,
            owed: 0.0,
            demand: 0.0,
            wanted: 0.0,
            asked: None,
            in_need: false,
            need: 0.0,
            inflow: 0.0,
            inflow_rate: 0.0,
            children: 0,
            children_assured: 0.0,
            needing: 0,
            active: false,
            active_children: Vec::new(),
        }
    }

    /// Whether it was refused within the time for which a request is still wanted.
    pub(super) fn is_wanting(&self, now: Instant) -> bool {
        self.asked.is_some_and(|asked| now.secs_since(asked) <= super::WANTED_S)
    }

    /// The part of what its children are promised that it can keep.
    pub(super) fn kept(&self) -> f64 {
        if self.children_assured > self.assured { self.assured / self.children_assured } else { 1.0 }
    }

    /// What assured inflow may fill: the depth, or the largest request that waits.
    pub(super) fn room(&self) -> f64 {
        (self.depth.max(self.wanted) - self.balance).max(0.0)
    }

    /// Changes the balance; what comes in repays first.
    pub(super) fn add(&mut self, tokens: f64) {
        self.balance += tokens;
        self.owed = self.owed.min(-self.balance).max(0.0);
    }

    /// Sets, changes or takes away the ceiling: rate and depth.
    pub(super) fn set_ceiling(&mut self, now: Instant, ceiling: Option<(f64, f64)>, overdraft: f64) {
        self.ceiling = match (self.ceiling.take(), ceiling) {
            (_, None) => None,
            (None, Some((rate, depth))) => Some(TokenBucket::new(now, rate, depth).with_overdraft(overdraft)),
            (Some(mut bucket), Some((rate, depth))) => {
                bucket.set(now, rate, depth);
                Some(bucket)
            }
        };
    }
}
