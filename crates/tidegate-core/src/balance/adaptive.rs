//! `adaptive`: the request goes where it costs itself and everybody else the least time.
//!
//! ```text
//! cost_i = start_i + seat_i + s_i (W_i + u)           own wait and own prefill                            [s]
//!        + externality s_i u / 2                 the same prefill as those behind it feel it              [s]
//!        + first_words (tau_i + max(0, tau_i - tau0_i))  own first words, and what one more stream adds   [s]
//!        + barrier k_i / (1 - k_i)               KV memory that fills up                                  [s]
//! ```
//!
//! `u` is the work the request brings in prompt tokens (1 if opaque), `W_i` the work ahead of it, `s_i` learned seconds per unit of work
//! ([`speed`]), `start_i` the seconds until an adapter is loaded there ([`crate::placement`]), `seat_i` those until one of its places is free ([`seats`]), `tau_i` learned seconds between tokens ([`pace`]), `k_i` the used share of KV memory where engines tell it. Costs within `tie` of the lowest are equal:
//! fewest in flight, then chance. All endpoints are priced, as own credit (the work sent and not yet begun) prevents the herd; over 64,
//! 32 drawn at random. An endpoint that joins a pool in
//! use, or returns, gets one request at a time until its first answer: a dead engine looks idle.
//!
//! Where the pool reports loads in 0..1 and they explain response times better than the learned speeds do ([`fit`]), the price is the
//! learned response time at the forecast load instead ([`by_load`]); never where engines tell of KV memory, as a load says nothing of the prompts that wait.
//! Of tokens that many requests share at a time an endpoint that has them not is charged a part only ([`Request::cost_at`]).
//! Work ahead and requests present count all replicas and all clients as far as engines tell ([`Outstanding`]).
//! Source: notes, adaptive, sections 1 to 5; decision record 10 says where it differs. O(min(n, 64)), and the endpoints that are expected to hold the prompt's beginning.

mod by_load;
mod fit;
mod pace;

use super::draw::draw;
use super::outstanding::Outstanding;
use super::seats::Seats;
use super::speed::{self, PoolSpeed, Speed};
use super::tie::{Lowest, PerEndpoint};
use super::{Cx, Pick, Picker, Usable, fastest_recovery};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::endpoint::Endpoints;
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::pool::Prediction;
use crate::pool::config::PoolConfig;
use crate::request::Request;
use crate::time::Instant;
use alloc::vec::Vec;
use by_load::ByLoad;
use fit::Fit;
use pace::Pace;

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
            kind: ParamKind::Float { min: 0.0, max: 64.0 },
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
            name: "barrier",
            summary: "seconds that half-full KV memory counts as; grows without bound as it fills",
            unit: "s",
            kind: ParamKind::Duration { min: 0.0, max: 60.0, can_be_off: false },
            default: Value::Duration(0.02),
            example: "20ms",
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

#[derive(Debug, Default)]
struct Known {
    /// No answer has begun since it joined or returned.
    unproven: bool,
    speed: Speed,
    pace: Pace,
    seats: Seats,
}

#[derive(Clone, Copy, Debug)]
struct Priced {
    id: EndpointId,
    in_flight: u32,
    cost: f64,
    /// Seconds until the first token.
    ttft: f64,
    /// Seconds between two tokens.
    tpot: f64,
}

