//! `least_response_time`: the endpoint that answers fastest.
//!
//! `form: plain` is the textbook rule: the average (weight 0.5) of own completed response times, lowest wins. It cannot see a rejection
//! and never looks again at an endpoint that was once slow; it is kept as the published baseline.
//!
//! `form: ewma` (default) mends both: a failure is a penalty sample of at least 5 s, never a fast one; the average fades while the
//! endpoint is idle, so it is tried again; and with `credit` the average counts once per request already there, because the next
//! answer has to wait for those. With `signal: reported` a report that cannot be used counts for nothing, and when nobody's can, the rule is
//! fewest in flight and says `degraded`. O(n).

use super::tie::{Lowest, PerEndpoint};
use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::endpoint::{Endpoint, Endpoints};
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::outcome::Verdict;
use crate::request::Request;
use crate::stats::DecayEwma;
use crate::time::Instant;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "least_response_time",
    summary: "lowest average response time among endpoints under max_load",
    source: "notes: algorithms, sections 1.2 and 4",
    example: "policy: { name: least_response_time, signal: ttft }",
    warms_up: false,
    chases_load: true,
    params: &[
        Param {
            name: "form",
            summary: "plain: the textbook rule, blind to rejections; ewma: time-decayed, failures are penalties",
            unit: "",
            kind: ParamKind::Choice(&["plain", "ewma"]),
            default: Value::Choice("ewma"),
            example: "ewma",
        },
        Param {
            name: "signal",
            summary: "which time: to the first byte, of the whole answer, or as the endpoint's status page reports it",
            unit: "",
            kind: ParamKind::Choice(&["ttft", "total", "reported"]),
            default: Value::Choice("total"),
            example: "ttft",
        },
        Param {
            name: "decay",
            summary: "time constant of the ewma form",
            unit: "s",
            kind: ParamKind::Duration { min: 0.01, max: 3600.0, can_be_off: false },
            default: Value::Duration(10.0),
            example: "10s",
        },
        Param {
            name: "credit",
            summary: "count the average once per request in flight there (ewma form)",
            unit: "",
            kind: ParamKind::Bool,
            default: Value::Bool(true),
            example: "true",
        },
        Param {
            name: "weight",
            summary: "weight of the newest sample in the plain form",
            unit: "fraction",
            kind: ParamKind::Float { min: 0.01, max: 1.0 },
            default: Value::Float(0.5),
            example: "0.5",
        },
    ],
};

/// Smallest weight of a sample in the ewma form, so that a burst of answers in one instant still counts.
const FLOOR: f64 = 0.1;

/// The picker.
#[derive(Debug)]
pub struct LeastResponseTime {
    plain: bool,
    signal: &'static str,
    decay_s: f64,
    credit: bool,
    weight: f64,
    times: PerEndpoint<DecayEwma>,
}

impl LeastResponseTime {
    /// A picker with these parameters.
    pub fn new(params: &Params) -> Self {
        Self {
            plain: params.choice("form") == "plain",
            signal: params.choice("signal"),
            decay_s: params.float("decay"),
            credit: params.bool("credit"),
            weight: params.float("weight"),
            times: PerEndpoint::default(),
        }
    }

    fn on_sample(&mut self, now: Instant, id: EndpointId, seconds: f64) {
        let (decay, floor) = if self.plain { (f64::INFINITY, self.weight) } else { (self.decay_s, FLOOR) };
        self.times.at(id).on_sample(now, seconds, decay, floor);
    }

    /// The average of one endpoint in seconds, `None` before its first sample.
    fn time_at(&self, now: Instant, e: &Endpoint, endpoints: &Endpoints) -> Option<f64> {
        if self.signal == "reported" && endpoints.loads[e.id.index()].degraded_at(now).is_some() {
            return None;
        }
        let time = self.times.get(e.id)?;
        // With requests there the endpoint is being observed, however long they take; only an idle one fades.
        if self.plain || e.in_flight > 0 { time.last() } else { time.value_at(now, self.decay_s) }
    }
}

impl Picker for LeastResponseTime {
    fn pick(&mut self, cx: &mut Cx<'_>, _req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        let known = usable.iter().filter_map(|e| self.time_at(cx.now, e, usable.endpoints));
        let lowest_known = known.fold(f64::INFINITY, f64::min);
        let degraded = self.signal == "reported" && lowest_known == f64::INFINITY;
        let prior = if self.plain && !degraded { 0.0 } else { lowest_known.min(1e9) };
        let mut lowest = Lowest::new();
        for e in usable.iter() {
            let time = self.time_at(cx.now, e, usable.endpoints);
            let queue = degraded || !self.plain && (self.credit || time.is_none());
            let factor = if queue { f64::from(e.in_flight + 1) } else { 1.0 };
            lowest.offer(cx, e.id, time.unwrap_or(prior) * factor, 0.0);
        }
        lowest.take().map(|id| Pick::of(id, if degraded { "degraded" } else { self.signal }))
    }

    fn on_event(&mut self, now: Instant, id: EndpointId, event: &EndpointEvent<'_>, _endpoints: &Endpoints) {
        match event {
            EndpointEvent::Added { .. } | EndpointEvent::Removed => *self.times.at(id) = DecayEwma::default(),
            EndpointEvent::FirstByte(_, ttft_s) if self.signal == "ttft" => self.on_sample(now, id, *ttft_s),
            EndpointEvent::Reported(report) if self.signal == "reported" => {
                if let Some(s) = report.response_time_s {
                    self.on_sample(now, id, s);
                }
            }
            EndpointEvent::Ended(_, outcome, took_s) => {
                let success = outcome.verdict == Verdict::Success;
                let sample = outcome.response_time_s(*took_s).filter(|_| !self.plain || success);
                let wanted = if success { self.signal == "total" } else { true };
                if let Some(s) = sample.filter(|_| wanted) {
                    self.on_sample(now, id, s);
                }
            }
            _ => {}
        }
    }
}
