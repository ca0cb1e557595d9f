//! `weighted_round_robin`: in turn, in proportion to weight, spread out evenly.
//!
//! Smooth WRR (nginx): each pick, `current += weight` for all; the largest is taken; from it the total is subtracted. Weights 5:1:1
//! give `a a b a c a a`, not `a a a a a b c`. Chosen over an EDF heap because weights that change between picks (`auto`) need no
//! rebuilding; O(n).
//!
//! `weights: auto` multiplies the static weight by the headroom the endpoint reports (1 - its scarcest of CPU, GPU, memory, else 1 -
//! load), smoothed, and never less than 5 %, so that a busy endpoint still shows whether it recovers (Envoy's load-aware locality
//! weights keep a 3 % floor for the same reason). An endpoint whose report is not usable keeps its static weight.

use super::tie::PerEndpoint;
use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::endpoint::{Endpoint, Endpoints};
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::request::Request;
use crate::time::Instant;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "weighted_round_robin",
    summary: "in turn, in proportion to weight, spread out evenly",
    source: "nginx, smooth weighted round robin",
    example: "policy: { name: weighted_round_robin, weights: auto }",
    warms_up: false,
    chases_load: false,
    params: &[
        Param {
            name: "weights",
            summary: "static: as configured; auto: times the headroom each endpoint reports for CPU, GPU and memory",
            unit: "",
            kind: ParamKind::Choice(&["static", "auto"]),
            default: Value::Choice("static"),
            example: "auto",
        },
        Param {
            name: "floor",
            summary: "smallest factor that auto gives",
            unit: "fraction",
            kind: ParamKind::Float { min: 0.001, max: 1.0 },
            default: Value::Float(0.05),
            example: "0.05",
        },
        Param {
            name: "smoothing",
            summary: "weight of the newest headroom in its average",
            unit: "fraction",
            kind: ParamKind::Float { min: 0.01, max: 1.0 },
            default: Value::Float(0.3),
            example: "0.3",
        },
    ],
};

/// The picker.
#[derive(Debug)]
pub struct WeightedRoundRobin {
    auto: bool,
    floor: f64,
    smoothing: f64,
    state: PerEndpoint<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    current: f64,
    headroom: Option<f64>,
}

impl WeightedRoundRobin {
    /// A picker with these parameters.
    pub fn new(params: &Params) -> Self {
        Self {
            auto: params.choice("weights") == "auto",
            floor: params.float("floor"),
            smoothing: params.float("smoothing"),
            state: PerEndpoint::default(),
        }
    }

    fn weight(&mut self, now: Instant, endpoint: &Endpoint, endpoints: &Endpoints) -> f64 {
        if !self.auto
            || endpoints.loads[endpoint.id.index()]
                .degraded_at(now)
                .is_some_and(|d| d != crate::load::Degraded::Missing)
        {
            return endpoint.weight;
        }
        let headroom = self.state.at(endpoint.id).headroom.unwrap_or(1.0);
        endpoint.weight * headroom.max(self.floor)
    }
}

impl Picker for WeightedRoundRobin {
    fn pick(&mut self, cx: &mut Cx<'_>, _req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        let mut total = 0.0;
        let mut best = super::tie::Lowest::new();
        for endpoint in usable.iter() {
            let weight = self.weight(cx.now, endpoint, usable.endpoints);
            let turn = self.state.at(endpoint.id);
            turn.current += weight;
            total += weight;
            best.offer(cx, endpoint.id, -turn.current, 0.0);
        }
        let id = best.take()?;
        self.state.at(id).current -= total;
        Some(Pick::of(id, if self.auto { "auto" } else { "" }))
    }

    fn on_event(&mut self, _now: Instant, id: EndpointId, event: &EndpointEvent<'_>, _endpoints: &Endpoints) {
        match event {
            EndpointEvent::Added { .. } | EndpointEvent::Removed => *self.state.at(id) = Turn::default(),
            EndpointEvent::Returned => self.state.at(id).current = 0.0,
            EndpointEvent::Reported(report) => {
                if let Some(now_free) = report.headroom() {
                    let smoothing = self.smoothing;
                    let turn = self.state.at(id);
                    let then = turn.headroom.unwrap_or(now_free);
                    turn.headroom = Some(then + smoothing * (now_free - then));
                }
            }
            _ => {}
        }
    }
}
