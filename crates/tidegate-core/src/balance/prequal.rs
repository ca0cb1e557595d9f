//! `prequal`: among endpoints that are not busier than most, the one that answers fastest (hot/cold lexicographic).
//!
//! A probe is (requests in flight, latency), the latency being the median of recent ones whose count in flight at arrival was near
//! the present. It is *hot* if its count exceeds the `q_rif` quantile of recent counts. Fastest of the cold ones; if all are hot, fewest
//! in flight. Why not a sum of both: latency is a lagging signal, so it may only choose where the leading one sees no danger.
//!
//! Up to `pool_size` endpoints every one is looked at, as the formulas of the probe pool need more endpoints than places. Beyond, each
//! request probes `r_probe` endpoints at random for later requests; a probe lives `probe_age`, serves `b_reuse` requests and counts each
//! (its count in flight goes up), and `r_remove` leave per request, the oldest and the worst in turn, else the bad ones would stay.
//! Fewer than two probes left: random. The counts are our own times `replicas`, as this gateway sends what it counts; a failure is a
//! latency of at least 5 s, so that one who fails fast looks slow. O(pool_size).
//! Source: notes, algorithms, section 1.1 (Wydrowski et al., NSDI 2024).

use super::tie::{Lowest, PerEndpoint};
use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::endpoint::Endpoints;
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::pool::Prediction;
use crate::request::Request;
use crate::rng::Rng;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "prequal",
    summary: "fastest of the endpoints that are not busier than most, by probes of in flight and latency",
    source: "notes: algorithms, section 1.1; Prequal, NSDI 2024",
    example: "policy: { name: prequal, q_rif: 0.84 }",
    warms_up: false,
    chases_load: false,
    params: &[
        Param {
            name: "q_rif",
            summary: "quantile of requests in flight above which an endpoint is hot; 0 is fewest in flight, 1 is fastest",
            unit: "fraction",
            kind: ParamKind::Float { min: 0.0, max: 1.0 },
            default: Value::Float(0.84),
            example: "0.84",
        },
        Param {
            name: "pool_size",
            summary: "probes kept; with no more endpoints than this all are looked at",
            unit: "probes",
            kind: ParamKind::Integer { min: 2, max: 64 },
            default: Value::Integer(16),
            example: "16",
        },
        Param {
            name: "r_probe",
            summary: "endpoints probed per request",
            unit: "probes",
            kind: ParamKind::Float { min: 0.5, max: 16.0 },
            default: Value::Float(3.0),
            example: "3",
        },
        Param {
            name: "r_remove",
            summary: "probes taken out per request, the oldest and the worst in turn",
            unit: "probes",
            kind: ParamKind::Float { min: 0.0, max: 16.0 },
            default: Value::Float(1.0),
            example: "1",
        },
        Param {
            name: "probe_age",
            summary: "age at which a probe is dropped",
            unit: "s",
            kind: ParamKind::Duration { min: 0.01, max: 60.0, can_be_off: false },
            default: Value::Duration(1.0),
            example: "1s",
        },
    ],
};

/// Latencies kept per endpoint.
const LATENCIES: usize = 16;
/// Counts in flight whose quantile says what is hot.
const COUNTS: usize = 64;
/// Time in seconds after which an endpoint that nobody used is unknown again, and tried: else one bad answer would last for ever.
const FORGET_S: f64 = 10.0;
/// By how much more a probe may be reused than it must, as the paper's delta.
const DELTA: f64 = 1.0;

/// Recent latencies of one endpoint, each with the requests in flight when it was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Latencies {
    ring: [(u32, f32); LATENCIES],
    len: u8,
    next: u8,
    updated: Instant,
}

impl Latencies {
    fn on_sample(&mut self, now: Instant, in_flight: u32, seconds: f64) {
        if now.secs_since(self.updated) > FORGET_S {
            (self.len, self.next) = (0, 0);
        }
        self.ring[usize::from(self.next)] = (in_flight, seconds as f32);
        self.next = (self.next + 1) % LATENCIES as u8;
        self.len = (self.len + 1).min(LATENCIES as u8);
        self.updated = now;
    }

