//! A request's way through the run: arrive, dispatch, reach, begin, end.

use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::pool::Decision;
use tidegate_core::request::Request;
use tidegate_core::time::Instant;

use super::queue::Due;
use super::setup::Source;
use super::source::Coming;
use super::{Active, Kernel, is_retryable};
use crate::engine::{Admission, Emission, Emitted, EngineModel as _, RequestId};
use crate::fault::FaultKind;

impl Kernel<'_> {
    /// A request arrives at one of the gateways.
    pub(super) fn arrive(&mut self, coming: &Coming) {
        let Coming { mut request, tenant, prompt, .. } = *coming;
        if let Some(queries) = &self.setup.queries {
            request.query = Some(queries.draw(&mut self.queries));
        }
        let gateway = if self.gateways.len() > 1 { self.route.below(self.gateways.len()) as u32 } else { 0 };
        let active = Active {
            arrived: self.now,
            request,
            prompt,
            cached: 0,
            gateway,
            ticket: None,
            waiter: None,
            site: 0,
            endpoint: EndpointId(0),
            id: None,
            first_at: None,
            tokens: 0,
            tenant,
            held: None,
            expected: f64::from(request.output_tokens),
            tries: 0,
            cut_at: None,
            verdict: Verdict::Success,
            attempted: Vec::new(),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.active[slot as usize] = active;
                slot
            }
            None => {
                self.active.push(active);
                (self.active.len() - 1) as u32
            }
        };
        self.live += 1;
        self.govern(slot);
    }

    /// Asks the pool where the request goes, and sends it there.
    pub(super) fn dispatch(&mut self, slot: u32) {
        let a = &mut self.active[slot as usize];
        let (prefix, block_tokens) = match &self.setup.source {
            Source::Trace(recorded) => (recorded.prompt(a.prompt), recorded.block_tokens),
            _ => (&[][..], 0),
        };
        let known = Request {
            hash_key: a.request.query,
            prompt_tokens: Some(a.request.prompt_tokens),
            prefix,
            block_tokens,
            ttft_goal: self.setup.told_goal,
            cost: f64::from(a.request.prompt_tokens) + a.expected,
            attempted: &a.attempted,
            ..Request::default()
        };
        let request = match self.tenants.get(a.tenant as usize) {
            Some(tenant) => tenant.request(known),
            None => known,
        };
        let decision = self.gateways[a.gateway as usize].pool.admit(self.now, &request, None);
        let gateway = a.gateway;
        self.decided(slot, decision);
        self.after_pool(gateway);
    }

    /// The pool has decided about the request in `slot`.
    pub(super) fn decided(&mut self, slot: u32, decision: Decision) {
        let a = &mut self.active[slot as usize];
        let ticket = match decision {
            Decision::Send { ticket, .. } => ticket,
            Decision::Wait { waiter, .. } => {
                self.gateways[a.gateway as usize].waiting.insert(waiter.id(), slot);
                a.waiter = Some(waiter);
                return;
            }
            Decision::Shed { .. } => {
                // A retry that finds no place ends as its last attempt did.
                if a.tries == 0 {
                    a.verdict = Verdict::Failed(Failure::Status);
                    self.tally.shed += 1;
                }
                return self.finish(slot);
            }
        };
        a.endpoint = ticket.endpoint();
        a.site = self.gateways[a.gateway as usize].site(a.endpoint);
        a.ticket = Some(ticket);
        self.fleet.places[a.site as usize].outstanding += 1;
        self.tally.retries += u64::from(a.tries > 0);
        a.tries += 1;
        self.tally.dispatched[a.site as usize] += 1;
        self.after_network(slot, Due::Reach(slot));
    }

    /// `due` happens one way of the network later; at once where the way takes no time.
    fn after_network(&mut self, slot: u32, due: Due) {
        if !self.setup.network.is_zero() {
            self.queue.push(self.now + self.setup.network, due);
            return;
        }
        match due {
            Due::Reach(_) => self.reach(slot),
            Due::FirstByte(_) => self.first_byte(slot),
            _ => self.end(slot),
        }
    }

    /// The request is at its endpoint.
    pub(super) fn reach(&mut self, slot: u32) {
        let a = &self.active[slot as usize];
        let (site, mut request, prompt) = (a.site, a.request, a.prompt);
        self.advance(site);
        let listens = self.fleet.listens(site);
        let e = &mut self.endpoints[site as usize];
        if let Source::Trace(recorded) = &self.setup.source
            && listens
        {
            request.cached_tokens = e.find_cached(recorded.prompt(prompt), recorded.block_tokens);
        }
        let refusal = match e.fault.kind {
            _ if !listens => Some(Verdict::Failed(Failure::Connect)),
            FaultKind::Refuse => Some(Verdict::Failed(Failure::Connect)),
            FaultKind::Reset => Some(Verdict::Failed(Failure::Reset)),
            _ => {
                e.fault.rejects(&mut e.rng).map(|(status, retry_after)| Verdict::of_status(status, retry_after, false))
            }
        };
        let cut_at = e.fault.cuts(request.output_tokens, &mut e.rng);
        let refusal = match refusal {
            Some(v) => Some(v),
            None => match e.engine.arrive(self.now, &request) {
                Admission::Accepted(id) => {
                    e.on_accepted(id, slot);
                    let a = &mut self.active[slot as usize];
                    (a.id, a.cut_at) = (Some(id), cut_at);
                    a.cached = request.cached_tokens.min(request.prompt_tokens.saturating_sub(1));
                    None
                }
                Admission::Rejected(r) => Some(Verdict::of_status(r.status, r.retry_after, r.code == "overloaded")),
            },
        };
        if let Some(v) = refusal {
            self.active[slot as usize].verdict = v;
            self.after_network(slot, Due::Refusal(slot));
        }
        self.wake(site);
    }

    /// An engine's wake-up is due.
    pub(super) fn on_engine(&mut self, site: u32) {
        let e = &mut self.endpoints[site as usize];
        // One that was replaced by an earlier or later wake-up is void.
        if e.wake_at == Some(self.now) {
            e.wake_at = None;
            self.advance(site);
            self.wake(site);
        }
    }

    /// Makes sure that the engine is woken in time.
    pub(super) fn wake(&mut self, site: u32) {
        let e = &mut self.endpoints[site as usize];
        let next = e.next_event_at();
        if next != e.wake_at {
            e.wake_at = next;
            if let Some(at) = next {
                self.queue.push(at.max(self.now), Due::Engine(site));
                e.wake_at = Some(at.max(self.now));
            }
        }
    }

    /// Takes what an engine put out until now.
    pub(super) fn advance(&mut self, site: u32) {
        let mut out = std::mem::take(&mut self.out);
        self.endpoints[site as usize].engine.advance(self.now, &mut out);
        for emission in out.drain(..) {
            self.on_emission(site, &emission);
        }
        // An answer that led to a new arrival here may have been given the spare list; the larger one is kept.
        if out.capacity() > self.out.capacity() {
            self.out = out;
        }
    }

    fn on_emission(&mut self, site: u32, emission: &Emission) {
        let Some(slot) = self.endpoints[site as usize].slot(emission.id) else { return };
        let a = &mut self.active[slot as usize];
        match emission.what {
            Emitted::Token(k) => {
                a.tokens = k;
                let (gateway, cut) = (a.gateway as usize, a.cut_at == Some(k) && k < a.request.output_tokens);
                if let Some(n) = self.endpoints[site as usize].tokens.get_mut(gateway) {
                    *n += 1;
                }
                if k == 1 {
                    self.after_network(slot, Due::FirstByte(slot));
                }
                if cut {
                    self.break_off(site, emission.id, slot, Failure::Truncated);
                }
            }
            Emitted::Done { tokens } => {
                a.tokens = tokens;
                a.verdict = if a.cut_at.is_some() { Verdict::Failed(Failure::Truncated) } else { Verdict::Success };
                self.endpoints[site as usize].forget(emission.id);
                self.after_network(slot, Due::End(slot));
            }
        }
    }

    /// The connection of a request breaks.
    pub(super) fn break_off(&mut self, site: u32, id: RequestId, slot: u32, failure: Failure) {
        let now = self.now;
        let e = &mut self.endpoints[site as usize];
        e.engine.cancel(now, id);
        e.forget(id);
        self.active[slot as usize].verdict = Verdict::Failed(failure);
        self.after_network(slot, Due::End(slot));
    }

    /// The first byte is at the gateway.
    pub(super) fn first_byte(&mut self, slot: u32) {
        let a = &mut self.active[slot as usize];
        a.first_at = Some(self.now);
        let Some(key) = a.ticket.as_ref().map(tidegate_core::pool::Ticket::key) else { return };
        let gateway = a.gateway;
        self.on_begun(slot);
        self.tell(gateway, Event::FirstByte(key));
    }

    /// The end of a dispatch is at the gateway.
    pub(super) fn end(&mut self, slot: u32) {
        let a = &mut self.active[slot as usize];
        let Some(ticket) = a.ticket.take() else { return };
        let retry = a.first_at.is_none() && is_retryable(a.verdict);
        let outcome = Outcome { verdict: a.verdict, output_tokens: a.tokens, cached_tokens: Some(a.cached) };
        let (gateway, site) = (a.gateway, a.site);
        self.gateways[gateway as usize].pool.settle(self.now, ticket, outcome);
        self.fleet.places[site as usize].outstanding -= 1;
        self.after_pool(gateway);
        let a = &mut self.active[slot as usize];
        let naive = self.governors.get(gateway as usize).and_then(|g| g.naive_attempts);
        if let Some(attempts) = naive.filter(|_| retry) {
            // As if it were new: no budget is asked, and no endpoint left out.
            if a.tries < attempts { self.dispatch(slot) } else { self.finish(slot) }
        } else if retry {
            a.attempted.push(a.endpoint);
            self.dispatch(slot);
        } else {
            self.finish(slot);
        }
        self.on_outstanding(site);
    }

    /// The request is over.
    pub(super) fn finish(&mut self, slot: u32) {
        self.leave(slot);
        let a = &self.active[slot as usize];
        let ok = a.verdict == Verdict::Success;
        self.tally.requests += 1;
        self.tally.ended = self.now;
        let mut good = false;
        if ok {
            self.tally.succeeded += 1;
            let total_s = self.now.secs_since(a.arrived);
            self.tally.total.record(total_s);
            if let Some(party) = self.party(slot) {
                self.tally.parties[party].total.record(total_s);
            }
            if let Some(first) = a.first_at {
                self.tally.ttft.record(first.secs_since(a.arrived));
                if a.tokens > 1 {
                    self.tally.interval.record(self.now.secs_since(first) / f64::from(a.tokens - 1));
                }
                self.tally.prompt_tokens += u64::from(a.request.prompt_tokens);
                self.tally.cached_tokens += u64::from(a.cached);
                good = self.is_good(a.arrived, first, a.tokens);
                self.tally.good += u64::from(good);
            }
        }
        let a = &self.active[slot as usize];
        self.fleet.on_end((a.tries > 0).then_some(a.site), good);
        self.tally.fleet.lost_in_change += u64::from(!ok && self.fleet.is_changing());
        let (a, party) = (&self.active[slot as usize], self.party(slot));
        if let Some(party) = party.and_then(|p| self.tally.parties.get_mut(p)) {
            party.requests += 1;
            party.succeeded += u64::from(ok);
            party.refused += u64::from(!ok && a.tries == 0);
        }
        self.free.push(slot);
        self.live -= 1;
        self.on_client_free(ok);
    }

    fn is_good(&self, arrived: Instant, first: Instant, tokens: u32) -> bool {
        let gaps = f64::from(tokens.saturating_sub(1).max(1));
        let goal = self.setup.goal;
        first.secs_since(arrived) <= goal.ttft_s && self.now.secs_since(first) / gaps <= goal.interval_s
    }
}
