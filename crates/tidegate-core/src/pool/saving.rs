//! What a pool hands to its successor in another process, and taking it over. See [`crate::saved`].

use super::Pool;
use crate::endpoint::Gate;
use crate::id::EndpointId;
use crate::journal::Entry;
use crate::ramp::Ramp;
use crate::saved::{SavedEndpoint, SavedPool};
use crate::time::Instant;
use alloc::vec::Vec;

impl Pool {
    /// What is known, at `now`.
    pub fn save(&self, now: Instant) -> SavedPool {
        let ids: Vec<EndpointId> =
            (0..self.members.len() as u32).map(EndpointId).filter(|&id| self.is_member(id)).collect();
        let place = |id: EndpointId| ids.iter().position(|&i| i == id).map(|at| at as u32);
        let keys = self.affinity.iter().flat_map(|a| a.bound()).filter_map(|(key, id)| Some((key, place(id)?)));
        SavedPool {
            policy: (self.cfg.policy.descriptor().name.into(), finite(self.picker.learned(None))),
            endpoints: ids.iter().map(|&id| self.save_endpoint(now, id)).collect(),
            keys: keys.collect(),
        }
    }

    /// Goes on from what `saved` knows. To be called once the endpoints have joined and before any request; one that `saved` does not know
    /// joins a pool that is in use, so it warms up.
    pub fn restore(&mut self, now: Instant, saved: &SavedPool) {
        self.record(now, &Entry::Restored(saved));
        let same_policy = saved.policy.0 == self.cfg.policy.descriptor().name;
        if same_policy {
            self.picker.relearn(None, &saved.policy.1);
        }
        self.in_use = true;
        let mut places = Vec::with_capacity(saved.endpoints.len());
        for endpoint in &saved.endpoints {
            let known = |id: &EndpointId| self.endpoints.names[id.index()] == endpoint.name && self.is_member(*id);
            let id = (0..self.members.len() as u32).map(EndpointId).find(known);
            places.push(id);
            if let Some(id) = id {
                self.restore_endpoint(now, id, endpoint);
                if same_policy {
                    self.picker.relearn(Some(id), &endpoint.learned);
                }
            }
        }
        for index in 0..self.members.len() as u32 {
            let id = EndpointId(index);
            if self.is_member(id) && !places.contains(&Some(id)) {
                self.members[id.index()].cold = true;
                if !self.checked {
                    self.start_warm_up(now, id);
                }
            }
        }
        if let Some(affinity) = &mut self.affinity {
            for &(key, place) in &saved.keys {
                if let Some(&Some(id)) = places.get(place as usize) {
                    affinity.bind(key, id);
                }
            }
        }
        self.refresh_all(now);
        self.watch_panic(now);
    }

    fn is_member(&self, id: EndpointId) -> bool {
        !self.members[id.index()].removed && !self.vacant.contains(&id)
    }

    fn save_endpoint(&self, now: Instant, id: EndpointId) -> SavedEndpoint {
        let (member, stats) = (&self.members[id.index()], &self.endpoints.stats[id.index()]);
        let warms = member.ramp.filter(|ramp| !ramp.is_recovery());
        SavedEndpoint {
            name: member.cfg.name.clone(),
            healthy: member.health.verdict(),
            draining: member.draining,
            weight: (member.cfg.weight, self.endpoints.hot[id.index()].weight),
            warms_since: warms.map(|ramp| ramp.since().as_nanos()),
            counts: [stats.dispatched, stats.succeeded, stats.failed, stats.throttled, stats.neutral],
            response_times: stats.response_times.samples().filter(|s| s.is_finite()).collect(),
            first_bytes: stats.first_bytes.samples().filter(|s| s.is_finite()).collect(),
            answered_at: stats.answered_at.as_nanos(),
            breakers: self.classes.iter().map(|c| (c.number(), c.circuits[id.index()].save(now))).collect(),
            learned: finite(self.picker.learned(Some(id))),
            told: member.told.clone(),
        }
    }

    fn restore_endpoint(&mut self, now: Instant, id: EndpointId, saved: &SavedEndpoint) {
        for (class, breaker) in &saved.breakers {
            let place = self.class_of(now, *class);
            let circuit = &mut self.classes[place].circuits[id.index()];
            circuit.restore(now, &self.breaker, breaker, &mut self.rng);
        }
        let pace = self.classes[0].circuits[id.index()].pace();
        let member = &mut self.members[id.index()];
        (member.cold, member.was_healthy, member.draining) = (false, saved.healthy == Some(true), saved.draining);
        if saved.healthy.is_some() {
            member.health.assume(saved.healthy);
        }
        if let Some(since) = saved.warms_since
            && !self.warm_up.is_empty()
        {
            member.ramp = Some(Ramp::steps(Instant::from_nanos(since), &self.warm_up, pace));
        }
        if self.cfg.asks_models && !saved.told.is_empty() {
            member.told = saved.told.clone();
        }
        let was_set = saved.weight.0.to_bits() == member.cfg.weight.to_bits();
        let stats = &mut self.endpoints.stats[id.index()];
        [stats.dispatched, stats.succeeded, stats.failed, stats.throttled, stats.neutral] = saved.counts;
        saved.response_times.iter().for_each(|&s| stats.response_times.on_sample(f64::from(s)));
        saved.first_bytes.iter().for_each(|&s| stats.first_bytes.on_sample(f64::from(s)));
        stats.answered_at = Instant::from_nanos(saved.answered_at);
        if was_set && saved.weight.0.to_bits() != saved.weight.1.to_bits() {
            self.on_weight(now, id, saved.weight.1);
        }
        self.renew_serves(id);
        self.pass_time(now, id);
        self.watch_breakers(now, id);
        debug_assert!(
            self.endpoints.hot[id.index()].gate != Gate::Vacant || self.endpoints.hot[id.index()].in_flight == 0
        );
    }
}

/// Not every form in which numbers are written down has a word for what is none.
fn finite(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.iter_mut().filter(|n| !n.is_finite()).for_each(|n| *n = 0.0);
    numbers
}
