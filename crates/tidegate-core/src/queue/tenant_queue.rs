//! The requests of one tenant in one class, and how much the tenant has yet to be served.

use alloc::collections::VecDeque;

/// Waiting requests of a tenant, first come first served, and the tenant's deficit.
#[derive(Clone, Debug)]
pub(super) struct TenantQueue {
    pub(super) tenant: u64,
    pub(super) weight: f64,
    /// Cost the tenant may have served before its next turn.
    pub(super) deficit: f64,
    /// Slot and cost of each.
    pub(super) waiting: VecDeque<(u32, f64)>,
}

impl TenantQueue {
    pub(super) fn new(tenant: u64) -> Self {
        Self { tenant, weight: 1.0, deficit: 0.0, waiting: VecDeque::new() }
    }

    /// Turns of one unit of cost per weight until a request of `cost` can be served.
    pub(super) fn turns_to(&self, cost: f64) -> f64 {
        ((cost - self.deficit) / self.weight).max(0.0)
    }

    /// Cost of all that waits.
    pub(super) fn cost(&self) -> f64 {
        self.waiting.iter().map(|(_, c)| c).sum()
    }
}
