//! The hierarchical token bucket: shares of one rate that are guaranteed, lent when unused, and never exceeded together.
//!
//! Checking a counter per level and refunding when a lower one refuses leaks, races and lets the greediest take what others leave.
//! Here tokens are conserved instead: the root mints `C` tokens/s, every tick hands them down, and a request takes its tokens from one
//! place, so nothing is refunded when it is refused and the global limit holds by construction:
//!
//! `admitted(T) <= C T + S_max + D_max + C D`, `S_max = max(100 ms x C, sum of depths)`, `D_max = max(2 x largest cost, 100 ms x C)` for
//! costs above one token and 0 for unit costs, `D` = 10 ms.
//!
//! Every leaf has an assured rate `g` with a depth `B = max(50 ms x g, 1, 0.5 x largest cost)` (0 where `g` is 0), every branch a pool `X` of at
//! most 50 ms of its rate (half the largest cost below the root, where that is more). What full balances do not take is shared by weighted max-min among those who asked within a second. A request
//! larger than its leaf's balance is let in while that is above zero and paid afterwards from the leaf's own inflow.
//!
//! Admission is O(depth); a tick visits only nodes that are not full or were asked lately, so ten thousand idle tenants cost nothing.
//! Ticks are run by whoever looks next ([`Tree::advance`]): late ones are made up in one, a clock that steps back runs none.

mod admission;
mod node;
mod tick;

pub use admission::{Refusal, Source};
pub use node::{NodeId, Share};

use crate::time::{Duration, Instant};
use alloc::vec::Vec;
use node::Node;

/// Time between two ticks.
pub const TICK: Duration = Duration::from_millis(10);
/// Levels below the root.
pub const MAX_DEPTH: usize = 8;
/// Seconds of a rate that a balance or pool holds.
const DEPTH_S: f64 = 0.05;
/// Seconds for which a refused request is still wanted.
const WANTED_S: f64 = 1.0;
/// Seconds of its assured rate that surcharges may put a leaf in debt.
const SURCHARGE_S: f64 = 10.0;
/// The root's place.
const ROOT: u32 = 0;

/// Whether a node admits requests or has children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has children.
    Branch,
    /// It admits.
    Leaf,
}

/// One limited quantity, shared by a tree of tenants, models or routes.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    rate: f64,
    largest_cost: f64,
    /// The latest tick.
    ticked: Instant,
    started: bool,
    /// Sum of depths.
    depths: f64,
    /// Sum of the balances of nodes that ticks do not visit.
    idle_stock: f64,
    /// Sum of all balances.
    stock: f64,
    /// What leaves were let in for beyond their balances and did not repay yet.
    debt: f64,
    visited: usize,
    scratch: Vec<tick::Claim>,
}

impl Tree {
    /// A root that mints `rate` tokens/s. `largest_cost`: the most one request is expected to ask, in tokens (1 for unit costs); larger ones are
    /// admitted within the debt, or refused for good.
    pub fn new(now: Instant, rate: f64, largest_cost: f64) -> Self {
        let mut root = Node::new(ROOT, 0, Kind::Branch);
        root.active = true;
        let mut tree = Self {
            nodes: alloc::vec![root],
            vacant: Vec::new(),
            rate: 0.0,
            largest_cost: largest_cost.max(1.0),
            ticked: now,
            started: false,
            depths: 0.0,
            idle_stock: 0.0,
            stock: 0.0,
            debt: 0.0,
            visited: 0,
            scratch: Vec::new(),
        };
        tree.set_rate(now, rate);
        tree.fill(ROOT);
        tree
    }

    /// The root, parent of the first level.
    pub const fn root(&self) -> NodeId {
        NodeId { index: ROOT, generation: 0 }
    }

