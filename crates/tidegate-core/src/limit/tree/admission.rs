//! Admission of a request at a leaf, and its settlement.
//!
//! Ceilings from leaf to root are read first; then the leaf's balance pays, or a pool above it that nobody else needs, or the leaf owes.
//! A refusal changes no balance: it only says what is wanted, for the next tick to see.

use super::{Kind, NodeId, SURCHARGE_S, TICK, Tree};
use crate::limit::token_bucket::SLACK;
use crate::time::{Duration, Instant, duration_from_secs};

/// The longest time a refusal says, since inflows change.
const LONGEST_RETRY_S: f64 = 60.0;
/// A pool filled to this part belongs to whoever comes.
const NEARLY_FULL: f64 = 0.95;

/// Where the tokens of an admitted request come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The leaf's balance, which may go negative.
    Balance,
    /// The pool of a node above it.
    Pool(NodeId),
}

/// Why a request does not fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    /// Level of the node that is short: 0 the root, 1 its children.
    pub level: usize,
    /// Whether a ceiling is short, and not a balance.
    pub ceiling: bool,
    /// Whether it can never fit.
    pub terminal: bool,
    /// After which time it is expected to fit: exact for a ceiling and for a leaf that has its assured rate only.
    pub retry_after: Option<Duration>,
}

impl Tree {
    /// Whether `n` tokens fit at a leaf, and from where; call [`Tree::advance`] first. Changes nothing. O(depth).
    pub fn check(&self, now: Instant, leaf: NodeId, n: f64) -> Result<Source, Refusal> {
        let never = Refusal { level: 0, ceiling: false, terminal: true, retry_after: None };
        let Some(node) = self.node(leaf).filter(|l| l.kind == Kind::Leaf) else { return Err(never) };
        self.check_ceilings(now, leaf, n)?;
        if n > node.depth.max(self.largest_cost) + self.largest_debt() {
            return Err(Refusal { level: usize::from(node.level), ..never });
        }
        if node.balance >= n - SLACK {
            return Ok(Source::Balance);
        }
        if let Some(pool) = self.pool_for(leaf, n) {
            return Ok(Source::Pool(pool));
        }
        let others_owe = self.debt - node.owed;
        if self.is_coarse() && node.balance > SLACK && others_owe + n - node.balance <= self.largest_debt() {
            return Ok(Source::Balance);
        }
        Err(self.refusal(now, leaf, n))
    }

    /// Takes `n` tokens from where [`Tree::check`] said, in the same instant.
    pub fn take(&mut self, now: Instant, leaf: NodeId, n: f64, source: Source) {
        if self.node(leaf).is_none() {
            return;
        }
        self.started = true;
        self.activate(leaf.index);
        self.stock -= n;
        let payer = match source {
            Source::Balance => leaf.index,
            Source::Pool(pool) => pool.index,
        };
        self.activate(payer);
        let node = &mut self.nodes[payer as usize];
        if source == Source::Balance {
            let beyond = (n - node.balance.max(0.0)).max(0.0);
            node.owed += beyond;
            self.debt += beyond;
        }
        node.balance -= n;
        self.nodes[leaf.index as usize].demand += n;
        self.each_ceiling(leaf, |ceiling| ceiling.charge(now, n));
    }

    /// `n` tokens were refused, or wait: the next tick sees the need. `largest`: the largest single request among them.
    pub fn want(&mut self, now: Instant, leaf: NodeId, n: f64, largest: f64) {
        if self.node(leaf).is_none() {
            return;
        }
        self.activate(leaf.index);
        let node = &mut self.nodes[leaf.index as usize];
        node.demand += n;
        node.wanted = node.wanted.max(largest);
        node.asked = Some(node.asked.map_or(now, |asked| asked.max(now)));
        let mut index = leaf.index;
        while !core::mem::replace(&mut self.nodes[index as usize].in_need, true) && index != super::ROOT {
            index = self.nodes[index as usize].parent;
            self.nodes[index as usize].needing += 1;
        }
    }

    /// Admits `n` tokens or says why not; a refusal is remembered as a need.
    pub fn try_take(&mut self, now: Instant, leaf: NodeId, n: f64) -> Result<Source, Refusal> {
        self.advance(now);
        match self.check(now, leaf, n) {
            Ok(source) => {
                self.take(now, leaf, n, source);
                Ok(source)
            }
            Err(refusal) => {
                if !refusal.terminal && !refusal.ceiling {
                    self.want(now, leaf, n, n);
                }
                Err(refusal)
            }
        }
    }

