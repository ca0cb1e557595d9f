//! Four ways to limit one rate.

use tidegate_core::limit::TokenBucket;
use tidegate_core::limit::tree::{Kind, NodeId, Share, Tree};
use tidegate_core::time::Instant;

use super::settings::{Tenant, Trace};

/// Seconds of the rate that the shared bucket holds, as many as a pool of ours.
const DEPTH_S: f64 = 0.05;
/// Length of a fixed window, in seconds.
const WINDOW_S: f64 = 1.0;

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemeKind {
    Shared,
    Windows,
    Refusing,
    Queueing,
}

impl SchemeKind {
    pub(super) const ALL: [Self; 4] = [Self::Shared, Self::Windows, Self::Refusing, Self::Queueing];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared bucket",
            Self::Windows => "fixed windows",
            Self::Refusing => "ours, refusing",
            Self::Queueing => "ours, queueing",
        }
    }
}

/// One of them at work.
pub(super) enum Scheme {
    /// First come, first served.
    Shared(TokenBucket),
    /// A counter per tenant that starts anew every second; what nobody is assured is divided by weight once and for all.
    Windows { limits: Vec<f64>, counts: Vec<f64>, window: u64 },
    /// The hierarchical bucket.
    Tree { tree: Box<Tree>, leaves: Vec<NodeId> },
}

impl Scheme {
    pub(super) fn new(kind: SchemeKind, trace: &Trace, tenants: &[Tenant]) -> Self {
        match kind {
            SchemeKind::Shared => {
                let depth = (trace.rate * DEPTH_S).max(trace.largest_cost());
                Self::Shared(TokenBucket::new(Instant::ORIGIN, trace.rate, depth))
            }
            SchemeKind::Windows => {
                let assured: f64 = tenants.iter().map(|t| t.assured).sum();
                let weights: f64 = tenants.iter().map(|t| t.weight).sum();
                let rest = (trace.rate - assured).max(0.0) / weights.max(1e-12);
                let limits: Vec<f64> = tenants.iter().map(|t| (t.assured + rest * t.weight) * WINDOW_S).collect();
                Self::Windows { counts: vec![0.0; limits.len()], limits, window: 0 }
            }
            SchemeKind::Refusing | SchemeKind::Queueing => {
                let (tree, leaves) = plant(trace, tenants);
                Self::Tree { tree: Box::new(tree), leaves }
            }
        }
    }

    pub(super) fn ask(&mut self, now: Instant, tenant: usize, n: f64) -> bool {
        match self {
            Self::Shared(bucket) => bucket.take(now, n),
            Self::Windows { limits, counts, window } => {
                let at = (now.as_secs_f64() / WINDOW_S) as u64;
                if at != *window {
                    *window = at;
                    counts.fill(0.0);
                }
                let fits = counts[tenant] + n <= limits[tenant];
                counts[tenant] += if fits { n } else { 0.0 };
                fits
            }
            Self::Tree { tree, leaves } => tree.try_take(now, leaves[tenant], n).is_ok(),
        }
    }

    pub(super) fn settle(&mut self, now: Instant, tenant: usize, more: f64) {
        match self {
            Self::Shared(bucket) => bucket.settle(now, more),
            Self::Windows { counts, .. } => counts[tenant] = (counts[tenant] + more).max(0.0),
            Self::Tree { tree, leaves } => {
                tree.advance(now);
                tree.settle(now, leaves[tenant], more);
            }
        }
    }

    /// `n` tokens wait behind the request that was just asked for.
    pub(super) fn want(&mut self, now: Instant, tenant: usize, n: f64) {
        if let Self::Tree { tree, leaves } = self {
            tree.want(now, leaves[tenant], n, 0.0);
        }
    }

    pub(super) fn next_tick_at(&self) -> Option<Instant> {
        if let Self::Tree { tree, .. } = self { Some(tree.next_tick_at()) } else { None }
    }

    /// The stated bound on what is admitted beyond rate x time, in tokens.
    pub(super) fn bound(&self) -> Option<f64> {
        if let Self::Tree { tree, .. } = self { Some(tree.bound(0.0)) } else { None }
    }
}

fn plant(trace: &Trace, tenants: &[Tenant]) -> (Tree, Vec<NodeId>) {
    let start = Instant::ORIGIN;
    let mut tree = Tree::new(start, trace.rate, trace.largest_cost());
    let root = tree.root();
    let branches: Vec<NodeId> = trace
        .branches
        .iter()
        .filter_map(|b| {
            let share = Share { assured: b.assured, weight: b.weight, ceiling: b.ceiling };
            tree.add(start, root, Kind::Branch, &share)
        })
        .collect();
    let leaves = tenants.iter().filter_map(|t| {
        let parent = t.branch.and_then(|b| branches.get(b).copied()).unwrap_or(root);
        let share = Share { assured: t.assured, weight: Some(t.weight), ceiling: t.ceiling };
        tree.add(start, parent, Kind::Leaf, &share)
    });
    let leaves = leaves.collect();
    (tree, leaves)
}
