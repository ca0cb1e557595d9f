//! What a pool is told: ends of requests, checks, reports, operators' wishes.

use super::{Dispatch, Pool, Ticket};
use crate::endpoint::Gate;
use crate::event::{Effect, EndpointEvent, Event};
use crate::id::{EndpointId, RequestKey};
use crate::journal::Entry;
use crate::limit::gradient::Gradient;
use crate::load::LoadReport;
use crate::outcome::{Failure, MAX_RETRY_AFTER, Outcome, Verdict};
use crate::time::{Duration, Instant, duration_from_secs};

impl Pool {
    /// Ends a dispatch. The only place where in-flight counts go down.
    #[allow(clippy::needless_pass_by_value, reason = "consuming the ticket is what makes settling twice impossible")]
    pub fn settle(&mut self, now: Instant, ticket: Ticket, outcome: Outcome) {
        self.record(now, &Entry::Settled(ticket.key(), outcome));
        self.end(now, ticket, outcome);
        self.serve_queue(now);
    }

    /// What settling does, as part of another input.
    #[allow(clippy::needless_pass_by_value, reason = "as for settle")]
    pub(super) fn end(&mut self, now: Instant, ticket: Ticket, outcome: Outcome) {
        let Ticket { key, endpoint: id, .. } = ticket;
        if outcome.verdict == Verdict::Success {
            // An answer in one piece has its first byte when it is whole.
            self.on_first_byte(now, key);
        }
        let Some(dispatch) = self.in_flight.remove(key) else { return };
        let took_s = now.secs_since(dispatch.at);
        self.tenants.on_end(dispatch.tenant, id);
        self.tell_adapter(dispatch.model, id, false);
        let hot = &mut self.endpoints.hot[id.index()];
        hot.in_flight -= 1;
        if dispatch.first_byte_at.is_none() {
            hot.pending -= 1;
        }
        if matches!(outcome.verdict, Verdict::Throttled { .. } | Verdict::Failed(Failure::FirstByteTimeout)) {
            self.sample_limits(now, &dispatch, took_s, true);
        }
        self.log_in_flight(now, id);
        self.endpoints.stats[id.index()].on_end(now, &outcome, took_s, dispatch.first_byte_at.is_some());
        self.picker.on_event(now, id, &EndpointEvent::Ended(&dispatch, outcome, took_s), &self.endpoints);
        self.cool_down(now, id, outcome.verdict);
        self.learn_of_cache(id, &dispatch, &outcome, took_s);
        self.tell_end(now, key, &dispatch, outcome.verdict, took_s);
        self.refresh(now, id);
        self.vacate(now, id);
    }

    /// An answer tells how much of its prompt was in the cache; an engine that cannot be reached will be back with an empty one.
    fn learn_of_cache(&mut self, id: EndpointId, dispatch: &Dispatch, outcome: &Outcome, took_s: f64) {
        if outcome.verdict == Verdict::Failed(Failure::Connect) {
            self.adapters.forget(id);
        }
        let Some(prefixes) = &mut self.prefixes else { return };
        if outcome.verdict == Verdict::Success {
            prefixes.on_answered(took_s);
        }
        if let Some(cached) = outcome.cached_tokens {
            prefixes.on_told(id, f64::from(cached), dispatch.matched);
        }
        if outcome.verdict == Verdict::Failed(Failure::Connect) {
            prefixes.forget(id);
        }
    }

    /// Takes in what happened. What is said about an endpoint that left is not heard.
    pub fn on_event(&mut self, now: Instant, event: Event) {
        self.record(now, &Entry::Event(&event));
        let stays = |id: EndpointId| self.members.get(id.index()).is_some_and(|m| !m.removed);
        if !event.endpoint().is_none_or(stays) {
            return;
        }
        match event {
            Event::FirstByte(key) => self.on_first_byte(now, key),
            Event::Connected { key, connection } => self.on_connected(key, connection),
            Event::Probed { endpoint, probe, passed } => self.on_probed(now, endpoint, probe, passed),
            Event::Progress { endpoint, tokens } => self.on_progress(now, endpoint, tokens),
            Event::Checked { endpoint, passed } => self.on_check(now, endpoint, passed),
            Event::LoadReported { endpoint, report } => self.on_report(now, endpoint, &report),
            Event::LoadMissed(endpoint) => {
                self.members[endpoint.index()].load_missed = true;
                self.endpoints.loads[endpoint.index()].on_missed();
                self.refresh(now, endpoint);
            }
            Event::CacheTold { endpoint, rank, told } => {
                if let Some(prefixes) = &mut self.prefixes {
                    prefixes.on_cache_told(endpoint, rank, told);
                }
            }
            Event::Drain { endpoint, draining } => self.on_drain(now, endpoint, draining),
            Event::Weight { endpoint, weight } => self.on_weight(now, endpoint, weight),
            Event::MaxInFlight(max) => self.cfg.max_in_flight = Some(max.max(1)),
        }
        self.serve_queue(now);
    }

    fn on_first_byte(&mut self, now: Instant, key: RequestKey) {
        let Some(dispatch) = self.in_flight.get_mut(key).filter(|d| d.first_byte_at.is_none()) else { return };
        dispatch.first_byte_at = Some(now);
        let (dispatch, ttft_s) = (*dispatch, now.secs_since(dispatch.at));
        let id = dispatch.endpoint;
        self.endpoints.hot[id.index()].pending -= 1;
        self.endpoints.stats[id.index()].on_first_byte(now, ttft_s);
        self.sample_limits(now, &dispatch, ttft_s, false);
        if let Some(quantile) = self.cfg.retry.hedge {
            self.first_bytes.on_sample(ttft_s, quantile);
        }
        self.picker.on_event(now, id, &EndpointEvent::FirstByte(&dispatch, ttft_s), &self.endpoints);
        self.tell_first_byte(now, key, &dispatch, ttft_s);
    }

