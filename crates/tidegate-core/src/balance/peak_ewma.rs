//! `peak_ewma`: of two endpoints drawn at random, the one with the lower peak-sensitive response time times (in flight + 1).
//!
//! Finagle and Linkerd: an average that jumps to a worse sample at once and comes down with time. Two *distinct* draws (Envoy's
//! issue 11004 was the same host drawn twice), so with two endpoints the better one is always found. Failures are penalty samples. Unlike
//! there, the average fades only while the endpoint is idle: one that hangs with requests in it must not come to look fast. O(1).

use super::tie::PerEndpoint;
use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::endpoint::Endpoints;
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::request::Request;
use crate::stats::PeakEwma;
use crate::time::Instant;
use alloc::vec::Vec;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "peak_ewma",
    summary: "better of two random endpoints by peak-sensitive response time times (in flight + 1)",
    source: "Finagle PeakEwma; Linkerd defaults",
    example: "policy: { name: peak_ewma, decay: 10s }",
    warms_up: false,
    chases_load: false,
    params: &[
        Param {
            name: "decay",
            summary: "time constant with which old response times fade",
            unit: "s",
            kind: ParamKind::Duration { min: 0.01, max: 3600.0, can_be_off: false },
            default: Value::Duration(10.0),
            example: "10s",
        },
        Param {
            name: "default_rtt",
            summary: "response time assumed before the first answer",
            unit: "s",
            kind: ParamKind::Duration { min: 0.000_001, max: 600.0, can_be_off: false },
            default: Value::Duration(0.03),
            example: "30ms",
        },
    ],
};

/// The picker.
#[derive(Debug)]
pub struct PeakEwmaPicker {
    decay_s: f64,
    default_s: f64,
    cost: PerEndpoint<Option<PeakEwma>>,
}

impl PeakEwmaPicker {
    /// A picker with these parameters.
    pub fn new(params: &Params) -> Self {
        Self { decay_s: params.float("decay"), default_s: params.float("default_rtt"), cost: PerEndpoint::default() }
    }

    fn load(&self, now: Instant, id: EndpointId, endpoints: &Endpoints) -> f64 {
        let in_flight = endpoints.get(id).in_flight;
        let cost = self.cost.get(id).copied().flatten();
        let cost =
            cost.map_or(self.default_s, |c| if in_flight > 0 { c.last() } else { c.value_at(now, self.decay_s) });
        cost * f64::from(in_flight + 1)
    }
}

impl Picker for PeakEwmaPicker {
    fn pick(&mut self, cx: &mut Cx<'_>, _req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        let (a, b) = usable.two(cx.rng);
        let (load_a, load_b) = (self.load(cx.now, a, usable.endpoints), self.load(cx.now, b, usable.endpoints));
        cx.note(a, load_a);
        cx.note(b, load_b);
        // The draw is in random order, so a tie is broken by it.
        Some(Pick::of(if load_b < load_a { b } else { a }, ""))
    }

    fn learned(&self, id: Option<EndpointId>) -> Vec<f64> {
        let cost = id.and_then(|id| self.cost.get(id).copied().flatten());
        cost.map(|c| c.parts().to_vec()).unwrap_or_default()
    }

    fn relearn(&mut self, id: Option<EndpointId>, numbers: &[f64]) {
        if let (Some(id), &[value, updated]) = (id, numbers) {
            *self.cost.at(id) = Some(PeakEwma::new(Instant::from_secs_f64(updated), value));
        }
    }

    fn on_event(&mut self, now: Instant, id: EndpointId, event: &EndpointEvent<'_>, _endpoints: &Endpoints) {
        match event {
            EndpointEvent::Added { .. } | EndpointEvent::Removed => *self.cost.at(id) = None,
            EndpointEvent::Ended(_, outcome, took_s) => {
                if let Some(sample) = outcome.response_time_s(*took_s) {
                    let (decay, default) = (self.decay_s, self.default_s);
                    self.cost.at(id).get_or_insert_with(|| PeakEwma::new(now, default)).on_sample(now, sample, decay);
                }
            }
            _ => {}
        }
    }
}
