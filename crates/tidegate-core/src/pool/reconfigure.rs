//! New settings for a pool that runs.
//!
//! What is known stays known: requests in flight, breakers, evidence, ramps, health, learned speeds, keys, who waits. Only what cannot be
//! carried over starts anew: the breakers when another kind of breaker takes over, a policy's memory when another policy does, or the same
//! one with parameters it cannot take in (see [`Picker::reconfigure`](crate::balance::Picker::reconfigure)). A setting that did not change
//! leaves what an operator or a rule made of it. Both calls are inputs of the pool and go into its journal.

use super::config::{EndpointConfig, PoolConfig};
use super::{Dispatch, Pool};
use crate::affinity::Affinity;
use crate::balance::registry;
use crate::breaker::settings::Settings;
use crate::endpoint::Gate;
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::journal::Entry;
use crate::limit::gradient::Gradient;
use crate::prefix::PrefixIndex;
use crate::queue::FairQueue;
use crate::stats::Quantile;
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

impl Pool {
    /// Takes new settings. `checked`: its endpoints are actively health-checked; those that served without checks count as healthy until
    /// their first ones say otherwise.
    pub fn reconfigure(&mut self, now: Instant, cfg: PoolConfig, checked: bool) {
        self.record(now, &Entry::Reconfigured(&cfg, checked));
        self.let_pass(now);
        let old = core::mem::replace(&mut self.cfg, cfg);
        self.renew_limits(&old);
        self.renew_queue();
        self.renew_loads(now, &old);
        self.renew_breakers(&old);
        self.renew_picker(now, &old);
        self.affinity = match (self.affinity.take(), self.cfg.affinity) {
            (Some(mut known), Some(cfg)) => {
                known.set(cfg);
                Some(known)
            }
            (_, cfg) => cfg.map(Affinity::new),
        };
        self.prefixes = match (self.prefixes.take(), self.cfg.prefix) {
            (Some(mut known), Some(cfg)) => {
                known.set(cfg, self.cfg.replicas);
                Some(known)
            }
            (_, cfg) => cfg.map(|cfg| PrefixIndex::new(cfg, self.cfg.replicas)),
        };
        if old.asks_models != self.cfg.asks_models {
            self.renew_asking();
            self.refuse_unserved(now);
        }
        self.warm_up = self.cfg.warm_up_steps();
        self.renew_checks(checked);
        for index in 0..self.members.len() as u32 {
            self.pass_time(now, EndpointId(index));
        }
        self.refresh_all(now);
        self.watch_panic(now);
        self.serve_queue(now);
    }

    /// Gives the endpoint `id` new settings; its name stays what it is.
    pub fn change(&mut self, now: Instant, id: EndpointId, cfg: &EndpointConfig) {
        if self.members.get(id.index()).is_none_or(|m| m.removed) {
            return;
        }
        self.record(now, &Entry::Changed(id, cfg));
        self.let_pass(now);
        let member = &mut self.members[id.index()];
        let cfg = EndpointConfig { name: member.cfg.name.clone(), ..cfg.clone() };
        let old = core::mem::replace(&mut member.cfg, cfg.clone());
        member.max_in_flight = cfg.max_in_flight;
        if old.adaptive != cfg.adaptive {
            member.gradient = cfg.adaptive.map(Gradient::new);
        }
        if old.weight.to_bits() != cfg.weight.to_bits() {
            self.on_weight(now, id, cfg.weight);
        }
        if old.serves != cfg.serves {
            self.renew_serves(id);
            self.refuse_unserved(now);
        }
        self.refresh(now, id);
        self.serve_queue(now);
    }

    fn renew_limits(&mut self, old: &PoolConfig) {
        let configured = self.cfg.max_in_flight;
        if configured == self.configured_max {
            self.cfg.max_in_flight = old.max_in_flight;
        }
        self.configured_max = configured;
        if old.adaptive != self.cfg.adaptive {
            self.gradient = self.cfg.adaptive.map(Gradient::new);
        }
        self.budget.set_ratio(self.cfg.retry.budget);
        if old.retry.hedge != self.cfg.retry.hedge {
            self.first_bytes = Quantile::default();
        }
    }

