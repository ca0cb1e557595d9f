//! Which tenant holds how many places at which endpoint.
//!
//! While another tenant waits, nobody may hold more places of an endpoint than its share by weight among the tenants that run or wait.
//! The bound is per endpoint and not per pool, because it is the endpoints that free their places fastest which a greedy tenant would
//! otherwise hold all of, leaving the slow ones to the others.

use crate::id::EndpointId;
use alloc::collections::BTreeMap;

/// Requests in flight by tenant. Empty when nothing is in flight; only what is counted has an entry.
#[derive(Debug, Default)]
pub(super) struct TenantPlaces {
    at: BTreeMap<(u64, EndpointId), u32>,
    tenants: BTreeMap<u64, (f64, u32)>,
}

impl TenantPlaces {
    /// Counts anew what is in flight, each tenant with weight 1 until it comes again.
    pub(super) fn recount(&mut self, in_flight: impl Iterator<Item = (u64, EndpointId)>) {
        *self = Self::default();
        in_flight.for_each(|(tenant, id)| self.on_dispatch(tenant, 1.0, id));
    }

    /// A request of `tenant` was sent to `id`.
    pub(super) fn on_dispatch(&mut self, tenant: u64, weight: f64, id: EndpointId) {
        *self.at.entry((tenant, id)).or_default() += 1;
        let (w, n) = self.tenants.entry(tenant).or_insert((weight, 0));
        (*w, *n) = (weight, *n + 1);
    }

    /// A request of `tenant` at `id` ended.
    pub(super) fn on_end(&mut self, tenant: u64, id: EndpointId) {
        if let Some(n) = self.at.get_mut(&(tenant, id)) {
            *n -= 1;
            if *n == 0 {
                self.at.remove(&(tenant, id));
            }
        }
        if let Some((_, n)) = self.tenants.get_mut(&tenant) {
            *n -= 1;
            if *n == 0 {
                self.tenants.remove(&tenant);
            }
        }
    }

    /// Whether `tenant` of `weight` holds its share of the `places` of `id`, rounded up, beside those that run and `waiting`, the weight of
    /// other tenants that only wait.
    pub(super) fn holds_share(&self, tenant: u64, weight: f64, id: EndpointId, places: u32, waiting: f64) -> bool {
        let running: f64 = self.tenants.iter().filter(|(t, _)| **t != tenant).map(|(_, (w, _))| w).sum();
        let others = running.max(waiting);
        let cap = libm::ceil(f64::from(places) * weight / (weight + others)).max(1.0);
        f64::from(self.at.get(&(tenant, id)).copied().unwrap_or(0)) >= cap
    }
}
