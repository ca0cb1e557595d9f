//! A ring of virtual nodes.

use crate::endpoint::Endpoint;
use crate::hash::mix;
use crate::id::EndpointId;
use alloc::vec::Vec;

/// Most points one endpoint gets, as a multiple of `virtual_nodes`: a weight of a thousand must not cost a million points.
const MAX_WEIGHT: f64 = 20.0;

/// Points on a 64-bit ring, sorted.
#[derive(Debug)]
pub(super) struct Ring {
    virtual_nodes: u32,
    points: Vec<(u64, EndpointId)>,
}

impl Ring {
    pub(super) fn new(virtual_nodes: u32) -> Self {
        Self { virtual_nodes, points: Vec::new() }
    }

    pub(super) fn build<'a>(&mut self, members: impl Iterator<Item = &'a Endpoint>) {
        self.points.clear();
        for e in members {
            let nodes = libm::round(f64::from(self.virtual_nodes) * e.weight.min(MAX_WEIGHT)).max(1.0) as u64;
            self.points.extend((0..nodes).map(|k| (mix(e.key ^ mix(k)), e.id)));
        }
        self.points.sort_unstable();
    }

    /// The first endpoint clockwise from `point` that `accepts`, and whether it is the very first.
    pub(super) fn find(&self, point: u64, accepts: impl Fn(EndpointId) -> bool) -> Option<(EndpointId, bool)> {
        let start = self.points.partition_point(|&(p, _)| p < point);
        let (before, after) = self.points.split_at(start);
        let mut refused = None;
        for (n, &(_, id)) in after.iter().chain(before).enumerate() {
            if refused != Some(id) && accepts(id) {
                return Some((id, n == 0));
            }
            refused = Some(id);
        }
        None
    }
}