/// The picker.
#[derive(Debug)]
pub struct Adaptive {
    first_words: f64,
    externality: f64,
    tie: f64,
    barrier_s: f64,
    memory_s: f64,
    work: Outstanding,
    pool: PoolSpeed,
    known: PerEndpoint<Known>,
    /// Places in the batch of the endpoint where they were learned last.
    places: Option<f64>,
    by_load: Option<ByLoad>,
    /// Whether engines tell of KV memory: then what they have to do says more than any load.
    has_memory: bool,
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
            barrier_s: params.float("barrier"),
            memory_s: params.float("memory"),
            work: Outstanding::new(cfg),
            pool: PoolSpeed::default(),
            known: PerEndpoint::default(),
            places: None,
            by_load: limit.map(|l| ByLoad::new(params, l)),
            has_memory: false,
            by_work: Fit::default(),
            drawn: Vec::new(),
            priced: Vec::new(),
        }
    }

    /// Fills `drawn` with the endpoints to price.
    fn draw(&mut self, cx: &mut Cx<'_>, req: &Request<'_>, usable: &Usable<'_>) {
        draw(cx, req, usable, &mut self.drawn);
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

    /// Learned seconds per token of work ahead at `id`, and what is ahead there.
    fn queue(&self, now: Instant, id: EndpointId) -> (f64, f64) {
        let fresh = Known::default();
        let known = self.known.get(id).unwrap_or(&fresh);
        let base = self.pool.pace_base();
        let relative = known.pace.unloaded().zip(base).map_or(1.0, |(own, pool)| (own / pool).clamp(0.25, 4.0));
        let s = known.speed.seconds_per_unit_at(now, self.memory_s, &self.pool, relative);
        let ahead = self.work.ahead(id, now, s);
        let overdue = self.work.oldest(id).map(|(sent, x)| speed::censored(s, now.secs_since(sent), x));
        (overdue.unwrap_or(s), ahead)
    }

    /// Prices the drawn endpoints into `priced`.
    fn price(&mut self, now: Instant, req: &Request<'_>, endpoints: &Endpoints) {
        self.priced.clear();
        for &id in &self.drawn {
            let in_flight = endpoints.get(id).in_flight;
            let (s, ahead) = self.queue(now, id);
            let present = self.work.present(id, now, in_flight);
            let (u, cost_u) = (req.work_at(id), req.cost_at(id));
            let pace = self.known.at(id).pace.at(now, self.memory_s, present).or(self.pool.pace());
            let words = pace.map_or(0.0, |(tau, tau0)| tau + (tau - tau0).max(0.0));
            let seat = self.known.at(id).seats.wait_s(present, self.places);
            let ttft = req.start_s(id) + seat + s * (ahead + u);
            let tpot = pace.map_or(0.0, |(tau, _)| tau);
            let memory = self.work.barrier_s(id, now, in_flight, self.barrier_s);
            // Half of what its prefill adds is felt by those who queue behind.
            let others = self.externality * s * cost_u / 2.0;
            let cost = ttft - s * (u - cost_u) + others + self.first_words * words + memory;
            self.priced.push(Priced { id, in_flight, cost, ttft, tpot });
        }
    }
}

impl Adaptive {
    /// Leaves the endpoints out that would be late or too slow, where the request has such goals and others are not; with none in time, the
    /// earliest stay, and with none fast enough the fastest of those.
    fn keep_in_time(&mut self, req: &Request<'_>) {
        if !self.pool.is_known() {
            return;
        }
        for (goal, of) in [(req.ttft_goal, (|p| p.ttft) as fn(&Priced) -> f64), (req.tpot_goal, |p| p.tpot)] {
            let Some(goal_s) = goal.map(|g| g.as_secs_f64()) else { continue };
            let least = self.priced.iter().map(of).fold(f64::INFINITY, f64::min);
            self.priced.retain(|p| of(p) <= goal_s.max(least));
        }
    }
}

impl Picker for Adaptive {
    fn pick(&mut self, cx: &mut Cx<'_>, req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        self.draw(cx, req, usable);
        let mut reason = "price";
        let by_load = self.by_load.as_mut().filter(|b| !self.has_memory && b.explains_more_than(&self.by_work));
        if let Some(by_load) = by_load {
            // An engine that hangs reports what it likes: who owes an answer far longer than answers take is left out.
            let patience_s = by_load.patience_s();
            let work = &self.work;
            let overdue =
                |id: EndpointId| work.oldest(id).is_some_and(|(sent, _)| cx.now.secs_since(sent) > patience_s);
            if self.drawn.iter().any(|&id| !overdue(id)) {
                self.drawn.retain(|&id| !overdue(id));
            }
            match by_load.pick(cx, &self.drawn, usable) {
                Some(pick) => return Some(pick),
                None => reason = "degraded",
            }
        }
        self.price(cx.now, req, usable.endpoints);
        self.keep_in_time(req);
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
        let work = self.queue(now, id).1 + req.work_at(id);
        let load = endpoints.load_at(id, now).filter(|_| self.by_load.is_some());
        load.map_or(Prediction::Work(work), |load| Prediction::WorkAndLoad(work, load))
    }

