//! Who may be picked for one request, among the endpoints that are usable at all.
//!
//! Most decisions find nobody to leave out and copy nothing. Otherwise those that are ramped up, reduced or open for the request's class
//! are asked one by one, and those the request was sent to already are left out.

use super::Pool;
use crate::endpoint::Gate;
use crate::id::EndpointId;
use crate::ramp::Ask;
use crate::request::Request;
use crate::time::Instant;

impl Pool {
    /// Gives held-back endpoints their part of one admission.
    pub(super) fn fill_ramps(&mut self, now: Instant) {
        self.rate.count(now);
        if self.special.is_empty() {
            return;
        }
        let per_second = self.rate.per_second_at(now);
        for k in 0..self.special.len() {
            let id = self.special[k];
            let fair = (self.endpoints.hot[id.index()].weight / self.usable_weight.max(f64::MIN_POSITIVE)).min(1.0);
            if let Some(ramp) = &mut self.members[id.index()].ramp {
                ramp.on_admission(now, fair, fair * per_second);
            }
            for class in &mut self.classes {
                class.circuits[id.index()].on_admission(now, fair, fair * per_second);
            }
        }
    }

    /// Decides who is left out of this decision: those its breaker bars, those held back, those where the
    /// tenant has its share of the places while others wait, those the request was sent to already.
    pub(super) fn leave_out(&mut self, now: Instant, req: &Request<'_>, class: usize) {
        self.decision += 1;
        self.held_back.clear();
        self.barred = 0;
        self.mark_unserving(req);
        if self.special.is_empty() && req.attempted.is_empty() && self.waiting_weight == 0.0 {
            return;
        }
        let serves = |id: EndpointId| self.left_out_of[id.index()] != self.decision;
        let usable = |id: EndpointId| self.endpoints.hot[id.index()].gate == Gate::Usable && serves(id);
        let ramped = |id: &&EndpointId| usable(**id) && self.is_ramped(**id, class);
        let serving = self.usable.len() - self.unserving;
        // Not when every usable endpoint is being ramped up, as somebody must serve.
        let all_ramped = self.special.iter().filter(ramped).count() >= serving;
        let per_second = self.rate.per_second_at(now);
        for k in 0..self.special.len() {
            let id = self.special[k];
            let hot = &self.endpoints.hot[id.index()];
            let is_out = self.left_out_of[id.index()] == self.decision;
            if hot.gate != Gate::Usable || is_out || req.attempted.contains(&id) {
                continue;
            }
            let fair = (hot.weight / self.usable_weight.max(f64::MIN_POSITIVE)).min(1.0);
            let chases_load = self.cfg.policy.descriptor().chases_load;
            // What it would have in flight if it were like the others.
            let others = self.in_flight.len() as f64 - f64::from(hot.in_flight);
            let usual = others * hot.weight / (self.usable_weight - hot.weight).max(hot.weight);
            let ask = Ask { chases_load, in_flight: hot.in_flight, usual_in_flight: usual, rate: fair * per_second };
            let circuit = &mut self.classes[class].circuits[id.index()];
            if circuit.is_out() {
                self.barred += 1;
                self.left_out_of[id.index()] = self.decision;
                continue;
            }
            let mut passes = circuit.passes(now, ask, &mut self.rng);
            if let Some(ramp) = &mut self.members[id.index()].ramp {
                passes &= ramp.passes(now, ask, &mut self.rng);
            }
            passes |= all_ramped && self.is_ramped(id, class);
            if !passes {
                self.held_back.push(id);
            }
        }
        if self.waiting_weight > 0.0 {
            for k in 0..self.usable.len() {
                let id = self.usable[k];
                let asked = self.left_out_of[id.index()] == self.decision || self.held_back.contains(&id);
                if !asked && !req.attempted.contains(&id) && self.is_over_share(req, id) {
                    self.held_back.push(id);
                }
            }
        }
        let held = self.held_back.len();
        let needs = self.needs(req);
        let is_usable = |id: &&EndpointId| self.endpoints.hot[id.index()].gate == Gate::Usable;
        let serves = |id: &&EndpointId| needs.is_none_or(|n| n.are_met(**id));
        let tried = req.attempted.iter().filter(is_usable).filter(serves).count();
        if held > 0 && held + tried + self.barred >= serving {
            // Nobody would be left.
            self.held_back.clear();
        }
        self.held_back.iter().chain(req.attempted).for_each(|id| self.left_out_of[id.index()] = self.decision);
    }

    fn is_ramped(&self, id: EndpointId, class: usize) -> bool {
        self.members[id.index()].ramp.is_some() || self.classes[class].circuits[id.index()].ramp().is_some()
    }

    /// Finds the endpoints the policy may pick for `req`, once [`Self::leave_out`] said who may not. Where no endpoint is usable but some
    /// are only cooling down, those: their answer is better than ours. False: all of `usable`, so that the common case copies nothing;
    /// true: those now in `scratch`.
    pub(super) fn fill_candidates(&mut self, req: &Request<'_>) -> bool {
        self.scratch.clear();
        if self.usable.is_empty() {
            if self.gates[Gate::CoolingDown as usize] > 0 {
                let needs = self.placement.is_active().then(|| self.placement.needs(req));
                let cooling = self.endpoints.hot.iter().filter(|e| e.gate == Gate::CoolingDown).map(|e| e.id);
                let fits = |id: &EndpointId| needs.is_none_or(|n| n.are_met(*id));
                self.scratch.extend(cooling.filter(fits).filter(|id| !req.attempted.contains(id)));
            }
            return true;
        }
        if self.held_back.is_empty() && self.barred == 0 && self.unserving == 0 && req.attempted.is_empty() {
            return false;
        }
        let stays = |id: &&EndpointId| self.left_out_of[id.index()] != self.decision;
        self.scratch.extend(self.usable.iter().filter(stays));
        true
    }

    /// A half-open endpoint that waits for its trial gets this request. A retry is none: it has failed before.
    pub(super) fn trial_for(&mut self, now: Instant, req: &Request<'_>, class: usize) -> Option<EndpointId> {
        if self.special.is_empty() || !req.attempted.is_empty() {
            return None;
        }
        let needs = self.needs(req);
        let ready = |id: &EndpointId| {
            needs.is_none_or(|n| n.are_met(*id))
                && matches!(self.endpoints.hot[id.index()].gate, Gate::Open | Gate::Usable)
                && self.classes[class].circuits[id.index()].wants_trial()
                && self.members[id.index()].not_before <= now
                && !self.is_full(*id)
        };
        let id = self.special.iter().copied().find(ready)?;
        // One gateway of many that do not speak with each other leaves most trials to the others: its part is all that it owes.
        let weight = self.endpoints.hot[id.index()].weight;
        let fair = weight / (self.usable_weight + weight).max(f64::MIN_POSITIVE);
        let part = fair.max(1.0 / self.cfg.replicas.max(1.0));
        (part >= 1.0 || self.usable.is_empty() || self.rng.unit() < part).then_some(id)
    }
}