    /// Adds a child. Before the first request it starts full; later with what its parent's pool holds, so joining mints nothing.
    /// `None` if the parent is gone, admits itself, or is [`MAX_DEPTH`] levels down.
    pub fn add(&mut self, now: Instant, parent: NodeId, kind: Kind, share: &Share) -> Option<NodeId> {
        self.advance(now);
        let above = self.node(parent)?;
        if above.kind == Kind::Leaf || usize::from(above.level) >= MAX_DEPTH {
            return None;
        }
        let child = Node::new(parent.index, above.level + 1, kind);
        let index = match self.vacant.pop() {
            Some(index) => {
                let generation = self.nodes[index as usize].generation;
                self.nodes[index as usize] = Node { generation, ..child };
                index
            }
            None => {
                self.nodes.push(child);
                u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.nodes[parent.index as usize].children += 1;
        let id = NodeId { index, generation: self.nodes[index as usize].generation };
        self.set_share(now, id, share);
        self.fill(index);
        Some(id)
    }

    /// Takes a node without children out. What it holds, or owes, goes to its parent's pool. `false` if it is gone or has children.
    pub fn remove(&mut self, now: Instant, id: NodeId) -> bool {
        self.advance(now);
        let Some(node) = self.node(id) else { return false };
        if id.index == ROOT || node.children > 0 {
            return false;
        }
        let (parent, kind, assured, depth) = (node.parent, node.kind, node.assured, node.depth);
        let (balance, owed) = (node.balance, node.owed);
        self.activate(id.index);
        self.activate(parent);
        self.depths -= depth;
        if kind == Kind::Leaf {
            self.debt -= owed;
        }
        let above = &mut self.nodes[parent as usize];
        above.balance += balance;
        above.children -= 1;
        above.children_assured -= assured;
        above.active_children.retain(|c| *c != id.index);
        let gone = &mut self.nodes[id.index as usize];
        gone.generation = gone.generation.wrapping_add(1);
        gone.kind = Kind::Leaf;
        gone.active = false;
        gone.gone = true;
        self.vacant.push(id.index);
        true
    }

    /// What a node holds and owes, in tokens.
    pub(crate) fn held(&self, id: NodeId) -> Option<(f64, f64)> {
        self.node(id).map(|n| (n.balance, n.owed))
    }

    /// Nobody holds or owes anything, and ticks go on from `at`: before another process's balances are taken over.
    pub(crate) fn empty(&mut self, at: Instant) {
        for index in 0..self.nodes.len() as u32 {
            if !self.nodes[index as usize].gone {
                self.activate(index);
                (self.nodes[index as usize].balance, self.nodes[index as usize].owed) = (0.0, 0.0);
            }
        }
        (self.stock, self.idle_stock, self.debt, self.ticked, self.started) = (0.0, 0.0, 0.0, at, true);
    }

    /// A node holds and owes so much, at most its depth.
    pub(crate) fn hold(&mut self, id: NodeId, balance: f64, owed: f64) {
        if self.node(id).is_none() || !balance.is_finite() || !owed.is_finite() {
            return;
        }
        self.activate(id.index);
        let node = &mut self.nodes[id.index as usize];
        let (balance, owed) = (balance.min(node.depth), owed.max(0.0));
        self.stock += balance - node.balance;
        self.debt += owed - node.owed;
        (node.balance, node.owed) = (balance, owed);
    }

    /// A new rate of the root, in tokens/s. Mints nothing.
    pub fn set_rate(&mut self, now: Instant, rate: f64) {
        self.advance(now);
        self.rate = rate.max(0.0);
        self.nodes[ROOT as usize].assured = self.rate;
        self.set_depth(ROOT, self.rate * DEPTH_S);
    }

    /// A new largest cost, in tokens. Depths follow when shares are set again ([`Tree::set_share`]).
    pub fn set_largest_cost(&mut self, now: Instant, largest_cost: f64) {
        self.advance(now);
        self.largest_cost = largest_cost.max(1.0);
    }

    /// A new share of a node. Balances shrink with their depth and never rise; debts stay. `false` if the node is gone.
    pub fn set_share(&mut self, now: Instant, id: NodeId, share: &Share) -> bool {
        self.advance(now);
        let Some(node) = self.node(id) else { return false };
        let (parent, kind, before) = (node.parent as usize, node.kind, node.assured);
        let assured = share.assured.max(0.0);
        let depth = match kind {
            Kind::Branch if self.is_coarse() => self.leaf_depth(assured),
            Kind::Branch => assured * DEPTH_S,
            Kind::Leaf => self.leaf_depth(assured),
        };
        let ceiling_depth = share.ceiling.map(|rate| (rate, (rate * DEPTH_S).max(self.lump())));
        let overdraft = if self.is_coarse() { self.largest_cost } else { 0.0 };
        self.nodes[parent].children_assured += assured - before;
        let node = &mut self.nodes[id.index as usize];
        node.assured = assured;
        node.weight = share.weight.unwrap_or(assured).max(0.0);
        node.set_ceiling(now, ceiling_depth, overdraft);
        self.set_depth(id.index, depth);
        true
    }

    /// A new assured rate of a node, in tokens/s; a weight that followed the old rate follows the new one. Mints nothing.
    pub fn set_assured(&mut self, now: Instant, id: NodeId, assured: f64) -> bool {
        let Some(node) = self.node(id) else { return false };
        let weight = (node.weight != node.assured).then_some(node.weight);
        let ceiling = node.ceiling.as_ref().map(crate::limit::TokenBucket::rate);
        self.set_share(now, id, &Share { assured, weight, ceiling })
    }

    /// Tokens per second the root mints.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The most that balances and pools hold together, in tokens.
    pub fn largest_stock(&self) -> f64 {
        (2.0 * DEPTH_S * self.rate).max(self.depths)
    }

    /// The most that requests may owe together, in tokens; 0 for unit costs.
    pub fn largest_debt(&self) -> f64 {
        if self.is_coarse() { (2.0 * self.largest_cost).max(2.0 * DEPTH_S * self.rate) } else { 0.0 }
    }

    /// The bound on what is admitted in any `window_s` seconds, in tokens.
    pub fn bound(&self, window_s: f64) -> f64 {
        self.rate * (window_s + TICK.as_secs_f64()) + self.largest_stock() + self.largest_debt()
    }

    /// When balances change next by time alone.
    pub fn next_tick_at(&self) -> Instant {
        self.ticked + TICK
    }

    /// When balances last changed by time.
    pub(crate) fn ticked_at(&self) -> Instant {
        self.ticked
    }

    /// Nodes the latest tick looked at.
    pub fn visited(&self) -> usize {
        self.visited
    }

    /// Sum of all balances, in tokens, as of the latest tick and what was taken since.
    pub fn stock(&self) -> f64 {
        self.stock
    }

    /// A leaf's balance or a branch's pool, in tokens, as of the latest tick and what was taken since.
    pub fn balance(&self, id: NodeId) -> Option<f64> {
        self.node(id).map(|n| n.balance)
    }

    /// What a node's balance or pool holds at most, in tokens.
    pub fn depth(&self, id: NodeId) -> Option<f64> {
        self.node(id).map(|n| n.depth)
    }

    /// The assured rate of a node, in tokens/s.
    pub fn assured(&self, id: NodeId) -> Option<f64> {
        self.node(id).map(|n| n.assured)
    }

    /// A leaf's recent inflow, in tokens/s (average over about 100 ms), at least its assured rate.
    pub fn inflow(&self, id: NodeId) -> Option<f64> {
        self.node(id).map(|n| n.inflow_rate.max(n.assured))
    }

    /// Whether a node is full and was not asked lately, so that ticks pass it by.
    pub fn is_idle(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|n| !n.active)
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index as usize).filter(|n| n.generation == id.generation && !n.gone)
    }

