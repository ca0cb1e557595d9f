//! Joining and leaving a pool.

use super::config::EndpointConfig;
use super::gates::NOWHERE;
use super::{Member, Pool};
use crate::breaker::circuit::Circuit;
use crate::endpoint::{Endpoint, EndpointStats, Gate};
use crate::event::EndpointEvent;
use crate::hash::hash_bytes;
use crate::health::Health;
use crate::id::EndpointId;
use crate::journal::Entry;
use crate::limit::gradient::Gradient;
use crate::load::LoadSignal;
use crate::placement::Serves;
use crate::ramp::Ramp;
use crate::time::{Duration, Instant};

impl Pool {
    /// Takes an endpoint in. It warms up if the pool is already in use; the endpoints a pool starts with hold nobody back.
    pub fn add(&mut self, now: Instant, cfg: EndpointConfig) -> EndpointId {
        let id = self.slot_for(&cfg.name);
        self.record(now, &Entry::Added(id, &cfg));
        let per_request = self.cfg.load.and_then(|l| l.per_request);
        let first_guess = cfg.first_guess();
        let max_age = self.cfg.load.map_or(Duration::ZERO, |l| l.max_age);
        let hot = Endpoint::new(id, hash_bytes(cfg.name.as_bytes()), cfg.weight);
        let stats = EndpointStats::new(now);
        let mut load = match per_request {
            Some(given) => LoadSignal::new(given, max_age, self.cfg.replicas),
            None => LoadSignal::learning(first_guess, max_age, self.cfg.replicas),
        };
        load.set_by_answers(self.cfg.load.is_some_and(|l| l.by_answers));
        let cold = self.in_use;
        let member = Member {
            cfg: cfg.clone(),
            max_in_flight: cfg.max_in_flight,
            gradient: cfg.adaptive.map(Gradient::new),
            draining: false,
            removed: false,
            told: if self.cfg.asks_models { Serves::unread() } else { Serves::default() },
            cold,
            was_healthy: false,
            health: Health::default(),
            ramp: None,
            out: false,
            not_before: Instant::ORIGIN,
            throttled_in_row: 0,
            usable_at: NOWHERE,
            timer: Instant::FAR_FUTURE,
            degraded: None,
            load_since: now,
            load_missed: false,
        };
        if id.index() == self.members.len() {
            self.members.push(member);
            self.endpoints.hot.push(hot);
            self.endpoints.stats.push(stats);
            self.endpoints.loads.push(load);
            self.endpoints.names.push(cfg.name);
            self.left_out_of.push(0);
            self.classes.iter_mut().for_each(|c| c.circuits.push(Circuit::new(&self.breaker)));
            self.gates[Gate::Vacant as usize] += 1;
        } else {
            let replaced = self.endpoints.names[id.index()] == cfg.name;
            for class in &mut self.classes {
                let circuit = &mut class.circuits[id.index()];
                if replaced { circuit.on_replaced() } else { *circuit = Circuit::new(&self.breaker) }
            }
            self.members[id.index()] = member;
            self.endpoints.hot[id.index()] = hot;
            self.endpoints.stats[id.index()] = stats;
            self.endpoints.loads[id.index()] = load;
            self.endpoints.names[id.index()] = cfg.name;
        }
        self.renew_serves(id);
        if cold && !self.checked {
            self.start_warm_up(now, id);
        }
        self.picker.on_event(now, id, &EndpointEvent::Added { cold }, &self.endpoints);
        self.refresh(now, id);
        self.watch_panic(now);
        self.serve_queue(now);
        id
    }

    /// A vacant slot, preferably one where an endpoint of this name was: what is known of its speed holds for its successor.
    fn slot_for(&mut self, name: &str) -> EndpointId {
        let same = self.vacant.iter().position(|id| self.endpoints.names[id.index()] == name);
        match same.or(self.vacant.len().checked_sub(1)) {
            Some(place) => self.vacant.swap_remove(place),
            None => EndpointId(self.members.len() as u32),
        }
    }

    /// Takes an endpoint out for good: no new request, and its slot is free once the last one ended.
    pub fn remove(&mut self, now: Instant, id: EndpointId) {
        let Some(member) = self.members.get_mut(id.index()).filter(|m| !m.removed) else { return };
        member.removed = true;
        self.placement.set(id, None);
        self.refuse_unserved(now);
        self.record(now, &Entry::Removed(id));
        self.refresh(now, id);
        self.watch_panic(now);
        self.vacate(now, id);
        self.serve_queue(now);
    }

    /// Whether the endpoint was taken out for good; requests it still has end by themselves.
    pub fn is_removed(&self, id: EndpointId) -> bool {
        self.members.get(id.index()).is_none_or(|m| m.removed)
    }

    /// Frees the slot of a removed endpoint once nothing refers to it.
    pub(super) fn vacate(&mut self, now: Instant, id: EndpointId) {
        let idle = self.endpoints.hot[id.index()].gate == Gate::Vacant;
        if !idle || self.vacant.contains(&id) {
            return;
        }
        self.picker.on_event(now, id, &EndpointEvent::Removed, &self.endpoints);
        if let Some(affinity) = &mut self.affinity {
            affinity.on_removed(id);
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.remove(id);
        }
        self.adapters.forget(id);
        self.vacant.push(id);
    }

    /// Starts the warm-up of a new endpoint.
    pub(super) fn start_warm_up(&mut self, now: Instant, id: EndpointId) {
        if !self.warm_up.is_empty() {
            let pace = self.classes[0].circuits[id.index()].pace();
            self.start_ramp(now, id, Ramp::steps(now, &self.warm_up, pace));
        }
    }

    /// Ramps a returned endpoint up. One that was still warming up starts its warm-up again, else an outage would be a short cut.
    pub(super) fn start_recovery(&mut self, now: Instant, id: EndpointId) {
        let start = self.rng.unit();
        let circuit = &self.classes[0].circuits[id.index()];
        if self.members[id.index()].ramp.is_some_and(|r| !r.is_recovery()) {
            self.start_warm_up(now, id);
        } else if !circuit.is_out() {
            let ramp = Ramp::doubling(now, circuit.pace(), circuit.median_s(), start);
            self.start_ramp(now, id, ramp);
        }
        self.picker.on_event(now, id, &EndpointEvent::Returned, &self.endpoints);
    }

    fn start_ramp(&mut self, now: Instant, id: EndpointId, ramp: Ramp) {
        self.members[id.index()].ramp = Some(ramp);
        self.watch_breakers(now, id);
    }
}