    /// Median in seconds of those sent nearest to `in_flight`; 0 if there is none, so that the endpoint is tried.
    fn near(&self, now: Instant, in_flight: u32) -> f64 {
        if in_flight == 0 && now.secs_since(self.updated) > FORGET_S {
            return 0.0;
        }
        let held = &self.ring[..usize::from(self.len)];
        let Some(nearest) = held.iter().map(|(n, _)| n.abs_diff(in_flight)).min() else { return 0.0 };
        let within = nearest.max(1 + in_flight / 8);
        let mut near = [0.0f32; LATENCIES];
        let mut len = 0;
        for &(_, s) in held.iter().filter(|(n, _)| n.abs_diff(in_flight) <= within) {
            near[len] = s;
            len += 1;
        }
        near[..len].sort_unstable_by(f32::total_cmp);
        f64::from(near[len / 2])
    }
}

/// What was known of an endpoint at some instant.
#[derive(Clone, Copy, Debug)]
struct Probe {
    id: EndpointId,
    at: Instant,
    in_flight: u32,
    latency_s: f64,
    uses: u32,
}

/// The picker.
#[derive(Debug)]
pub struct Prequal {
    q_rif: f64,
    pool_size: usize,
    r_probe: f64,
    r_remove: f64,
    probe_age_s: f64,
    latencies: PerEndpoint<Latencies>,
    /// Oldest first.
    probes: VecDeque<Probe>,
    counts: VecDeque<u32>,
    worst_next: bool,
    looked_at: Vec<Probe>,
    sorted: Vec<u32>,
}

impl Prequal {
    /// A picker with these parameters.
    pub fn new(params: &Params) -> Self {
        Self {
            q_rif: params.float("q_rif"),
            pool_size: params.integer("pool_size") as usize,
            r_probe: params.float("r_probe"),
            r_remove: params.float("r_remove"),
            probe_age_s: params.float("probe_age"),
            latencies: PerEndpoint::default(),
            probes: VecDeque::new(),
            counts: VecDeque::new(),
            worst_next: false,
            looked_at: Vec::new(),
            sorted: Vec::new(),
        }
    }

    fn probe(&self, now: Instant, id: EndpointId, endpoints: &Endpoints, uses: u32) -> Probe {
        let in_flight = endpoints.get(id).in_flight;
        let latency_s = self.latencies.get(id).map_or(0.0, |l| l.near(now, in_flight));
        Probe { id, at: now, in_flight, latency_s, uses }
    }

    /// Requests a probe may serve, before rounding.
    fn reuse(&self, endpoints: usize) -> f64 {
        let kept = 1.0 - self.pool_size as f64 / endpoints as f64;
        let surplus = kept * self.r_probe - self.r_remove;
        if surplus > 0.0 { ((1.0 + DELTA) / surplus).clamp(1.0, 64.0) } else { 64.0 }
    }

    /// Drops what is old, used up or of no use, takes out what is due, and adds this request's probes.
    fn refresh(&mut self, cx: &mut Cx<'_>, usable: &Usable<'_>) {
        let (now, age_s) = (cx.now, self.probe_age_s);
        self.probes.retain(|p| p.uses > 0 && now.secs_since(p.at) < age_s && usable.contains(p.id));
        for _ in 0..round(self.r_remove, cx.rng) {
            self.remove_one();
        }
        let reuse = self.reuse(usable.len());
        for _ in 0..round(self.r_probe, cx.rng) {
            let id = usable.random(cx.rng);
            let uses = round(reuse, cx.rng);
            let probe = self.probe(now, id, usable.endpoints, uses);
            // Without replacement: a second look at one endpoint takes the place of the first.
            self.probes.retain(|p| p.id != id);
            if self.probes.len() >= self.pool_size {
                self.probes.pop_front();
            }
            self.probes.push_back(probe);
            if self.counts.len() >= COUNTS {
                self.counts.pop_front();
            }
            self.counts.push_back(probe.in_flight);
        }
    }

