//! Which endpoints serve the model a request asks for, and where its adapter is loaded.

use super::{Decision, Pool, Shed};
use crate::id::EndpointId;
use crate::journal::Entry;
use crate::placement::{Needs, Serves};
use crate::queue::Waiting;
use crate::request::Request;
use crate::time::Instant;
use alloc::vec::Vec;

impl Pool {
    /// Takes in what the endpoint `id` said itself that it serves; what its settings say goes before. Told again whenever it changes; an
    /// engine that can no longer be asked keeps what it said last, also where its polls begin anew.
    pub fn on_serves(&mut self, now: Instant, id: EndpointId, told: &Serves) {
        if self.members.get(id.index()).is_none_or(|m| m.removed || m.told == *told) {
            return;
        }
        self.record(now, &Entry::Serves(id, told));
        self.let_pass(now);
        let known = &mut self.members[id.index()].told;
        *known = if told.is_unread && !known.is_unread {
            Serves { is_unread: false, ..told.clone() }.or(known)
        } else {
            told.clone()
        };
        self.renew_serves(id);
        self.refuse_unserved(now);
        self.serve_queue(now);
    }

    /// What `id` serves as far as is known; `None`: it is gone.
    pub fn serves(&self, id: EndpointId) -> Option<&Serves> {
        self.placement.serves(id).filter(|_| !self.is_removed(id))
    }

    pub(super) fn renew_serves(&mut self, id: EndpointId) {
        let member = &self.members[id.index()];
        let serves = member.cfg.serves.clone().or(&member.told);
        self.placement.set(id, Some(serves));
    }

    /// Answers those at once who wait for a model that nobody serves any more.
    pub(super) fn refuse_unserved(&mut self, now: Instant) {
        let Some(mut queue) = self.queue.take_if(|q| !q.is_empty() && self.placement.is_active()) else { return };
        let unserved = |w: &Waiting| self.placement.needs(&w.request(now)).is_unknown_model();
        let mut gone = Vec::new();
        while let Some(id) = queue.find(unserved) {
            queue.remove(id);
            gone.push(id);
        }
        self.queue = Some(queue);
        for id in gone {
            self.put_ready(id, Decision::Shed { why: Shed::ModelNotServed, retry_after: None });
        }
    }

    /// The pool begins to ask its endpoints for their models, or no longer does: what their metrics told of adapters stays.
    pub(super) fn renew_asking(&mut self) {
        for index in 0..self.members.len() as u32 {
            let id = EndpointId(index);
            let told = &mut self.members[id.index()].told;
            *told = Serves {
                adapters_in_use: told.adapters_in_use.take(),
                max_adapters: told.max_adapters,
                is_unread: self.cfg.asks_models,
                ..Serves::default()
            };
            if !self.is_removed(id) {
                self.renew_serves(id);
            }
        }
    }

    /// What `req` needs of an endpoint; `None` where every endpoint serves everything.
    pub(super) fn needs(&self, req: &Request<'_>) -> Option<Needs<'_>> {
        self.placement.is_active().then(|| self.placement.needs(req))
    }

    /// Leaves out of this decision whoever cannot serve `req` at all.
    pub(super) fn mark_unserving(&mut self, req: &Request<'_>) {
        self.unserving = 0;
        if !self.placement.is_active() {
            return;
        }
        let needs = self.placement.needs(req);
        for id in self.usable.iter().filter(|id| !needs.are_met(**id)) {
            self.left_out_of[id.index()] = self.decision;
            self.unserving += 1;
        }
    }

    /// Whether it matters to `req` where an adapter is loaded.
    pub(super) fn loads_adapter(&self, req: &Request<'_>) -> bool {
        !self.cfg.adapter_load.is_zero() && self.placement.is_adapter(req.model)
    }

    /// Seconds until each usable endpoint could begin with `req`, as its adapter has to be there. O(usable endpoints).
    pub(super) fn fill_starts(&self, now: Instant, req: &Request<'_>, into: &mut Vec<(EndpointId, f64)>) {
        into.clear();
        let load = self.cfg.adapter_load;
        let known = self.usable.iter().filter_map(|&id| Some((id, self.placement.serves(id)?)));
        into.extend(
            known.map(|(id, serves)| (id, self.adapters.start_s(now, id, req.model, serves, load, &self.endpoints))),
        );
        into.sort_unstable_by_key(|s| s.0);
    }

    /// A request for `model` went to `id`, or ended there.
    pub(super) fn tell_adapter(&mut self, model: u64, id: EndpointId, begins: bool) {
        if begins {
            if self.placement.is_adapter(model) {
                let places = self.placement.serves(id).and_then(|s| s.max_adapters).unwrap_or(1);
                self.adapters.on_dispatch(id, model, places);
            }
        } else {
            self.adapters.on_end(id, model);
        }
    }
}