    fn on_progress(&mut self, now: Instant, id: EndpointId, tokens: u64) {
        let (stream_s, elapsed_s) = self.endpoints.stats[id.index()].on_progress(now);
        let event = EndpointEvent::Progress { tokens, stream_s, elapsed: duration_from_secs(elapsed_s) };
        self.picker.on_event(now, id, &event, &self.endpoints);
        if tokens > 0 {
            self.tell_tokens(now, id);
        }
    }

    fn on_check(&mut self, now: Instant, id: EndpointId, passed: bool) {
        let member = &mut self.members[id.index()];
        let first = member.health.verdict().is_none();
        let cold = member.cold || !first;
        let Some(healthy) = member.health.on_check(passed, self.cfg.unhealthy_after, self.cfg.healthy_after) else {
            return;
        };
        if healthy {
            let was_healthy = core::mem::replace(&mut member.was_healthy, true);
            self.tell_healthy(now, id);
            if was_healthy {
                self.start_recovery(now, id);
            } else if cold && self.in_use {
                // New until it first passes: an engine that was still loading its model has not been here before.
                self.start_warm_up(now, id);
                self.picker.on_event(now, id, &EndpointEvent::Returned, &self.endpoints);
            }
        }
        self.push_effect(Effect::Health { endpoint: id, healthy });
        self.refresh(now, id);
        self.watch_panic(now);
    }

    fn on_report(&mut self, now: Instant, id: EndpointId, report: &LoadReport) {
        // A sample from the future would outlive every later one.
        let report = LoadReport { sampled_at: report.sampled_at.min(now), ..*report };
        let dispatched = self.endpoints.stats[id.index()].dispatched;
        let before = self.endpoints.loads[id.index()].last();
        let is_restarted =
            before.is_some_and(|b| b.sampled_at < report.sampled_at && report.work.is_restarted(&b.work));
        if let Some(prefixes) = self.prefixes.as_mut().filter(|_| is_restarted) {
            prefixes.forget(id);
        }
        if self.endpoints.loads[id.index()].on_report(&report, dispatched) {
            self.picker.on_event(now, id, &EndpointEvent::Reported(&report), &self.endpoints);
        }
        self.refresh(now, id);
    }

    pub(super) fn on_weight(&mut self, now: Instant, id: EndpointId, weight: f64) {
        let hot = &mut self.endpoints.hot[id.index()];
        let was = hot.weight;
        hot.set_weight(weight);
        if hot.gate == Gate::Usable {
            self.usable_weight += hot.weight - was;
        }
        let back = was <= 0.0 && hot.weight > 0.0;
        self.picker.on_event(now, id, &EndpointEvent::Reweighted, &self.endpoints);
        if back && self.in_use {
            self.start_recovery(now, id);
        }
        self.refresh(now, id);
    }

    fn on_drain(&mut self, now: Instant, id: EndpointId, draining: bool) {
        let was = core::mem::replace(&mut self.members[id.index()].draining, draining);
        if was && !draining && self.in_use {
            // Idle as it is, every rule that looks for the least busy would send it everything.
            self.start_recovery(now, id);
        }
        self.refresh(now, id);
        self.watch_panic(now);
    }

    /// Throttling: leave the endpoint alone for what it asked, or for a pause that doubles while it keeps saying so.
    fn cool_down(&mut self, now: Instant, id: EndpointId, verdict: Verdict) {
        let member = &mut self.members[id.index()];
        match verdict {
            Verdict::Throttled { retry_after } => {
                let pause = self.cfg.cool_down * 2u32.pow(member.throttled_in_row.min(4));
                member.throttled_in_row += 1;
                let asked = retry_after.unwrap_or(Duration::ZERO).min(MAX_RETRY_AFTER);
                if !self.cfg.cool_down.is_zero() {
                    member.not_before = member.not_before.max(now + pause.max(asked));
                }
            }
            Verdict::Success => member.throttled_in_row = 0,
            _ => {}
        }
    }

    /// The verdict of an endpoint's active checks, `None` before the first.
    pub fn health(&self, id: EndpointId) -> Option<bool> {
        self.members[id.index()].health.verdict()
    }

    /// Most requests in flight at an endpoint now: as configured, or lower where its times to first byte ask for it.
    pub fn max_in_flight(&self, id: EndpointId) -> Option<u32> {
        let member = &self.members[id.index()];
        [member.max_in_flight, member.gradient.as_ref().map(Gradient::limit)].into_iter().flatten().min()
    }

    /// Limits that follow times to first byte learn from one, or from an engine that had too much.
    fn sample_limits(&mut self, now: Instant, dispatch: &Dispatch, ttft_s: f64, dropped: bool) {
        let rtt = duration_from_secs(ttft_s);
        let (of_pool, of_endpoint) = dispatch.beside;
        if let Some(gradient) = &mut self.gradient {
            gradient.on_sample(now, rtt, of_pool, dropped);
        }
        if let Some(gradient) = &mut self.members[dispatch.endpoint.index()].gradient {
            gradient.on_sample(now, rtt, of_endpoint, dropped);
        }
    }
}
