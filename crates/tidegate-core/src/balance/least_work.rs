//! `least_work`: fewest seconds of work ahead, and a barrier before the engine's memory is full.
//!
//! ```text
//! score_i = s_i (W_i + u_i) + barrier k_i / (1 - k_i)                                                          [s]
//! ```
//!
//! `W_i` is the work ahead in uncached prompt tokens: what the engine says is queued, what was sent since it said so, and what waits of our
//! own ([`Outstanding`]); `u_i` what the request brings itself, `s_i` the learned seconds per token ([`super::speed`]), `k_i` the
//! used share of KV memory, 0..1. With nothing reported it is the least outstanding work of one's own. Ties: fewest in flight, then chance. Over 64
//! endpoints, 32 drawn at random.
//! Source: notes, algorithms, 2.3 (`least_load`: work over throughput, and 0.15 s k/(1-k)). O(min(n, 64)).

use super::draw::draw;
use super::outstanding::Outstanding;
use super::speed::{PoolSpeed, Speed};
use super::tie::{Lowest, PerEndpoint};
use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::endpoint::Endpoints;
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::pool::Prediction;
use crate::pool::config::PoolConfig;
use crate::request::Request;
use crate::time::Instant;
use alloc::vec::Vec;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "least_work",
    summary: "fewest seconds of uncached prompt tokens ahead, and a barrier before KV memory is full",
    source: "notes: algorithms, section 2.3",
    example: "policy: { name: least_work, barrier: 150ms }",
    warms_up: false,
    chases_load: true,
    params: &[
        Param {
            name: "barrier",
            summary: "seconds that half-full KV memory counts as; grows without bound as it fills",
            unit: "s",
            kind: ParamKind::Duration { min: 0.0, max: 60.0, can_be_off: false },
            default: Value::Duration(0.15),
            example: "150ms",
        },
        Param {
            name: "memory",
            summary: "time constant with which learned speeds fade",
            unit: "s",
            kind: ParamKind::Duration { min: 10.0, max: 600.0, can_be_off: false },
            default: Value::Duration(120.0),
            example: "120s",
        },
    ],
};

/// The picker.
#[derive(Debug)]
pub struct LeastWork {
    barrier_s: f64,
    memory_s: f64,
    work: Outstanding,
    pool: PoolSpeed,
    speeds: PerEndpoint<Speed>,
    drawn: Vec<EndpointId>,
}

impl LeastWork {
    /// A picker for a pool of this configuration.
    pub fn new(params: &Params, cfg: &PoolConfig) -> Self {
        Self {
            barrier_s: params.float("barrier"),
            memory_s: params.float("memory"),
            work: Outstanding::new(cfg),
            pool: PoolSpeed::default(),
            speeds: PerEndpoint::default(),
            drawn: Vec::new(),
        }
    }

    /// Learned seconds per token at `id`, and tokens ahead there.
    fn queue(&self, now: Instant, id: EndpointId) -> (f64, f64) {
        let speed = self.speeds.get(id).copied().unwrap_or_default();
        let s = speed.seconds_per_unit_at(now, self.memory_s, &self.pool, 1.0);
        (s, self.work.ahead(id, now, s))
    }
}

impl Picker for LeastWork {
    fn pick(&mut self, cx: &mut Cx<'_>, req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        let mut lowest = Lowest::new();
        draw(cx, req, usable, &mut self.drawn);
        for &id in &self.drawn {
            let e = usable.endpoints.get(id);
            let (s, ahead) = self.queue(cx.now, e.id);
            let barrier_s = self.work.barrier_s(e.id, cx.now, e.in_flight, self.barrier_s);
            let score = req.start_s(id) + s * (ahead + req.cost_at(e.id)) + barrier_s;
            lowest.offer(cx, e.id, score, f64::from(e.in_flight));
        }
        lowest.take().map(|id| Pick::of(id, if req.matched_at(id) > 0.0 { "cached" } else { "" }))
    }

    fn predict(&self, now: Instant, id: EndpointId, req: &Request<'_>, _endpoints: &Endpoints) -> Prediction {
        Prediction::Work(self.queue(now, id).1 + req.work_at(id))
    }

    fn first_byte_s(&self, now: Instant, id: EndpointId, req: &Request<'_>, _endpoints: &Endpoints) -> Option<f64> {
        self.pool.is_known().then(|| {
            let (s, ahead) = self.queue(now, id);
            req.start_s(id) + s * (ahead + req.work_at(id))
        })
    }

    fn reconfigure(&mut self, cfg: &PoolConfig) -> bool {
        (self.barrier_s, self.memory_s) = (cfg.policy.float("barrier"), cfg.policy.float("memory"));
        self.work.reconfigure(cfg);
        true
    }

    fn on_event(&mut self, now: Instant, id: EndpointId, event: &EndpointEvent<'_>, endpoints: &Endpoints) {
        self.work.on_event(now, id, event, endpoints);
        match event {
            EndpointEvent::Added { .. } | EndpointEvent::Removed => *self.speeds.at(id) = Speed::default(),
            EndpointEvent::FirstByte(d, ttft_s) => {
                if let Some(x) = d.predicted.work() {
                    let in_queue_s = d.in_queue_s(*ttft_s);
                    self.pool.on_answer(x, in_queue_s);
                    self.speeds.at(id).on_answer(now, self.memory_s, x, in_queue_s);
                }
            }
            _ => {}
        }
    }
}