    /// What a request took turned out `more` tokens dearer; negative gives back. A refund stops where the leaf is full (or holds the request it
    /// waits for) and where the tree is; a debt at the largest debt or ten seconds of
    /// what the leaf is assured. Nothing happens for a leaf that is gone.
    pub fn settle(&mut self, now: Instant, leaf: NodeId, more: f64) {
        if self.node(leaf).is_none() || more == 0.0 {
            return;
        }
        self.activate(leaf.index);
        let (debt, spare) = (self.largest_debt(), (self.largest_stock() - self.stock).max(0.0));
        let node = &mut self.nodes[leaf.index as usize];
        let deepest = -debt.max(SURCHARGE_S * node.assured);
        let (balance, owed) = (node.balance, node.owed);
        node.add(if more > 0.0 {
            -more.min((balance - deepest).max(0.0))
        } else {
            (-more).min((node.depth + node.wanted - balance).max(0.0)).min(spare)
        });
        self.stock += node.balance - balance;
        self.debt += node.owed - owed;
        self.each_ceiling(leaf, |ceiling| ceiling.settle(now, more));
    }

    fn check_ceilings(&self, now: Instant, leaf: NodeId, n: f64) -> Result<(), Refusal> {
        let mut worst: Option<Refusal> = None;
        let mut index = leaf.index;
        while index != super::ROOT {
            let node = &self.nodes[index as usize];
            if let Some(ceiling) = node.ceiling.as_ref().filter(|c| !c.fits(now, n)) {
                let terminal = ceiling.is_terminal(n);
                let retry_after = ceiling.fits_at(now, n).map(|at| at.since(now));
                let refusal = Refusal { level: usize::from(node.level), ceiling: true, terminal, retry_after };
                if worst.is_none_or(|w| !w.terminal && (terminal || retry_after > w.retry_after)) {
                    worst = Some(refusal);
                }
            }
            index = node.parent;
        }
        worst.map_or(Ok(()), Err)
    }

    fn each_ceiling(&mut self, leaf: NodeId, mut act: impl FnMut(&mut crate::limit::TokenBucket)) {
        let mut index = leaf.index;
        while index != super::ROOT {
            let node = &mut self.nodes[index as usize];
            if let Some(ceiling) = &mut node.ceiling {
                act(ceiling);
            }
            index = node.parent;
        }
    }

    /// The nearest pool above the leaf that holds `n` tokens and that nobody but this branch needs, or that is nearly full.
    fn pool_for(&self, leaf: NodeId, n: f64) -> Option<NodeId> {
        let mut child = &self.nodes[leaf.index as usize];
        loop {
            if child.weight <= 0.0 {
                return None;
            }
            let index = child.parent;
            let pool = &self.nodes[index as usize];
            let is_alone = pool.needing == 0 || (pool.needing == 1 && child.in_need);
            if pool.balance >= n && (is_alone || pool.balance >= NEARLY_FULL * pool.depth) {
                return Some(NodeId { index, generation: pool.generation });
            }
            if index == super::ROOT {
                return None;
            }
            child = pool;
        }
    }

    /// The refusal of a leaf that is short: the nearest level that may not borrow, or the first below the root: its share of what is left
    /// is used up.
    fn refusal(&self, now: Instant, leaf: NodeId, n: f64) -> Refusal {
        let node = &self.nodes[leaf.index as usize];
        let mut at = node;
        while at.weight > 0.0 && at.level > 1 {
            at = &self.nodes[at.parent as usize];
        }
        let missing = if self.is_coarse() {
            let others_owe = self.debt - node.owed;
            (-node.balance).max(others_owe + n - node.balance - self.largest_debt()).min(n - node.balance)
        } else {
            n - node.balance
        };
        let above = &self.nodes[node.parent as usize];
        let inflow = node.inflow_rate.max(node.assured * above.kept());
        let tick_s = TICK.as_secs_f64();
        let most_ticks = LONGEST_RETRY_S / tick_s;
        // Tokens come with ticks: the first tick that brings the last of them.
        let ticks = if inflow > 0.0 { libm::ceil((missing - SLACK) / (inflow * tick_s)).max(1.0) } else { most_ticks };
        let at_tick = self.ticked + duration_from_secs(ticks.min(most_ticks) * tick_s);
        let retry_after = Some(at_tick.since(now).max(Duration::from_nanos(1)));
        Refusal { level: usize::from(at.level), ceiling: false, terminal: false, retry_after }
    }
}
