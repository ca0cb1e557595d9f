//! `adaptive`: the request goes where it costs itself and everybody else the least time.
//!
//! ```text
//! cost_i = s_i (W_i + u)                              own wait and own prefill                            [s]
//!        + externality s_i u (1 + b_i / b_mean) / 2   the same prefill as others feel it                  [s]
//!        + first_words (tau_i + max(0, tau_i - tau0_i))  own first words, and what one more stream adds   [s]
//! ```
//!
//! `u` is the work the request brings in prompt tokens (1 if opaque), `W_i` the work ahead of it, `s_i` learned seconds per unit of work
//! ([`speed`]), `tau_i` learned seconds between tokens ([`pace`]), `b_i` streams running. Costs within `tie` of the lowest are equal:
//! fewest in flight, then chance. All endpoints are priced, as own credit (the work sent and not yet begun) prevents the herd; over 64,
//! 32 drawn at random. A new or returned endpoint gets one request at a time until its first answer: a dead engine looks idle.
//!
//! Where the pool reports loads in 0..1 and they explain response times better than the learned speeds do ([`fit`]), the price is the
//! learned response time at the forecast load instead ([`by_load`]).
//! Source: notes, adaptive, sections 1 to 5. The engines' own queue reports join W_i with the AI signals. O(min(n, 64)).

mod by_load;
mod fit;
mod pace;
mod speed;

use super::tie::{Lowest, PerEndpoint};
use super::{Cx, Pick, Picker, Usable, fastest_recovery};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::endpoint::{Endpoint, Endpoints};
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::pool::config::PoolConfig;
use crate::pool::{Dispatch, Prediction};
use crate::request::Request;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use by_load::ByLoad;
use fit::Fit;
use pace::Pace;
use speed::{PoolSpeed, Speed};

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "adaptive",
    summary: "lowest learned cost in seconds, to the request and to everybody else; the default",
    source: "notes: adaptive; algorithms, section 3.2",
    example: "policy: { name: adaptive, memory: 120s }",
    warms_up: true,
    chases_load: true,
    params: &[
        Param {
            name: "first_words",
            summary: "output tokens whose pace counts in the price",
            unit: "tokens",
            kind: ParamKind::Float { min: 0.0, max: 16.0 },
            default: Value::Float(4.0),
            example: "4",
        },
        Param {
            name: "externality",
            summary: "weight of the delay that a request's work adds to others",
            unit: "ratio",
            kind: ParamKind::Float { min: 0.0, max: 2.0 },
            default: Value::Float(1.0),
            example: "1",
        },
        Param {
            name: "tie",
            summary: "costs within this fraction of the lowest are equal",
            unit: "fraction",
            kind: ParamKind::Float { min: 0.0, max: 0.3 },
            default: Value::Float(0.05),
            example: "0.05",
        },
        Param {
            name: "memory",
            summary: "time constant with which learned speeds fade",
            unit: "s",
            kind: ParamKind::Duration { min: 10.0, max: 600.0, can_be_off: false },
            default: Value::Duration(120.0),
            example: "120s",
        },
        fastest_recovery::SLOPE_WEIGHT,
        fastest_recovery::HORIZON,
        fastest_recovery::FADE,
        fastest_recovery::TEMPERATURE,
    ],
};

/// Endpoints up to which all are priced.
const PRICE_ALL: usize = 64;
/// Endpoints drawn at random beyond that.
const DRAWN: usize = 32;

#[derive(Debug, Default)]
struct Known {
    /// No answer has begun since it joined or returned.
    unproven: bool,
    /// Work sent whose first byte has not come, in prompt tokens.
    queued: f64,
    /// When those were sent, with what prediction and what work, oldest first.
    pending: VecDeque<(Instant, f64, f64)>,
    speed: Speed,
    pace: Pace,
}

impl Known {
    /// Work ahead of a request, of all replicas, in prompt tokens.
    fn ahead(&self, replicas: f64) -> f64 {
        replicas * self.queued
    }
}

#[derive(Clone, Copy, Debug)]
struct Priced {
    id: EndpointId,
    in_flight: u32,
    cost: f64,
}

/// The picker.
#[derive(Debug)]
pub struct Adaptive {
    first_words: f64,
    externality: f64,
    tie: f64,
    memory_s: f64,
    replicas: f64,
    pool: PoolSpeed,
    known: PerEndpoint<Known>,
    by_load: Option<ByLoad>,
    /// How well the learned speeds explain times to first byte.
    by_work: Fit,
    drawn: Vec<EndpointId>,
    priced: Vec<Priced>,
}

