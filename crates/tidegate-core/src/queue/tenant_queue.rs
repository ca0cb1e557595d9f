//! The requests of one tenant in one class, and how much the tenant has yet to be served.

use crate::time::Instant;
use alloc::collections::VecDeque;

/// One that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct InLine {
    pub(super) slot: u32,
    pub(super) cost: f64,
    /// When its answer should begin: its goal, else its deadline.
    pub(super) by: Instant,
}

/// Waiting requests of a tenant, the one that is due first in front, and the tenant's deficit.
#[derive(Clone, Debug)]
pub(super) struct TenantQueue {
    pub(super) tenant: u64,
    pub(super) weight: f64,
    /// Cost the tenant may have served before its next turn.
    pub(super) deficit: f64,
    pub(super) waiting: VecDeque<InLine>,
}

impl TenantQueue {
    pub(super) fn new(tenant: u64) -> Self {
        Self { tenant, weight: 1.0, deficit: 0.0, waiting: VecDeque::new() }
    }

    /// Puts one in line behind all that are due no later. Where all have as long to wait, that is first come, first served.
    pub(super) fn push(&mut self, new: InLine) {
        let behind = self.waiting.iter().rposition(|w| w.by <= new.by).map_or(0, |place| place + 1);
        self.waiting.insert(behind, new);
    }

    /// Turns of one unit of cost per weight until a request of `cost` can be served.
    pub(super) fn turns_to(&self, cost: f64) -> f64 {
        ((cost - self.deficit) / self.weight).max(0.0)
    }

    /// Cost of all that is due no later than `by`.
    pub(super) fn cost_until(&self, by: Instant) -> f64 {
        self.waiting.iter().take_while(|w| w.by <= by).map(|w| w.cost).sum()
    }

    /// Cost of all that waits.
    pub(super) fn cost(&self) -> f64 {
        self.waiting.iter().map(|w| w.cost).sum()
    }
}