    fn is_coarse(&self) -> bool {
        self.largest_cost > 1.0
    }

    /// What one request may need at once, at least: half the largest cost, one token for unit costs.
    fn lump(&self) -> f64 {
        (0.5 * self.largest_cost).max(1.0)
    }

    fn leaf_depth(&self, assured: f64) -> f64 {
        if assured > 0.0 { (assured * DEPTH_S).max(self.lump()) } else { 0.0 }
    }

    fn set_depth(&mut self, index: u32, depth: f64) {
        self.activate(index);
        let node = &mut self.nodes[index as usize];
        let before = core::mem::replace(&mut node.depth, depth);
        self.depths += depth - before;
        if node.balance > 0.0 && before > 0.0 {
            let scaled = node.balance * (depth / before).min(1.0);
            self.stock -= node.balance - scaled;
            node.balance = scaled;
        }
    }

    /// Fills a fresh node: from nothing before the first request, from its parent's pool later.
    fn fill(&mut self, index: u32) {
        self.activate(index);
        let (depth, parent) = (self.nodes[index as usize].depth, self.nodes[index as usize].parent);
        let balance = if self.started {
            self.activate(parent);
            let balance = self.nodes[parent as usize].balance.clamp(0.0, depth);
            self.nodes[parent as usize].balance -= balance;
            balance
        } else {
            self.stock += depth;
            depth
        };
        self.nodes[index as usize].balance = balance;
    }

    /// Puts a node and those above it where ticks visit them.
    fn activate(&mut self, mut index: u32) {
        while !self.nodes[index as usize].active {
            let node = &mut self.nodes[index as usize];
            node.active = true;
            self.idle_stock -= node.balance;
            let parent = node.parent;
            self.nodes[parent as usize].active_children.push(index);
            index = parent;
        }
    }
}
