//! `consistent_hash`: the same key goes to the same endpoint, and a membership change moves as few keys as it can.
//!
//! `algorithm: ring` (default): `virtual_nodes` points per endpoint and unit of weight on a 64-bit ring; removing one of n endpoints
//! moves its own keys and no others. `algorithm: maglev`: one table look-up and nearly perfect balance, but a change also moves a few
//! keys that need not have moved. With `bounded_load: c`, an endpoint holding more than `c` times its fair part of the requests in
//! flight passes the key on to the next (Mirrokni, Thorup, Zadimoghaddam 2018), so a hot key cannot drown its home.
//!
//! A request without a key is placed by power of two choices, for the reason `no_key`, by which it is counted: hashing an absent key would send them all to one endpoint
//! (Envoy's issue 1798). Points come from a fixed hash of the endpoint's name, so every replica and every restart agrees.
//! O(log(n v)) for the ring, O(1) for maglev; rebuilt at the first pick after a change.

mod maglev;
mod ring;

use super::tie::Lowest;
use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::endpoint::{Endpoint, Endpoints, Gate};
use crate::event::EndpointEvent;
use crate::hash::mix;
use crate::id::EndpointId;
use crate::request::Request;
use crate::time::Instant;
use maglev::Maglev;
use ring::Ring;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "consistent_hash",
    summary: "the same key goes to the same endpoint; membership changes move few keys",
    source: "Karger 1997; Eisenbud 2016 (Maglev); Mirrokni 2018 (bounded loads)",
    example: "policy: { name: consistent_hash, key: { header: x-session-id }, bounded_load: 1.25 }",
    warms_up: false,
    chases_load: false,
    params: &[
        Param {
            name: "key",
            summary: "where the key is found in a request; the tenant is the holder of the API key, prompt is blind to case and spacing",
            unit: "",
            kind: ParamKind::Key,
            default: Value::Off,
            example: "{ header: x-session-id }",
        },
        Param {
            name: "algorithm",
            summary: "ring: fewest keys move; maglev: best balance",
            unit: "",
            kind: ParamKind::Choice(&["ring", "maglev"]),
            default: Value::Choice("ring"),
            example: "ring",
        },
        Param {
            name: "virtual_nodes",
            summary: "points on the ring per endpoint of weight 1",
            unit: "points",
            kind: ParamKind::Integer { min: 1, max: 10_000 },
            default: Value::Integer(150),
            example: "150",
        },
        Param {
            name: "bounded_load",
            summary: "most requests in flight at an endpoint, as a multiple of its fair part; 0 switches the bound off",
            unit: "ratio",
            kind: ParamKind::Float { min: 0.0, max: 100.0 },
            default: Value::Float(0.0),
            example: "1.25",
        },
    ],
};

#[derive(Debug)]
enum Table {
    Ring(Ring),
    Maglev(Maglev),
}

/// The picker.
#[derive(Debug)]
pub struct ConsistentHash {
    table: Table,
    bounded_load: Option<f64>,
    changed: bool,
}

impl ConsistentHash {
    /// A picker with these parameters.
    pub fn new(params: &Params) -> Self {
        let table = match params.choice("algorithm") {
            "maglev" => Table::Maglev(Maglev::default()),
            _ => Table::Ring(Ring::new(params.integer("virtual_nodes") as u32)),
        };
        // A bound under 1 could not be met by anybody.
        let bounded_load = Some(params.float("bounded_load")).filter(|&c| c > 0.0).map(|c| c.max(1.0));
        Self { table, bounded_load, changed: true }
    }

    /// Whether `e` may take one more request under the bound: `ceil(c * (total + 1) * weight / total weight)`.
    fn within_bound(&self, e: &Endpoint, usable: &Usable<'_>) -> bool {
        self.bounded_load.is_none_or(|c| {
            let fair = f64::from(usable.total_in_flight + 1) * e.weight / usable.total_weight.max(f64::MIN_POSITIVE);
            f64::from(e.in_flight) < libm::ceil(c * fair)
        })
    }

    fn place(&self, key: u64, usable: &Usable<'_>) -> Option<(EndpointId, bool)> {
        let accepts = |id: EndpointId| usable.contains(id) && self.within_bound(usable.endpoints.get(id), usable);
        match &self.table {
            Table::Ring(ring) => ring.find(key, accepts),
            Table::Maglev(maglev) => maglev.find(key, accepts),
        }
    }
}

fn load(e: &Endpoint) -> f64 {
    f64::from(e.in_flight) / e.weight
}

impl Picker for ConsistentHash {
    fn pick(&mut self, cx: &mut Cx<'_>, req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        if core::mem::take(&mut self.changed) {
            let members = usable.endpoints.hot.iter().filter(|e| !matches!(e.gate, Gate::Vacant) && e.weight > 0.0);
            match &mut self.table {
                Table::Ring(ring) => ring.build(members),
                Table::Maglev(maglev) => maglev.build(members),
            }
        }
        let Some(key) = req.hash_key else {
            let (a, b) = usable.two(cx.rng);
            let load = |id: EndpointId| load(usable.endpoints.get(id));
            return Some(Pick::of(if load(b) < load(a) { b } else { a }, "no_key"));
        };
        match self.place(mix(key), usable) {
            Some((id, true)) => Some(Pick::of(id, "home")),
            Some((id, false)) => Some(Pick::of(id, "next")),
            // Nobody is under the bound: those who are, were attempted already or are held back.
            None => {
                let mut lowest = Lowest::new();
                usable.iter().for_each(|e| lowest.offer(cx, e.id, load(e), 0.0));
                lowest.take().map(|id| Pick::of(id, "no_room"))
            }
        }
    }

    fn on_event(&mut self, _now: Instant, _id: EndpointId, event: &EndpointEvent<'_>, _endpoints: &Endpoints) {
        if matches!(event, EndpointEvent::Added { .. } | EndpointEvent::Removed | EndpointEvent::Reweighted) {
            self.changed = true;
        }
    }
}
