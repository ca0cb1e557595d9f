//! The tick: what the root mints goes down the tree.
//!
//! Per node: assured inflow first, in proportion where less came than is assured; what full balances do not take is spare, and is shared by
//! weighted max-min among those in need; the rest fills the pool; what the pool does not hold goes back up, where a sibling may need it.
//! O(a log a) for `a` active nodes.

use super::{Kind, ROOT, TICK, Tree};
use crate::time::{Duration, Instant};
use core::mem::take;

/// Seconds over which a leaf's inflow is averaged.
const INFLOW_S: f64 = 0.1;
/// A balance this close to its depth is full.
const FULL: f64 = 1e-9;

/// A child that could use more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    ratio: f64,
    need: f64,
    weight: f64,
    child: u32,
}

impl Tree {
    /// Runs the ticks that are due. Late ones are made up in one; an earlier `now` than any before runs none.
    pub fn advance(&mut self, now: Instant) {
        let tick_nanos = TICK.as_nanos() as u64;
        let due = now.since(self.ticked).as_nanos() as u64 / tick_nanos;
        if due == 0 {
            return;
        }
        let passed = Duration::from_nanos(due * tick_nanos);
        self.ticked = self.ticked + passed;
        self.tick(passed.as_secs_f64());
    }

    fn tick(&mut self, dt: f64) {
        self.visited = 0;
        let (active_stock, debt) = self.survey(ROOT);
        let stock = self.idle_stock + active_stock;
        // What is owed beyond the largest debt is no room for more stock.
        let beyond = (debt - self.largest_debt()).max(0.0);
        let minted = (self.rate * dt).min(self.largest_stock() - stock - beyond).max(0.0);
        let unused = self.hand_down(ROOT, minted, dt);
        self.debt = self.close(ROOT, dt, false);
        self.stock = stock + minted - unused;
    }

    /// Takes back credit nobody wants, forgets what is no longer wanted, and adds up balances and debts.
    fn survey(&mut self, index: u32) -> (f64, f64) {
        let now = self.ticked;
        let children = take(&mut self.nodes[index as usize].active_children);
        let (mut stock, mut debt, mut returned) = (0.0, 0.0, 0.0);
        for &child in &children {
            self.visited += 1;
            let node = &mut self.nodes[child as usize];
            if node.kind == Kind::Branch {
                let below = self.survey(child);
                stock += below.0;
                debt += below.1;
                continue;
            }
            if !node.is_wanting(now) {
                node.wanted = 0.0;
                if node.balance > node.depth {
                    returned += node.balance - node.depth;
                    node.balance = node.depth;
                }
            }
            stock += node.balance;
            debt += (-node.balance).max(0.0);
        }
        let node = &mut self.nodes[index as usize];
        node.active_children = children;
        node.balance += returned;
        (stock + node.balance, debt)
    }

    /// Gives `inflow` tokens to a node; returns what it has no use for.
    fn hand_down(&mut self, index: u32, inflow: f64, dt: f64) -> f64 {
        let now = self.ticked;
        let node = &mut self.nodes[index as usize];
        if node.kind == Kind::Leaf {
            let taken = inflow.min(node.room());
            node.add(taken);
            node.inflow += taken;
            node.in_need = node.is_wanting(now);
            let covered = node.balance.max(0.0);
            let missing = (node.demand - covered).max(node.wanted - node.balance).max(0.0);
            node.need = if node.in_need { missing } else { 0.0 };
            if taken <= 0.0 {
                // It has no inflow of its own to pay from.
                node.need = node.need.max(-node.balance);
            }
            self.cap_need(index, dt);
            return inflow - taken;
        }
        let children = take(&mut node.active_children);
        let (balance, surplus) = (node.balance, (node.balance - node.depth).max(0.0));
        let mut spare = balance + inflow - self.assure(index, &children, inflow + surplus, dt);
        spare -= self.share_out(&children, spare);
        let below = |c: &u32| &self.nodes[*c as usize];
        let needing = children.iter().filter(|c| below(c).in_need).count();
        let need = children.iter().map(below).filter(|c| c.weight > 0.0).map(|c| c.need).sum();
        let node = &mut self.nodes[index as usize];
        node.active_children = children;
        node.needing = u32::try_from(needing).unwrap_or(u32::MAX);
        node.in_need = needing > 0;
        node.need = need;
        node.balance = spare.min(node.depth);
        let rest = (spare - node.depth).max(0.0);
        self.cap_need(index, dt);
        rest
    }

