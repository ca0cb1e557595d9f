//! Which endpoints may be picked, kept current by events and by time.

use super::config::Panic;
use super::{Decision, Pool, Shed};
use crate::endpoint::Gate;
use crate::id::EndpointId;
use crate::journal::Entry;
use crate::load::Degraded;
use crate::queue::FairQueue;
use crate::request::Request;
use crate::time::{Duration, Instant};
use core::cmp::Reverse;

/// `usable_at` of an endpoint that is not in the usable set.
pub(super) const NOWHERE: u32 = u32::MAX;

impl Pool {
    /// The earliest instant at which something changes by time alone, or a probe is due: a shell sleeps until then and calls
    /// [`Pool::on_deadline`].
    pub fn next_deadline(&self) -> Option<Instant> {
        let endpoint = self.timers.peek().map(|Reverse((at, _))| *at);
        let queue = self.queue.as_ref().and_then(FairQueue::next_deadline);
        [endpoint, queue, self.failing_until].into_iter().flatten().min()
    }

    /// Brings every endpoint whose instant has come up to date. `admit` does so itself; a shell calls it to see the effects in time.
    pub fn on_deadline(&mut self, now: Instant) {
        self.record(now, &Entry::Deadline);
        self.let_pass(now);
        self.serve_queue(now);
    }