impl Adaptive {
    /// A picker for a pool of this configuration.
    pub fn new(params: &Params, cfg: &PoolConfig) -> Self {
        let limit = cfg.load.and(cfg.max_load);
        Self {
            first_words: params.float("first_words"),
            externality: params.float("externality"),
            tie: params.float("tie"),
            memory_s: params.float("memory"),
            replicas: cfg.replicas.max(1.0),
            pool: PoolSpeed::default(),
            known: PerEndpoint::default(),
            by_load: limit.map(|l| ByLoad::new(params, l)),
            by_work: Fit::default(),
            drawn: Vec::new(),
            priced: Vec::new(),
        }
    }

    /// Fills `drawn` with the endpoints to price.
    fn draw(&mut self, cx: &mut Cx<'_>, usable: &Usable<'_>) {
        self.drawn.clear();
        if usable.len() <= PRICE_ALL {
            self.drawn.extend_from_slice(usable.ids());
        } else {
            self.drawn.extend((0..DRAWN).map(|_| usable.random(cx.rng)));
        }
        // One request at a time until the first answer, unless that leaves nobody.
        let known = &mut self.known;
        let mut free = |id: EndpointId| {
            let pending = usable.endpoints.get(id).pending;
            !(known.at(id).unproven && pending > 0)
        };
        if self.drawn.iter().any(|&id| free(id)) {
            self.drawn.retain(|&id| free(id));
        }
    }

    /// Prices the drawn endpoints into `priced`.
    fn price(&mut self, now: Instant, u: f64, endpoints: &Endpoints) {
        let mean_streams =
            self.drawn.iter().map(|&id| self.streams(endpoints.get(id))).sum::<f64>() / self.drawn.len() as f64;
        let base = self.pool.pace_base();
        self.priced.clear();
        for &id in &self.drawn {
            let e = endpoints.get(id);
            let streams = self.streams(e);
            let known = self.known.at(id);
            let ahead = known.ahead(self.replicas) + u;
            let relative = known.pace.unloaded().zip(base).map_or(1.0, |(own, pool)| (own / pool).clamp(0.25, 4.0));
            let mut s = known.speed.seconds_per_unit_at(now, self.memory_s, &self.pool, relative);
            if let Some(&(sent, predicted, _)) = known.pending.front() {
                s = speed::censored(s, now.secs_since(sent), predicted);
            }
            let crowd = (1.0 + streams / (1.0 + mean_streams)) / 2.0;
            let pace = known.pace.at(now, self.memory_s, f64::from(e.in_flight) * self.replicas);
            let pace = pace.or(self.pool.pace());
            let words = pace.map_or(0.0, |(tau, tau0)| tau + (tau - tau0).max(0.0));
            let cost = s * ahead + self.externality * s * u * crowd + self.first_words * words;
            self.priced.push(Priced { id, in_flight: e.in_flight, cost });
        }
    }

    /// Streams running at an endpoint: what is there less what has not begun.
    fn streams(&self, e: &Endpoint) -> f64 {
        self.replicas * f64::from(e.in_flight - e.pending)
    }

    fn forget_pending(&mut self, id: EndpointId, d: &Dispatch) {
        let known = self.known.at(id);
        if let Some(place) = known.pending.iter().position(|&p| p == waiting(d)) {
            known.pending.remove(place);
            // Sums of differences drift; an empty queue is exactly empty.
            known.queued = if known.pending.is_empty() { 0.0 } else { (known.queued - d.work).max(0.0) };
        }
    }
}

/// The entry of a dispatch among the pending: when, predicted work, own work.
fn waiting(d: &Dispatch) -> (Instant, f64, f64) {
    (d.at, d.predicted.work().unwrap_or(0.0), d.work)
}

