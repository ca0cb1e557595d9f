//! Waiting for a place in the pool: who comes when everything is full.
//!
//! A request that finds no endpoint with a place gets one in the queue. Whenever something ends or changes, the pool serves the queue at
//! once, so nothing waits while a place is free; each decision lies ready until its waiter takes it. A waiter that leaves gives back
//! what it was given. While somebody waits, nobody overtakes: a newcomer goes through the queue too.

use super::{COME_AGAIN, Decision, Pool, Shed};
use crate::endpoint::Gate;
use crate::event::Effect;
use crate::id::EndpointId;
use crate::journal::{Decided, Entry};
use crate::limit::gradient::Gradient;
use crate::outcome::{Outcome, Verdict};
use crate::queue::{FairQueue, May, QueueFull, Waiter, WaiterId, Waiting};
use crate::request::Request;
use crate::time::Instant;
use alloc::vec::Vec;

impl Pool {
    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.queue.as_ref().map_or(0, FairQueue::len)
    }

    /// The queue, where the pool has one.
    pub fn queue(&self) -> Option<&FairQueue> {
        self.queue.as_ref().filter(|q| self.cfg.queue.is_some() || !q.is_empty())
    }

    /// Whether somebody has to know which tenant holds which places.
    pub(super) fn counts_tenants(&self) -> bool {
        self.cfg.queue.is_some()
    }

    /// Takes the decision about a waiting request. Asked for before its turn has come, it is refused with [`Shed::QueueTimeout`] and its
    /// place is free.
    #[allow(clippy::needless_pass_by_value, reason = "consuming the waiter is what makes claiming twice impossible")]
    pub fn claim(&mut self, now: Instant, waiter: Waiter) -> Decision {
        let id = waiter.id();
        self.let_pass(now);
        let decision = self.ready.remove(&id).unwrap_or_else(|| {
            if let Some(queue) = &mut self.queue {
                queue.remove(id);
            }
            Decision::Shed { why: Shed::QueueTimeout, retry_after: Some(COME_AGAIN) }
        });
        self.record(now, &Entry::Claimed(id, Decided::of(&decision)));
        decision
    }

    /// The client of a waiting request left: its place is free at once, and what it was given goes to the next.
    #[allow(clippy::needless_pass_by_value, reason = "as for claim")]
    pub fn leave(&mut self, now: Instant, waiter: Waiter) {
        self.record(now, &Entry::Left(waiter.id()));
        if let Some(queue) = &mut self.queue {
            queue.remove(waiter.id());
        }
        if let Some(Decision::Send { ticket, .. }) = self.ready.remove(&waiter.id()) {
            self.end(now, ticket, Outcome::new(Verdict::Cancelled));
        }
        self.serve_queue(now);
    }

    /// Whether a newcomer has to go through the queue.
    pub(super) fn must_wait(&self) -> bool {
        // Where a reload took the queue away, those who wait are served still, but nobody goes behind them.
        self.cfg.queue.is_some() && self.queue.as_ref().is_some_and(|q| !q.is_empty())
    }

    /// Puts `req` in line where the pool has one and waiting can help, and serves whoever is next; else it is refused as `why` says.
    pub(super) fn wait_or_refuse(&mut self, now: Instant, req: &Request<'_>, refusal: Decision) -> Decision {
        let Decision::Shed { why, .. } = refusal else { return refusal };
        let Some(queue) = self.queue.as_mut().filter(|_| self.cfg.queue.is_some()) else { return refusal };
        let frees_up = matches!(why, Shed::EndpointLimit | Shed::PoolLimit | Shed::TenantLimit | Shed::Overloaded);
        if !frees_up {
            return refusal;
        }
        let waiting = Waiting::of(req, now);
        let until = waiting.deadline.min(now + queue.config().max_wait);
        let predicted = queue.predicted_wait(&waiting);
        if self.cfg.refuse_late
            && let (Some(goal), Some(wait)) = (req.ttft_goal, predicted)
            && wait > goal
        {
            return Decision::Shed { why: Shed::GoalUnreachable, retry_after: Some(wait - goal) };
        }
        let id = match queue.push(waiting) {
            Ok(id) => id,
            Err(full) => {
                let why = match full {
                    QueueFull::Queue => Shed::QueueFull,
                    QueueFull::Tenant => Shed::TenantQueueFull,
                    QueueFull::TooLong => Shed::QueueTooLong,
                };
                return Decision::Shed { why, retry_after: Some(predicted.unwrap_or_default().max(COME_AGAIN)) };
            }
        };
        self.serve_queue(now);
        let Some(decision) = self.ready.remove(&id) else { return Decision::Wait { waiter: Waiter(id), until } };
        // Its turn came with this very call: nobody has to be told.
        self.effects.retain(|e| *e != Effect::Turn(id));
        decision
    }

    /// Serves the queue until it is empty or nobody in it can be served, and refuses those whose time is over.
    pub(super) fn serve_queue(&mut self, now: Instant) {
        // Taken out while it is served, so that what follows from a dispatch does not serve it from within.
        let Some(mut queue) = self.queue.take_if(|q| !q.is_empty()) else { return };
        while let Some((id, _)) = queue.pop_expired(now) {
            self.put_ready(id, Decision::Shed { why: Shed::QueueTimeout, retry_after: Some(COME_AGAIN) });
        }
        while let Some((id, waiting)) = self.pop_servable(now, &mut queue) {
            let decision = self.place(now, &waiting.request(now), None);
            self.put_ready(id, decision);
        }
        self.waiting_weight = 0.0;
        self.queue = Some(queue);
    }

    pub(super) fn put_ready(&mut self, id: WaiterId, decision: Decision) {
        self.ready.insert(id, decision);
        self.push_effect(Effect::Turn(id));
    }

    /// The next waiter for whom there is a place.
    fn pop_servable(&mut self, now: Instant, queue: &mut FairQueue) -> Option<(WaiterId, Waiting)> {
        if queue.is_empty() || self.gates[Gate::Usable as usize] == 0 || self.pool_is_full() {
            return None;
        }
        self.waiting_weight = queue.waiting_weight();
        // Who had no place for one request of a kind has none for the next.
        let (mut stuck, mut stuck_any) = (Vec::new(), Vec::new());
        let fits = |w: &Waiting, any: bool, stuck: &mut Vec<_>| {
            let req = w.request(now);
            let needs = self.needs(&req);
            let kind = needs.filter(|_| req.attempted.is_empty()).map(|n| (req.tenant, req.model, n.context()));
            if stuck.contains(&kind) {
                return May::Stay;
            }
            let may = |id: EndpointId| {
                needs.is_none_or(|n| n.are_met(id))
                    && !req.attempted.contains(&id)
                    && (any || !self.is_over_share(&req, id))
            };
            if self.usable.iter().any(|&id| may(id)) {
                return May::Go;
            }
            // Those behind it may go where it may not.
            match kind {
                Some(_) => stuck.push(kind),
                None if req.attempted.is_empty() => return May::StayAndAllBehind,
                None => {}
            }
            May::Stay
        };
        // A place that only those could take who have their share already is better taken than left free.
        queue
            .pop_next(now, |w| fits(w, false, &mut stuck))
            .or_else(|| queue.pop_next(now, |w| fits(w, true, &mut stuck_any)))
    }

    /// Whether the tenant of `req`, who waits, holds its share of the places of `id` while another tenant waits too.
    pub(super) fn is_over_share(&self, req: &Request<'_>, id: EndpointId) -> bool {
        let others = self.waiting_weight - req.weight();
        let Some(places) = self.max_in_flight(id).filter(|_| others > 1e-9) else { return false };
        self.tenants.holds_share(req.tenant, req.weight(), id, places, others)
    }

    /// Whether the pool has as many requests in flight as it may.
    pub(super) fn pool_is_full(&self) -> bool {
        self.limit().is_some_and(|max| self.in_flight.len() >= max as usize)
    }

    /// Most requests of the pool in flight now: as configured, or lower where times to first byte ask for it.
    pub fn limit(&self) -> Option<u32> {
        [self.cfg.max_in_flight, self.gradient.as_ref().map(Gradient::limit)].into_iter().flatten().min()
    }
}
