//! `prefix_affinity`: to the endpoint that was sent most of the prompt's beginning, unless it has too much to do.
//!
//! A prompt of which at least `threshold` is expected in some endpoint's cache goes where most of it is; any other goes to the endpoint with
//! the fewest requests in flight. The escape: while the busiest has over `spread` requests more than the idlest *and* over `ratio` times as
//! many, caches count for nothing and the least loaded endpoint is taken; so a hot prefix spreads, and once it has been sent elsewhere it is
//! cached there too. A miss never goes by the size of what an endpoint holds: that drowns whoever holds least (gateways.md 5).
//! Source: notes, algorithms, 2.3 (`cache_aware`). O(n).

use super::tie::Lowest;
use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::pool::config::PoolConfig;
use crate::request::Request;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "prefix_affinity",
    summary: "longest cached beginning of the prompt, with an escape from imbalance; needs `prefix_cache`",
    source: "notes: algorithms, section 2.3",
    example: "policy: { name: prefix_affinity, threshold: 0.5 }",
    warms_up: false,
    chases_load: true,
    params: &[
        Param {
            name: "threshold",
            summary: "part of the prompt that has to be cached somewhere for caches to count",
            unit: "fraction",
            kind: ParamKind::Float { min: 0.0, max: 1.0 },
            default: Value::Float(0.5),
            example: "0.5",
        },
        Param {
            name: "spread",
            summary: "requests by which the busiest endpoint may exceed the idlest",
            unit: "requests",
            kind: ParamKind::Integer { min: 0, max: 100_000 },
            default: Value::Integer(32),
            example: "32",
        },
        Param {
            name: "ratio",
            summary: "times the idlest endpoint's requests that the busiest may have",
            unit: "ratio",
            kind: ParamKind::Float { min: 1.0, max: 100.0 },
            default: Value::Float(1.1),
            example: "1.1",
        },
    ],
};

/// The picker.
#[derive(Debug)]
pub struct PrefixAffinity {
    threshold: f64,
    spread: u32,
    ratio: f64,
}

impl PrefixAffinity {
    /// A picker with these parameters.
    pub fn new(params: &Params) -> Self {
        Self {
            threshold: params.float("threshold"),
            spread: u32::try_from(params.integer("spread")).unwrap_or(u32::MAX),
            ratio: params.float("ratio"),
        }
    }

    fn is_imbalanced(&self, usable: &Usable<'_>) -> bool {
        let loads = || usable.iter().map(|e| e.in_flight);
        let (most, least) = (loads().max().unwrap_or(0), loads().min().unwrap_or(0));
        most - least > self.spread && f64::from(most) > self.ratio * f64::from(least)
    }
}

impl Picker for PrefixAffinity {
    fn pick(&mut self, cx: &mut Cx<'_>, req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        let here = || req.matched.iter().filter(|m| usable.contains(m.0));
        let most = here().map(|m| m.1).fold(0.0, f64::max);
        let is_cached = most > 0.0 && most >= self.threshold * req.work();
        let mut lowest = Lowest::new();
        if is_cached && !self.is_imbalanced(usable) {
            for &(id, tokens) in here() {
                lowest.offer(cx, id, -tokens, f64::from(usable.endpoints.get(id).in_flight));
            }
            return lowest.take().map(|id| Pick::of(id, "cached"));
        }
        for e in usable.iter() {
            lowest.offer(cx, e.id, f64::from(e.in_flight), 0.0);
        }
        lowest.take().map(|id| Pick::of(id, if is_cached { "imbalanced" } else { "miss" }))
    }

    fn reconfigure(&mut self, cfg: &PoolConfig) -> bool {
        *self = Self::new(&cfg.policy);
        true
    }
}