impl Picker for Adaptive {
    fn pick(&mut self, cx: &mut Cx<'_>, req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        self.draw(cx, usable);
        let mut reason = "price";
        if let Some(by_load) = self.by_load.as_mut().filter(|b| b.explains_more_than(&self.by_work)) {
            // An engine that hangs reports what it likes: who owes an answer far longer than answers take is left out.
            let patience_s = by_load.patience_s();
            let known = &self.known;
            let overdue = |id: EndpointId| {
                let oldest = known.get(id).and_then(|k| k.pending.front());
                oldest.is_some_and(|&(sent, _, _)| cx.now.secs_since(sent) > patience_s)
            };
            if self.drawn.iter().any(|&id| !overdue(id)) {
                self.drawn.retain(|&id| !overdue(id));
            }
            match by_load.pick(cx, &self.drawn, usable) {
                Some(pick) => return Some(pick),
                None => reason = "degraded",
            }
        }
        let u = req.work();
        self.price(cx.now, u, usable.endpoints);
        let lowest = self.priced.iter().map(|p| p.cost).fold(f64::INFINITY, f64::min);
        let mut best = Lowest::new();
        for p in &self.priced {
            if p.cost <= lowest * (1.0 + self.tie) {
                best.offer(cx, p.id, f64::from(p.in_flight), 0.0);
            }
        }
        if let Some(ex) = cx.explain.as_deref_mut() {
            ex.candidates.clear();
            ex.candidates.extend(self.priced.iter().map(|p| (p.id, p.cost)));
        }
        let id = best.take()?;
        Some(Pick::of(id, reason))
    }

    fn predict(&self, now: Instant, id: EndpointId, req: &Request<'_>, endpoints: &Endpoints) -> Prediction {
        let work = self.known.get(id).map_or(0.0, |k| k.ahead(self.replicas)) + req.work();
        let load = endpoints.load_at(id, now).filter(|_| self.by_load.is_some());
        load.map_or(Prediction::Work(work), |load| Prediction::WorkAndLoad(work, load))
    }

    fn reconfigure(&mut self, cfg: &PoolConfig) -> bool {
        let fresh = Self::new(&cfg.policy, cfg);
        (self.first_words, self.externality, self.tie) = (fresh.first_words, fresh.externality, fresh.tie);
        (self.memory_s, self.replicas) = (fresh.memory_s, fresh.replicas);
        match (&mut self.by_load, fresh.by_load) {
            (Some(known), Some(fresh)) => known.reconfigure(&fresh),
            (known, fresh) => *known = fresh,
        }
        true
    }

    fn learned(&self, id: Option<EndpointId>) -> Vec<f64> {
        match id {
            None => self.pool.parts().to_vec(),
            Some(id) => self
                .known
                .get(id)
                .map(|k| k.speed.parts().into_iter().chain(k.pace.parts()).collect())
                .unwrap_or_default(),
        }
    }

    fn relearn(&mut self, id: Option<EndpointId>, numbers: &[f64]) {
        match (id, numbers) {
            (None, &[xx, xy, tau, tau0]) => self.pool = PoolSpeed::of([xx, xy, tau, tau0]),
            (Some(id), &[xx, xy, at, tau, tau0, n, paced_at]) => {
                let known = self.known.at(id);
                (known.speed, known.pace) = (Speed::of([xx, xy, at]), Pace::of([tau, tau0, n, paced_at]));
                known.unproven = false;
            }
            _ => {}
        }
    }

    fn on_event(&mut self, now: Instant, id: EndpointId, event: &EndpointEvent<'_>, endpoints: &Endpoints) {
        if let Some(by_load) = &mut self.by_load {
            by_load.on_event(id, event, endpoints);
        }
        match event {
            EndpointEvent::Added { .. } => *self.known.at(id) = Known { unproven: true, ..Known::default() },
            EndpointEvent::Removed => *self.known.at(id) = Known::default(),
            EndpointEvent::Returned => self.known.at(id).unproven = true,
            EndpointEvent::Dispatched(d) => {
                let known = self.known.at(id);
                known.queued += d.work;
                known.pending.push_back(waiting(d));
            }
            EndpointEvent::FirstByte(d, ttft_s) => {
                self.forget_pending(id, d);
                self.known.at(id).unproven = false;
                if let Some(x) = d.predicted.work() {
                    let speed = &mut self.known.at(id).speed;
                    let expected_s = speed.seconds_per_unit_at(now, self.memory_s, &self.pool, 1.0) * x;
                    self.by_work.on_answer(*ttft_s, expected_s);
                    self.pool.on_answer(x, *ttft_s);
                    speed.on_answer(now, self.memory_s, x, *ttft_s);
                }
            }
            EndpointEvent::Ended(d, _, _) if d.first_byte_at.is_none() => {
                self.forget_pending(id, d);
            }
            EndpointEvent::Progress { tokens, stream_s, elapsed } => {
                let n = f64::from(endpoints.get(id).in_flight) * self.replicas;
                let pace = &mut self.known.at(id).pace;
                if pace.on_progress(now, *tokens, *stream_s, elapsed.as_secs_f64(), n) {
                    let (tau, tau0) = pace.last();
                    self.pool.on_pace(tau, tau0);
                }
            }
            _ => {}
        }
    }
}