    /// A queue that was there once is kept, switched off: its waiters are served still, and their numbers are never given twice.
    fn renew_queue(&mut self) {
        let Some(cfg) = self.cfg.queue.clone() else {
            self.tenants.recount(core::iter::empty());
            return;
        };
        match &mut self.queue {
            Some(queue) if *queue.config() == cfg => {}
            Some(queue) => queue.set(cfg),
            none => *none = Some(FairQueue::new(cfg)),
        }
        self.tenants.recount(self.in_flight.iter().map(|d| (d.tenant, d.endpoint)));
    }

    fn renew_loads(&mut self, now: Instant, old: &PoolConfig) {
        if old.load == self.cfg.load && old.replicas.to_bits() == self.cfg.replicas.to_bits() {
            return;
        }
        let max_age = self.cfg.load.map_or(Duration::ZERO, |l| l.max_age);
        let per_request = self.cfg.load.and_then(|l| l.per_request);
        for (member, signal) in self.members.iter_mut().zip(&mut self.endpoints.loads) {
            signal.set(per_request, member.cfg.first_guess(), max_age, self.cfg.replicas);
            signal.set_by_answers(self.cfg.load.is_some_and(|l| l.by_answers));
            if old.load.is_none() {
                (member.load_since, member.load_missed) = (now, false);
            }
            if self.cfg.load.is_none() {
                member.degraded = None;
            }
        }
        for index in 0..self.members.len() as u32 {
            self.log_in_flight(now, EndpointId(index));
        }
    }

    fn renew_breakers(&mut self, old: &PoolConfig) {
        if old.breaker == self.cfg.breaker {
            return;
        }
        let settings = Settings::of(&self.cfg.breaker);
        let other_tests = settings.kind != self.breaker.kind;
        self.breaker = settings;
        if other_tests {
            let circuits = self.classes.iter_mut().flat_map(|c| &mut c.circuits);
            circuits.for_each(|circuit| circuit.replace_tests(&self.breaker));
        }
    }

    fn renew_picker(&mut self, now: Instant, old: &PoolConfig) {
        let looks_alike =
            |cfg: &PoolConfig| (cfg.max_load.map(f64::to_bits), cfg.load, cfg.replicas.to_bits(), cfg.learn_replicas);
        let same_name = old.policy.descriptor().name == self.cfg.policy.descriptor().name;
        if old.policy == self.cfg.policy && looks_alike(old) == looks_alike(&self.cfg) {
            return;
        }
        if same_name && self.picker.reconfigure(&self.cfg) {
            return;
        }
        self.picker = registry::build(&self.cfg);
        let present: Vec<EndpointId> = self.endpoints.present().map(|e| e.id).collect();
        for id in present {
            self.picker.on_event(now, id, &EndpointEvent::Added { cold: false }, &self.endpoints);
        }
        // What is in flight was placed by another rule, and the new one has to know of it.
        let out: Vec<Dispatch> = self.in_flight.iter().copied().collect();
        for dispatch in &out {
            self.picker.on_event(now, dispatch.endpoint, &EndpointEvent::Dispatched(dispatch), &self.endpoints);
            if let Some(at) = dispatch.first_byte_at {
                let event = EndpointEvent::FirstByte(dispatch, at.secs_since(dispatch.at));
                self.picker.on_event(now, dispatch.endpoint, &event, &self.endpoints);
            }
        }
    }

    fn renew_checks(&mut self, checked: bool) {
        let was = core::mem::replace(&mut self.checked, checked);
        if checked && !was {
            let serving = self.members.iter_mut().zip(&self.endpoints.hot).filter(|(_, e)| e.gate != Gate::Vacant);
            serving.for_each(|(member, _)| member.health.assume_healthy());
        }
        if !checked {
            (self.panic, self.panic_told) = (false, false);
        }
    }
}
