//! Shares of one rate: a tree, and the names of its nodes.

use super::config::{NamedShare, SharesConfig};
use crate::limit::directory::{Directory, OTHERS};
use crate::limit::quantity::{Ask, Scope};
use crate::limit::tree::{Kind, NodeId, Share, Tree};
use crate::time::Instant;
use alloc::string::String;
use alloc::vec::Vec;

/// A named place in the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) node: NodeId,
    pub(super) outstanding: u32,
    children: u32,
    is_listed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct SharesRule {
    pub(super) cfg: SharesConfig,
    pub(super) tree: Tree,
    /// Names under the place above them plus one; 0 is the root.
    pub(super) places: Directory<Place>,
}

impl SharesRule {
    pub(super) fn new(now: Instant, cfg: SharesConfig) -> Self {
        let tree = Tree::new(now, cfg.rate, cfg.largest_cost);
        let mut rule = Self { tree, places: Directory::new(cfg.max_names), cfg };
        rule.list(now);
        rule
    }

    /// The scope that a level of the tree limits: 0 is the root.
    pub(super) fn scope(&self, level: usize) -> Scope {
        level.checked_sub(1).and_then(|at| self.cfg.levels.get(at)).copied().unwrap_or(Scope::Global)
    }

    /// The leaf for a request, which is made if it is not there.
    pub(super) fn locate(&mut self, now: Instant, ask: &Ask<'_>) -> Option<(u32, NodeId)> {
        let (mut above, mut node, mut slot) = (0, self.tree.root(), None);
        for level in 0..self.cfg.levels.len() {
            let name = ask.name(self.cfg.levels[level]);
            let at = self.place(now, level, above, node, name)?;
            node = self.places.get(at)?.node;
            above = at + 1;
            slot = Some(at);
        }
        slot.map(|slot| (slot, node))
    }

    /// The leaf for a request, if it is there.
    pub(super) fn find(&self, ask: &Ask<'_>) -> Option<Place> {
        let mut above = 0;
        for scope in &self.cfg.levels {
            let at = self.places.find(above, ask.name(*scope)).or_else(|| self.places.find(above, OTHERS))?;
            above = at + 1;
        }
        self.places.get(above.checked_sub(1)?).copied()
    }

    /// The node at a path of names, which is made if it is not there.
    pub(super) fn enter_path(&mut self, now: Instant, path: &[String]) -> Option<NodeId> {
        let (mut above, mut node) = (0, self.tree.root());
        for (level, name) in path.iter().enumerate().take(self.cfg.levels.len()) {
            let at = self.place(now, level, above, node, name)?;
            node = self.places.get(at)?.node;
            above = at + 1;
        }
        (path.len() <= self.cfg.levels.len()).then_some(node)
    }

    /// The node at a path of names; the root for none.
    pub(super) fn node_at(&self, path: &[&str]) -> Option<NodeId> {
        let mut above = 0;
        for name in path {
            above = self.places.find(above, name)? + 1;
        }
        above.checked_sub(1).map_or(Some(self.tree.root()), |slot| self.places.get(slot).map(|p| p.node))
    }

    /// Names from the top down to a slot.
    pub(super) fn path(&self, mut slot: u32) -> Vec<&str> {
        let mut path = Vec::new();
        while let Some((above, name)) = self.places.name(slot) {
            path.push(name);
            let Some(next) = above.checked_sub(1) else { break };
            slot = next;
        }
        path.reverse();
        path
    }

    pub(super) fn hold(&mut self, slot: u32) {
        if let Some(place) = self.places.get_mut(slot) {
            place.outstanding += 1;
        }
    }

    pub(super) fn let_go(&mut self, slot: u32) {
        if let Some(place) = self.places.get_mut(slot) {
            place.outstanding = place.outstanding.saturating_sub(1);
        }
    }

    /// New numbers, minting nothing; names that are no longer listed get the share of others.
    pub(super) fn set(&mut self, now: Instant, cfg: SharesConfig) {
        self.tree.set_rate(now, cfg.rate);
        self.tree.set_largest_cost(now, cfg.largest_cost);
        self.cfg = cfg;
        let slots: Vec<u32> = self.places.iter().map(|(slot, _, _)| slot).collect();
        for slot in slots {
            let others = self.others(self.path(slot).len() - 1);
            if let Some(place) = self.places.get_mut(slot) {
                place.is_listed = false;
                self.tree.set_share(now, place.node, &others);
            }
        }
        self.list(now);
    }

    fn list(&mut self, now: Instant) {
        self.places.set_bound(self.cfg.max_names + count(&self.cfg.children));
        let children = core::mem::take(&mut self.cfg.children);
        self.list_below(now, 0, 0, self.tree.root(), &children);
        self.cfg.children = children;
    }

    fn list_below(&mut self, now: Instant, level: usize, above: u32, parent: NodeId, children: &[NamedShare]) {
        if level >= self.cfg.levels.len() {
            return;
        }
        for child in children {
            let known = self.places.find(above, &child.name);
            let Some(slot) = known.or_else(|| self.enter(now, level, above, parent, &child.name, &child.share)) else {
                continue;
            };
            let Some(place) = self.places.get_mut(slot) else { continue };
            place.is_listed = true;
            let node = place.node;
            self.tree.set_share(now, node, &child.share);
            self.list_below(now, level + 1, slot + 1, node, &child.children);
        }
    }

    fn others(&self, level: usize) -> Share {
        self.cfg.others.get(level).copied().unwrap_or(Share { assured: 0.0, weight: Some(1.0), ceiling: None })
    }

    fn place(&mut self, now: Instant, level: usize, above: u32, parent: NodeId, name: &str) -> Option<u32> {
        if let Some(slot) = self.places.find(above, name) {
            self.places.touch(slot);
            return Some(slot);
        }
        if self.places.is_full() {
            let tree = &self.tree;
            let spared = |slot: u32, p: &Place| {
                slot + 1 != above && !p.is_listed && p.outstanding == 0 && p.children == 0 && tree.is_idle(p.node)
            };
            match self.places.victim(spared) {
                Some(gone) => self.forget(now, gone),
                None if name != OTHERS => return self.place(now, level, above, parent, OTHERS),
                None => {}
            }
        }
        let share = self.others(level);
        self.enter(now, level, above, parent, name, &share)
    }

    fn enter(
        &mut self,
        now: Instant,
        level: usize,
        above: u32,
        parent: NodeId,
        name: &str,
        share: &Share,
    ) -> Option<u32> {
        let kind = if level + 1 == self.cfg.levels.len() { Kind::Leaf } else { Kind::Branch };
        let node = self.tree.add(now, parent, kind, share)?;
        if let Some(place) = above.checked_sub(1).and_then(|slot| self.places.get_mut(slot)) {
            place.children += 1;
        }
        Some(self.places.insert(above, name, Place { node, outstanding: 0, children: 0, is_listed: false }))
    }

    fn forget(&mut self, now: Instant, slot: u32) {
        let above = self.places.name(slot).map_or(0, |(above, _)| above);
        if let Some(place) = self.places.remove(slot) {
            self.tree.remove(now, place.node);
        }
        if let Some(place) = above.checked_sub(1).and_then(|slot| self.places.get_mut(slot)) {
            place.children = place.children.saturating_sub(1);
        }
    }
}

fn count(children: &[NamedShare]) -> usize {
    children.iter().map(|child| 1 + count(&child.children)).sum()
}