    /// Takes out the oldest or the worst: the busiest of the hot ones, else the slowest.
    fn remove_one(&mut self) {
        self.worst_next = !self.worst_next;
        if self.worst_next {
            self.probes.pop_front();
            return;
        }
        let hot_above = self.hot_above();
        let rank = |p: &Probe| {
            (p.in_flight > hot_above, if p.in_flight > hot_above { f64::from(p.in_flight) } else { p.latency_s })
        };
        let worst =
            self.probes.iter().map(rank).enumerate().max_by(|(_, a), (_, b)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        if let Some((at, _)) = worst {
            self.probes.remove(at);
        }
    }

    /// The count in flight above which a probe is hot.
    fn hot_above(&mut self) -> u32 {
        self.sorted.clear();
        self.sorted.extend(&self.counts);
        let Some(last) = self.sorted.len().checked_sub(1) else { return u32::MAX };
        let place = (self.q_rif * last as f64) as usize;
        *self.sorted.select_nth_unstable(place).1
    }
}

/// `x` rounded up or down at random, so that it is right on average.
fn round(x: f64, rng: &mut Rng) -> u32 {
    let whole = libm::floor(x);
    whole as u32 + u32::from(rng.unit() < x - whole)
}

impl Picker for Prequal {
    fn pick(&mut self, cx: &mut Cx<'_>, _req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        let all = usable.len() <= self.pool_size;
        if all {
            let mut looked_at = core::mem::take(&mut self.looked_at);
            looked_at.clear();
            looked_at.extend(usable.ids().iter().map(|&id| self.probe(cx.now, id, usable.endpoints, 1)));
            self.counts.clear();
            self.counts.extend(looked_at.iter().map(|p| p.in_flight));
            self.looked_at = looked_at;
        } else {
            self.refresh(cx, usable);
            self.looked_at.clear();
            self.looked_at.extend(&self.probes);
            if self.looked_at.len() < 2 {
                return Some(Pick::of(usable.random(cx.rng), "random"));
            }
        }
        let hot_above = self.hot_above();
        let is_cold = |p: &&Probe| p.in_flight <= hot_above;
        let mut best = Lowest::new();
        let reason = if self.looked_at.iter().any(|p| is_cold(&p)) {
            let cold = self.looked_at.iter().filter(is_cold);
            cold.for_each(|p| best.offer(cx, p.id, p.latency_s, f64::from(p.in_flight)));
            "cold"
        } else {
            self.looked_at.iter().for_each(|p| best.offer(cx, p.id, f64::from(p.in_flight), p.latency_s));
            "hot"
        };
        let id = best.take()?;
        if let Some(p) = self.probes.iter_mut().find(|p| !all && p.id == id) {
            p.in_flight += 1;
            p.uses -= 1;
        }
        Some(Pick::of(id, reason))
    }

    fn predict(&self, _now: Instant, id: EndpointId, _req: &Request<'_>, endpoints: &Endpoints) -> Prediction {
        Prediction::InFlight(endpoints.get(id).in_flight)
    }

    fn on_event(&mut self, now: Instant, id: EndpointId, event: &EndpointEvent<'_>, _endpoints: &Endpoints) {
        match event {
            EndpointEvent::Added { .. } | EndpointEvent::Removed => {
                *self.latencies.at(id) = Latencies::default();
                self.probes.retain(|p| p.id != id);
            }
            EndpointEvent::Ended(d, outcome, took_s) => {
                let Prediction::InFlight(n) = d.predicted else { return };
                if let Some(s) = outcome.response_time_s(*took_s) {
                    self.latencies.at(id).on_sample(now, n, s);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_the_median_of_those_sent_at_a_like_count() {
        let mut l = Latencies::default();
        let at = Instant::from_secs_f64;
        assert_eq!(l.near(at(1.0), 3), 0.0);
        for (n, s) in [(1, 0.1), (2, 0.2), (10, 1.0), (11, 1.2), (9, 0.9)] {
            l.on_sample(at(1.0), n, s);
        }
        assert!((l.near(at(2.0), 10) - 1.0).abs() < 1e-6 && (l.near(at(2.0), 0) - 0.1).abs() < 1e-6);
        assert_eq!(l.near(at(12.0), 0), 0.0, "long unused, it is tried again");
    }

    #[test]
    fn a_probe_is_used_more_often_where_there_are_fewer_of_them() {
        let p = Prequal::new(&Params::defaults(&DESCRIPTOR));
        // (1 + 1) / ((1 - 16/32) 3 - 1) = 4; with many endpoints 2 / (3 - 1) = 1.
        assert!((p.reuse(32) - 4.0).abs() < 1e-12 && (p.reuse(1_000_000) - 1.0).abs() < 1e-3);
        assert_eq!(p.reuse(17), 64.0, "the pool would run dry: reuse without end, bounded");
    }

    #[test]
    fn the_quantile_says_what_is_hot() {
        let mut p = Prequal::new(&Params::defaults(&DESCRIPTOR));
        assert_eq!(p.hot_above(), u32::MAX);
        p.counts.extend([5, 1, 3]);
        assert_eq!(p.hot_above(), 3, "of three the middle one, as the reference has it");
    }
}