    /// Gives children what they are assured, out of `inflow`; returns what they took. A scarce inflow is given in proportion, and what some have
    /// no use for then to the others.
    fn assure(&mut self, index: u32, children: &[u32], inflow: f64, dt: f64) -> f64 {
        let node = &self.nodes[index as usize];
        let kept = node.kept();
        let assured: f64 = children.iter().map(|c| self.nodes[*c as usize].assured).sum();
        let first = if assured > 0.0 { (dt * kept).min(inflow / assured) } else { 0.0 };
        let mut left = inflow;
        for per_assured in [first, dt * kept - first] {
            for &child in children {
                let amount = (self.nodes[child as usize].assured * per_assured).min(left);
                if amount > 0.0 || per_assured == first {
                    left -= amount - self.hand_down(child, amount.max(0.0), dt);
                }
            }
        }
        inflow - left
    }

    /// Nobody can use more than its ceiling lets through.
    fn cap_need(&mut self, index: u32, dt: f64) {
        let now = self.ticked;
        let node = &mut self.nodes[index as usize];
        if let Some(ceiling) = &node.ceiling {
            let held = if node.kind == Kind::Leaf { node.balance.max(0.0) } else { 0.0 };
            let passes = (ceiling.level_at(now) + ceiling.rate() * dt.max(TICK.as_secs_f64())).max(node.wanted) - held;
            node.need = node.need.min(passes.max(0.0));
        }
    }

    /// Weighted max-min of `spare` among the children in need; returns what was given.
    fn share_out(&mut self, children: &[u32], spare: f64) -> f64 {
        if spare <= 0.0 {
            return 0.0;
        }
        let start = self.scratch.len();
        for &child in children {
            let node = &self.nodes[child as usize];
            if node.need > 0.0 && node.weight > 0.0 {
                let (need, weight) = (node.need, node.weight);
                self.scratch.push(Claim { ratio: need / weight, need, weight, child });
            }
        }
        self.scratch[start..].sort_by(|a, b| a.ratio.total_cmp(&b.ratio).then(a.child.cmp(&b.child)));
        let mut weights: f64 = self.scratch[start..].iter().map(|c| c.weight).sum();
        let mut left = spare;
        for at in start..self.scratch.len() {
            let claim = self.scratch[at];
            let is_last = at + 1 == self.scratch.len();
            let part = if is_last { left } else { left * claim.weight / weights };
            let given = claim.need.min(part).max(0.0);
            self.grant(claim.child, given);
            left -= given;
            weights -= claim.weight;
        }
        self.scratch.truncate(start);
        spare - left
    }

    fn grant(&mut self, index: u32, amount: f64) {
        let node = &mut self.nodes[index as usize];
        node.need -= amount;
        if node.kind == Kind::Leaf {
            node.add(amount);
            node.inflow += amount;
            return;
        }
        let children = take(&mut node.active_children);
        let given = self.share_out(&children, amount);
        let node = &mut self.nodes[index as usize];
        node.active_children = children;
        node.balance += amount - given;
    }

    /// Ends the tick: inflows are averaged, what is full and unwanted leaves the list. Returns what is owed.
    /// `is_unassured`: what is assured below comes from nothing.
    fn close(&mut self, index: u32, dt: f64, is_unassured: bool) -> f64 {
        let now = self.ticked;
        let keep = libm::exp(-dt / INFLOW_S);
        let mut children = take(&mut self.nodes[index as usize].active_children);
        let (mut idle, mut debt) = (0.0, 0.0);
        children.retain(|&child| {
            let node = &mut self.nodes[child as usize];
            let is_full = match node.kind {
                Kind::Leaf => {
                    node.demand = 0.0;
                    node.inflow_rate = keep * node.inflow_rate + (1.0 - keep) * take(&mut node.inflow) / dt;
                    debt += node.owed;
                    let unwanted = !node.is_wanting(now) && node.balance <= node.depth;
                    let holds_all_it_can_get = (is_unassured || node.assured <= 0.0) && node.balance >= 0.0;
                    unwanted && (node.balance >= node.depth - FULL || holds_all_it_can_get)
                }
                Kind::Branch => {
                    let is_unassured = is_unassured || node.assured <= 0.0;
                    debt += self.close(child, dt, is_unassured);
                    let node = &self.nodes[child as usize];
                    node.active_children.is_empty() && (is_unassured || node.balance >= node.depth - FULL)
                }
            };
            if is_full {
                let node = &mut self.nodes[child as usize];
                node.active = false;
                (node.need, node.inflow_rate, node.in_need) = (0.0, 0.0, false);
                idle += node.balance;
            }
            !is_full
        });
        self.nodes[index as usize].active_children = children;
        self.idle_stock += idle;
        debt
    }
}
