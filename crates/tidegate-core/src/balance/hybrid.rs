//! `hybrid`: fast while it is calm, steady when it is not.
//!
//! All reported loads under `calm_below`: least response time. Any load over `alarm_above`: fastest recovery. In between the last mode
//! stays, so that the rule does not flap at one threshold. An endpoint whose answer took longer than `unavailable_above` is left out
//! until one trial request per `retry_after` answers faster; at most half of the pool is ever left out. O(n).

use super::fastest_recovery::FastestRecovery;
use super::least_response_time::LeastResponseTime;
use super::tie::PerEndpoint;
use super::{Cx, Pick, Picker, Usable, fastest_recovery, least_response_time};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::endpoint::Endpoints;
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::outcome::Verdict;
use crate::pool::config::PoolConfig;
use crate::request::Request;
use crate::time::Instant;
use alloc::vec::Vec;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "hybrid",
    summary: "least response time while all loads are calm, fastest recovery while any is alarming",
    source: "SPEC section 1",
    example: "policy: { name: hybrid, calm_below: 0.7, alarm_above: 0.9 }",
    warms_up: false,
    chases_load: true,
    params: &[
        Param {
            name: "calm_below",
            summary: "all loads under this: least response time",
            unit: "load",
            kind: ParamKind::Float { min: 0.0, max: 1.0 },
            default: Value::Float(0.7),
            example: "0.7",
        },
        Param {
            name: "alarm_above",
            summary: "any load over this: fastest recovery",
            unit: "load",
            kind: ParamKind::Float { min: 0.0, max: 1.0 },
            default: Value::Float(0.9),
            example: "0.9",
        },
        Param {
            name: "unavailable_above",
            summary: "an answer slower than this takes its endpoint out until a trial is faster (to the first byte of streams)",
            unit: "s",
            kind: ParamKind::Duration { min: 0.001, max: 3600.0, can_be_off: true },
            default: Value::Duration(2.0),
            example: "2s",
        },
        Param {
            name: "retry_after",
            summary: "time between trial requests to an endpoint that is out",
            unit: "s",
            kind: ParamKind::Duration { min: 0.01, max: 600.0, can_be_off: false },
            default: Value::Duration(5.0),
            example: "5s",
        },
    ],
};

/// The picker.
#[derive(Debug)]
pub struct Hybrid {
    calm_below: f64,
    alarm_above: f64,
    unavailable_above_s: Option<f64>,
    retry_after_s: f64,
    alarmed: bool,
    fast: LeastResponseTime,
    steady: FastestRecovery,
    /// Since when an endpoint is out, or when its last trial went out.
    out: PerEndpoint<Option<Instant>>,
    kept: Vec<EndpointId>,
}

impl Hybrid {
    /// A picker for a pool of this configuration.
    pub fn new(params: &Params, cfg: &PoolConfig) -> Self {
        Self {
            calm_below: params.float("calm_below"),
            alarm_above: params.float("alarm_above"),
            unavailable_above_s: params.seconds("unavailable_above"),
            retry_after_s: params.float("retry_after"),
            alarmed: false,
            fast: LeastResponseTime::new(&Params::defaults(&least_response_time::DESCRIPTOR)),
            steady: FastestRecovery::new(&Params::defaults(&fastest_recovery::DESCRIPTOR), cfg.max_load.unwrap_or(1.0)),
            out: PerEndpoint::default(),
            kept: Vec::new(),
        }
    }

    /// Looks at every endpoint, also those the gate keeps out: an overloaded one is what the alarm is about.
    fn watch(&mut self, now: Instant, endpoints: &Endpoints) {
        let loads = endpoints.present().filter_map(|e| endpoints.load_at(e.id, now));
        let (mut highest, mut any) = (0.0f64, false);
        loads.for_each(|l| (highest, any) = (highest.max(l), true));
        if any && highest > self.alarm_above {
            self.alarmed = true;
        } else if !any || highest < self.calm_below {
            self.alarmed = false;
        }
    }

    fn on_time(&mut self, now: Instant, id: EndpointId, seconds: f64) {
        if let Some(limit) = self.unavailable_above_s {
            *self.out.at(id) = if seconds > limit { Some(now) } else { None };
        }
    }

    /// Fills `kept`, leaving out slow endpoints whose trial is not due; false if too many would go.
    fn leave_out(&mut self, now: Instant, usable: &Usable<'_>) -> bool {
        let waits = |id: EndpointId| {
            self.out.get(id).copied().flatten().is_some_and(|t| now.secs_since(t) < self.retry_after_s)
        };
        self.kept.clear();
        self.kept.extend(usable.ids().iter().copied().filter(|&id| !waits(id)));
        self.kept.len() < usable.len() && self.kept.len() >= usable.len().div_ceil(2)
    }
}

impl Picker for Hybrid {
    fn pick(&mut self, cx: &mut Cx<'_>, req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        self.watch(cx.now, usable.endpoints);
        let narrowed = self.leave_out(cx.now, usable);
        let kept = core::mem::take(&mut self.kept);
        let from = if narrowed { &usable.only(&kept) } else { usable };
        let due = kept.iter().copied().find(|&id| self.out.get(id).copied().flatten().is_some());
        let pick = match due {
            Some(id) => {
                *self.out.at(id) = Some(cx.now);
                Some(Pick::of(id, "trial"))
            }
            None if self.alarmed => self.steady.pick(cx, req, from).map(|p| Pick { reason: "fastest_recovery", ..p }),
            None => self.fast.pick(cx, req, from).map(|p| Pick { reason: "least_response_time", ..p }),
        };
        self.kept = kept;
        pick
    }

    fn on_event(&mut self, now: Instant, id: EndpointId, event: &EndpointEvent<'_>, endpoints: &Endpoints) {
        self.fast.on_event(now, id, event, endpoints);
        self.steady.on_event(now, id, event, endpoints);
        match event {
            EndpointEvent::Added { .. } | EndpointEvent::Removed | EndpointEvent::Returned => *self.out.at(id) = None,
            // To the first byte for streams; an answer in one piece has its first byte when it is whole.
            EndpointEvent::FirstByte(_, ttft_s) => self.on_time(now, id, *ttft_s),
            EndpointEvent::Ended(dispatch, outcome, took_s) if dispatch.first_byte_at.is_none() => {
                if matches!(outcome.verdict, Verdict::Failed(_)) {
                    self.on_time(now, id, outcome.response_time_s(*took_s).unwrap_or(0.0));
                }
            }
            _ => {}
        }
    }
}