    fn first_byte_s(&self, now: Instant, id: EndpointId, req: &Request<'_>, endpoints: &Endpoints) -> Option<f64> {
        self.pool.is_known().then(|| {
            let (s, ahead) = self.queue(now, id);
            req.start_s(id) + self.wait_s(now, id, endpoints) + s * (ahead + req.work_at(id))
        })
    }

    fn wait_s(&self, now: Instant, id: EndpointId, endpoints: &Endpoints) -> f64 {
        let present = self.work.present(id, now, endpoints.get(id).in_flight);
        self.known.get(id).map_or(0.0, |k| k.seats.wait_s(present, self.places))
    }

    fn token_s(&self, now: Instant, id: EndpointId, endpoints: &Endpoints) -> Option<f64> {
        let present = self.work.present(id, now, endpoints.get(id).in_flight);
        let own = self.known.get(id).and_then(|k| k.pace.at(now, self.memory_s, present));
        own.or(self.pool.pace()).map(|(tau, _)| tau)
    }

    fn reconfigure(&mut self, cfg: &PoolConfig) -> bool {
        let fresh = Self::new(&cfg.policy, cfg);
        (self.first_words, self.externality, self.tie) = (fresh.first_words, fresh.externality, fresh.tie);
        (self.barrier_s, self.memory_s) = (fresh.barrier_s, fresh.memory_s);
        self.work.reconfigure(cfg);
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
        self.work.on_event(now, id, event, endpoints);
        if let Some(by_load) = &mut self.by_load {
            by_load.on_event(id, event, endpoints);
        }
        match event {
            EndpointEvent::Added { .. } | EndpointEvent::Removed => {
                // In a pool that begins, nobody has answered: a bound on all but the first to answer would send a burst to that one.
                let unproven = matches!(event, EndpointEvent::Added { cold: true });
                let was = core::mem::replace(self.known.at(id), Known { unproven, ..Known::default() });
                if was.seats.places().is_some() {
                    // Peers that know theirs say so with their next report.
                    self.places = None;
                }
            }
            EndpointEvent::Returned => self.known.at(id).unproven = true,
            EndpointEvent::FirstByte(d, ttft_s) => {
                self.known.at(id).unproven = false;
                let ttft_s = &d.in_queue_s(*ttft_s);
                if let Some(x) = d.predicted.work() {
                    let speed = &mut self.known.at(id).speed;
                    let expected_s = speed.seconds_per_unit_at(now, self.memory_s, &self.pool, 1.0) * x;
                    self.by_work.on_answer(*ttft_s, expected_s);
                    self.pool.on_answer(x, *ttft_s);
                    speed.on_answer(now, self.memory_s, x, *ttft_s);
                }
            }
            EndpointEvent::Ended(d, _, took_s) => {
                if let Some(at) = d.first_byte_at {
                    self.known.at(id).seats.on_end(took_s - at.secs_since(d.at));
                }
            }
            EndpointEvent::Reported(report) => {
                self.has_memory |= report.work.kv_usage.is_some_and(|k| k > 0.0);
                let seats = &mut self.known.at(id).seats;
                let before = seats.places();
                seats.on_report(&report.work);
                match (before, seats.places()) {
                    (_, Some(places)) => self.places = Some(places),
                    (Some(_), None) => self.places = None,
                    (None, None) => {}
                }
            }
            EndpointEvent::Progress { tokens, stream_s, elapsed } => {
                let n = self.work.present(id, now, endpoints.get(id).in_flight);
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
