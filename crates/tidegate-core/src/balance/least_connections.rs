//! `least_connections`: fewest requests in flight per weight.
//!
//! Ties go to the endpoint with the lowest weighted request rate over the last second, then to chance: at low load everybody has zero
//! in flight, and the rate keeps the choice from being the same endpoint every time. A new or returned endpoint starts with a phantom
//! count, so that "zero in flight" does not draw the whole stream to it. It fades by one per answer, by one per turn it was passed over
//! (as many decisions as there are endpoints) and by one per second: in a quiet pool, where nobody has five in flight, it would never be
//! used, and one gateway of many may see a request in a minute. O(n).

use super::tie::{Lowest, PerEndpoint};
use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::endpoint::Endpoints;
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::outcome::Verdict;
use crate::request::Request;
use crate::time::Instant;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "least_connections",
    summary: "fewest requests in flight per weight; ties by request rate, then by chance",
    source: "join the shortest queue; HAProxy leastconn",
    example: "policy: { name: least_connections, initial_connections: 5 }",
    warms_up: false,
    chases_load: true,
    params: &[Param {
        name: "initial_connections",
        summary: "phantom requests a new or returned endpoint starts with; one fades per answer or turn passed over",
        unit: "requests",
        kind: ParamKind::Integer { min: 0, max: 10_000 },
        default: Value::Integer(5),
        example: "5",
    }],
};

/// The picker.
#[derive(Debug)]
pub struct LeastConnections {
    initial: f64,
    phantom: PerEndpoint<f64>,
    /// When phantoms last faded.
    faded: Instant,
}

impl LeastConnections {
    /// A picker with these parameters.
    pub fn new(params: &Params) -> Self {
        Self {
            initial: params.integer("initial_connections") as f64,
            phantom: PerEndpoint::default(),
            faded: Instant::ORIGIN,
        }
    }
}

impl Picker for LeastConnections {
    fn pick(&mut self, cx: &mut Cx<'_>, _req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        let mut lowest = Lowest::new();
        let turn = 1.0 / usable.len() as f64 + cx.now.secs_since(self.faded);
        self.faded = cx.now;
        for e in usable.iter() {
            let phantom = self.phantom.at(e.id);
            let load = (f64::from(e.in_flight) + *phantom) / e.weight;
            *phantom = (*phantom - turn).max(0.0);
            lowest.offer(cx, e.id, load, e.weighted_rate_rank());
        }
        lowest.take().map(|id| Pick::of(id, ""))
    }

    fn on_event(&mut self, _now: Instant, id: EndpointId, event: &EndpointEvent<'_>, _endpoints: &Endpoints) {
        let phantom = self.phantom.at(id);
        match event {
            EndpointEvent::Added { cold: true } | EndpointEvent::Returned => *phantom = self.initial,
            EndpointEvent::Added { cold: false } | EndpointEvent::Removed => *phantom = 0.0,
            EndpointEvent::Ended(_, outcome, _) if outcome.verdict == Verdict::Success => {
                *phantom = (*phantom - 1.0).max(0.0);
            }
            _ => {}
        }
    }
}