    pub(super) fn let_pass(&mut self, now: Instant) {
        self.watch_failing(now);
        let mut changed = false;
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            changed = true;
            if self.members[id.index()].timer == at {
                self.members[id.index()].timer = Instant::FAR_FUTURE;
                self.pass_time(now, id);
                self.refresh(now, id);
            }
        }
        if changed {
            self.serve_queue(now);
        }
    }

    /// Recomputes the gate of one endpoint and puts it into, or takes it out of, the usable set.
    pub(super) fn refresh(&mut self, now: Instant, id: EndpointId) {
        let gate = self.gate_at(now, id);
        let hot = &mut self.endpoints.hot[id.index()];
        if hot.gate != gate {
            self.gates[hot.gate as usize] -= 1;
            self.gates[gate as usize] += 1;
            let was = core::mem::replace(&mut hot.gate, gate);
            if gate == Gate::Usable {
                self.insert_usable(id);
            } else if was == Gate::Usable {
                self.remove_usable(id);
            }
        }
        self.watch_degraded(now, id);
        self.schedule(now, id);
    }

    /// Recomputes all gates: after a change that concerns everybody, such as panic.
    pub(super) fn refresh_all(&mut self, now: Instant) {
        for index in 0..self.endpoints.hot.len() {
            self.refresh(now, EndpointId(index as u32));
        }
    }

    fn gate_at(&self, now: Instant, id: EndpointId) -> Gate {
        let (member, hot) = (&self.members[id.index()], &self.endpoints.hot[id.index()]);
        if member.removed {
            return if hot.in_flight == 0 { Gate::Vacant } else { Gate::Draining };
        }
        if member.draining {
            return Gate::Draining;
        }
        if hot.weight <= 0.0 {
            return Gate::WeightZero;
        }
        let fail_open = self.panic && self.cfg.panic == Panic::UseAll;
        if self.checked && member.health.verdict() != Some(true) && !fail_open {
            return Gate::Unhealthy;
        }
        if member.out {
            return Gate::Open;
        }
        if self.cfg.load.is_some() && self.endpoints.loads[id.index()].unfit_at(now).is_some() {
            return Gate::Unfit;
        }
        if self.is_full(id) {
            return Gate::Full;
        }
        let over = |max: f64| self.cfg.load.is_some() && self.endpoints.load_at(id, now).is_some_and(|l| l > max);
        if self.cfg.max_load.is_some_and(over) {
            return Gate::Overloaded;
        }
        // Last, as an endpoint behind this gate alone is used when no other is left.
        if now < member.not_before { Gate::CoolingDown } else { Gate::Usable }
    }

    /// Whether an endpoint has as many requests as `max_in_flight` and its ramp allow.
    pub(super) fn is_full(&self, id: EndpointId) -> bool {
        let max = self.max_in_flight(id);
        let allowed = |max: u32| (libm::ceil(f64::from(max) * self.ramp_share(id)) as u32).max(1);
        max.is_some_and(|max| self.endpoints.hot[id.index()].in_flight >= allowed(max))
    }

    /// Whether too few endpoints pass their checks for a pool that fails closed.
    pub(super) fn fails_closed(&self) -> bool {
        self.panic && self.cfg.panic == Panic::Refuse
    }

    /// The next instant at which time alone changes this endpoint.
    fn schedule(&mut self, now: Instant, id: EndpointId) {
        let breakers = self.breakers_change_at(now, id);
        let member = &mut self.members[id.index()];
        let reported = self.cfg.load.map(|load| (load, &self.endpoints.loads[id.index()]));
        let expires = reported.and_then(|(_, signal)| signal.expires_after(now));
        let unheard = reported.filter(|(_, signal)| signal.last().is_none());
        let due = unheard.map(|(load, _)| member.load_since + load.max_age);
        let instants = [Some(member.not_before), breakers, expires, due];
        let next = instants.into_iter().flatten().filter(|&t| t > now).min();
        if let Some(at) = next.filter(|&at| at < member.timer || member.timer <= now) {
            member.timer = at;
            self.timers.push(Reverse((at, id)));
        }
    }

    fn watch_degraded(&mut self, now: Instant, id: EndpointId) {
        let Some(load) = self.cfg.load.filter(|_| !self.members[id.index()].removed) else { return };
        let (signal, member) = (&self.endpoints.loads[id.index()], &self.members[id.index()]);
        let why = signal.degraded_at(now);
        let is_early = signal.last().is_none() && !member.load_missed && now < member.load_since + load.max_age;
        if is_early && why == Some(Degraded::Missing) {
            // Nobody was asked yet, and that is no news.
            return;
        }
        if self.members[id.index()].degraded != why {
            self.members[id.index()].degraded = why;
            self.push_effect(crate::event::Effect::Degraded { endpoint: id, why });
        }
    }

    fn insert_usable(&mut self, id: EndpointId) {
        self.members[id.index()].usable_at = self.usable.len() as u32;
        self.usable.push(id);
        self.usable_weight += self.endpoints.hot[id.index()].weight;
    }

    fn remove_usable(&mut self, id: EndpointId) {
        let place = core::mem::replace(&mut self.members[id.index()].usable_at, NOWHERE) as usize;
        self.usable.swap_remove(place);
        if let Some(moved) = self.usable.get(place) {
            self.members[moved.index()].usable_at = place as u32;
        }
        self.usable_weight -= self.endpoints.hot[id.index()].weight;
        if self.usable.is_empty() {
            self.usable_weight = 0.0;
        }
    }

    /// Counts checks and enters or leaves panic. Endpoints that are on their way out do not count.
    pub(super) fn watch_panic(&mut self, now: Instant) {
        if !self.checked {
            return;
        }
        let (mut passing, mut failing) = (0, 0);
        for member in self.members.iter().filter(|m| !m.removed && !m.draining) {
            match member.health.verdict() {
                Some(true) => passing += 1,
                // One that joined and never passed is still starting: a pool that grows by more than it has is well.
                Some(false) if member.cold && !member.was_healthy => {}
                Some(false) => failing += 1,
                // Not checked yet says nothing about the pool.
                None => {}
            }
        }
        let known = passing + failing;
        // Before the first check nobody passes, so the setting for that decides; but it is no news.
        let panic = known == 0 || f64::from(passing) < self.cfg.panic_threshold * f64::from(known);
        if known > 0 && panic != self.panic_told {
            self.panic_told = panic;
            self.push_effect(crate::event::Effect::Panic(panic));
        }
        if panic != self.panic {
            self.panic = panic;
            self.refresh_all(now);
        }
    }

    /// The refusal that names what would have to change.
    pub(super) fn refuse(&self, now: Instant, req: &Request<'_>) -> Decision {
        let needs = self.needs(req);
        let fits = |id| needs.is_none_or(|n| n.are_met(id));
        let count = |g: Gate| match needs {
            None => self.gates[g as usize],
            Some(_) => self.endpoints.hot.iter().filter(|e| e.gate == g && fits(e.id)).count() as u32,
        };
        let why = if needs.is_some_and(|n| n.is_unknown_model()) {
            Shed::ModelNotServed
        } else if self.fails_closed() {
            Shed::NoHealthyEndpoint
        } else if count(Gate::Usable) > 0 {
            Shed::Exhausted
        } else if count(Gate::Full) > 0 {
            Shed::EndpointLimit
        } else if count(Gate::Overloaded) + count(Gate::Unfit) > 0 {
            Shed::Overloaded
        } else if count(Gate::Unhealthy) + count(Gate::Open) + count(Gate::CoolingDown) > 0 {
            Shed::NoHealthyEndpoint
        } else if count(Gate::WeightZero) > 0 {
            Shed::AllWeightsZero
        } else {
            Shed::NoEndpoint
        };
        let wait = match why {
            Shed::EndpointLimit | Shed::Overloaded => Some(Duration::from_secs(1)),
            Shed::NoHealthyEndpoint => self.next_deadline().map(|at| at.since(now).max(Duration::from_secs(1))),
            _ => None,
        };
        Decision::Shed { why, retry_after: wait }
    }
}
