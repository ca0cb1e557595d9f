//! Tenants whose requests come side by side, each from a stream of the seed of its own: a tenant's requests come at the same instants
//! whatever the others do, so a day with a burst and the same day without one can be compared request by request.
//!
//! A heap of the next arrival of each: O(log tenants) a request.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant};

use super::setup::Party;

/// Stream of the seed from which the first tenant's arrivals are drawn; the next ones follow.
const TENANTS_STREAM: u64 = 1 << 32;

/// Requests yet to come.
#[derive(Debug)]
pub(super) struct Crowd {
    parties: Arc<[Party]>,
    /// Of each tenant: the place of its party, and its draws.
    tenants: Vec<(u32, Rng)>,
    next: BinaryHeap<Reverse<(Instant, u32)>>,
    until: Instant,
}

impl Crowd {
    pub(super) fn new(parties: &Arc<[Party]>, length: Duration, seed: u64) -> Self {
        let places = parties.iter().zip(0..).flat_map(|(party, place)| (0..party.count).map(move |_| place));
        let tenants = places.zip(TENANTS_STREAM..).map(|(place, stream)| (place, Rng::stream(seed, stream))).collect();
        let until = Instant::ORIGIN + length;
        let mut crowd = Self { parties: Arc::clone(parties), tenants, next: BinaryHeap::new(), until };
        for tenant in 0..crowd.tenants.len() as u32 {
            crowd.draw(tenant, Instant::ORIGIN);
        }
        crowd
    }

    /// The next request: when it comes, its prompt and answer in tokens, and the place of its tenant.
    pub(super) fn next(&mut self) -> Option<(Instant, (u32, u32), u32)> {
        let Reverse((at, tenant)) = self.next.pop()?;
        self.draw(tenant, at);
        Some((at, self.parties[self.tenants[tenant as usize].0 as usize].tokens, tenant))
    }

    fn draw(&mut self, tenant: u32, last: Instant) {
        let (place, rng) = &mut self.tenants[tenant as usize];
        let party = &self.parties[*place as usize];
        let gap = party.arrivals.gap(rng);
        let gap = party.burst.map_or(gap, |burst| burst.gap(last.since(Instant::ORIGIN), gap));
        // At least a nanosecond, so that an absurd rate still lets time pass.
        let at = last + gap.max(Duration::from_nanos(1));
        if at < self.until {
            self.next.push(Reverse((at, tenant)));
        }
    }
}
