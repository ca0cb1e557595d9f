//! One trace under one scheme with one seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant};

use super::scheme::{Scheme, SchemeKind};
use super::settings::{Tenant, Trace};

/// Requests of one tenant that wait at most, where they do.
const MAX_WAITING: usize = 256;
/// How long a request is in flight before its use is known, in seconds, where use differs from what was reserved.
const IN_FLIGHT_S: (f64, f64) = (0.05, 2.0);

/// What came of it.
#[derive(Default)]
pub(super) struct Played {
    /// Admitted / min(rate x time, asked).
    pub(super) utilisation: f64,
    /// Sum of |admitted - ideal| / sum of ideal.
    pub(super) unfairness: f64,
    /// The largest |admitted - ideal| / ideal of a party.
    pub(super) off: f64,
    /// Of what watched tenants asked in their first second, what they got.
    pub(super) first_second: Option<f64>,
    /// Of what watched tenants asked, what they got.
    pub(super) of_asked: Option<f64>,
    /// The most that was admitted in any window beyond rate x time, in seconds of the rate.
    pub(super) excess_s: f64,
    /// The bound on it: the tree's, and what was in flight and not settled.
    pub(super) bound_s: Option<f64>,
    pub(super) requests: u64,
}

#[derive(Clone, Copy)]
struct Request {
    tenant: usize,
    cost: f64,
}

struct Play<'a> {
    trace: &'a Trace,
    rng: Rng,
    scheme: Scheme,
    waiting: Vec<VecDeque<Request>>,
    /// Instant of settlement, order, tenant, surcharge as bits.
    in_flight: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    requests: u64,
    asked: Vec<f64>,
    admitted: Vec<f64>,
    /// As `admitted`, with the use that was to be expected.
    granted: Vec<f64>,
    first: (f64, f64),
    /// Sum of what requests in flight will turn out to have used more or less than they reserved, and the most it was.
    unsettled: f64,
    most_unsettled: f64,
    sum: f64,
    /// The least of admitted - rate x time so far, before an admission.
    lowest: f64,
    excess: f64,
}

/// Plays it.
pub(super) fn play(trace: &Trace, kind: SchemeKind, ideal: &[f64], seed: u64) -> Played {
    let tenants = trace.tenants();
    let mut play = Play {
        trace,
        rng: Rng::stream(seed, 1),
        scheme: Scheme::new(kind, trace, &tenants),
        waiting: vec![VecDeque::new(); tenants.len()],
        in_flight: BinaryHeap::new(),
        requests: 0,
        asked: vec![0.0; tenants.len()],
        admitted: vec![0.0; tenants.len()],
        granted: vec![0.0; tenants.len()],
        first: (0.0, 0.0),
        unsettled: 0.0,
        most_unsettled: 0.0,
        sum: 0.0,
        lowest: f64::INFINITY,
        excess: 0.0,
    };
    let bound = play.scheme.bound();
    let mut owed: Vec<f64> = tenants.iter().map(|_| play.rng.unit()).collect();
    let mut next: Vec<f64> = tenants.iter().map(|t| play.cost(t)).collect();
    owed.iter_mut().zip(&next).for_each(|(owed, cost)| *owed *= cost);
    let mut arrivals = Vec::new();
    for ms in 0..trace.duration.as_millis() as u64 {
        let now = Instant::ORIGIN + Duration::from_millis(ms);
        play.settle(now);
        if kind == SchemeKind::Queueing {
            play.serve(now, &tenants);
        }
        arrivals.clear();
        for (at, tenant) in tenants.iter().enumerate() {
            owed[at] += tenant.demand_at(trace, now.as_secs_f64()) * 1e-3;
            while owed[at] >= next[at] {
                owed[at] -= next[at];
                arrivals.push(Request { tenant: at, cost: next[at] });
                next[at] = play.cost(tenant);
            }
        }
        for k in (1..arrivals.len()).rev() {
            arrivals.swap(k, play.rng.below(k + 1));
        }
        for request in &arrivals {
            play.arrive(now, kind, &tenants, *request);
        }
    }
    play.result(&tenants, ideal, bound)
}

impl Play<'_> {
    fn cost(&mut self, tenant: &Tenant) -> f64 {
        let party = &self.trace.tenants[tenant.party];
        if party.cost_from >= party.cost_to {
            return party.cost_to;
        }
        let (low, high) = (libm::log(party.cost_from), libm::log(party.cost_to));
        libm::round(libm::exp(self.rng.uniform(low, high))).max(1.0)
    }

    fn arrive(&mut self, now: Instant, kind: SchemeKind, tenants: &[Tenant], request: Request) {
        let used = self.mean_use(&tenants[request.tenant]);
        self.requests += 1;
        if self.counts(now) {
            self.asked[request.tenant] += request.cost * used;
        }
        if self.is_first_second(now, &tenants[request.tenant]) {
            self.first.0 += request.cost * used;
        }
        let waiting = &mut self.waiting[request.tenant];
        if kind == SchemeKind::Queueing && !waiting.is_empty() {
            if waiting.len() < MAX_WAITING {
                waiting.push_back(request);
            }
        } else if self.scheme.ask(now, request.tenant, request.cost) {
            self.admit(now, &tenants[request.tenant], request);
        } else if kind == SchemeKind::Queueing {
            self.waiting[request.tenant].push_back(request);
        }
    }

    /// At a tick, whoever waits asks again, in random order.
    fn serve(&mut self, now: Instant, tenants: &[Tenant]) {
        if self.scheme.next_tick_at().is_none_or(|at| now < at) {
            return;
        }
        let mut order: Vec<usize> = (0..self.waiting.len()).filter(|t| !self.waiting[*t].is_empty()).collect();
        for k in (1..order.len()).rev() {
            order.swap(k, self.rng.below(k + 1));
        }
        for tenant in order {
            while let Some(request) = self.waiting[tenant].front().copied() {
                if !self.scheme.ask(now, tenant, request.cost) {
                    break;
                }
                self.waiting[tenant].pop_front();
                self.admit(now, &tenants[tenant], request);
            }
            let behind: f64 = self.waiting[tenant].iter().skip(1).map(|r| r.cost).sum();
            if behind > 0.0 {
                self.scheme.want(now, tenant, behind);
            }
        }
    }

    fn admit(&mut self, now: Instant, tenant: &Tenant, request: Request) {
        let party = &self.trace.tenants[tenant.party];
        let mut used = request.cost;
        if party.used_from != 1.0 || party.used_to != 1.0 {
            used *= self.rng.uniform(party.used_from, party.used_to);
            let ends = now.as_secs_f64() + self.rng.uniform(IN_FLIGHT_S.0, IN_FLIGHT_S.1);
            let more = used - request.cost;
            self.unsettled += more.abs();
            self.most_unsettled = self.most_unsettled.max(self.unsettled);
            self.in_flight.push(Reverse(((ends * 1e9) as u64, self.requests, request.tenant, more.to_bits())));
        }
        if self.counts(now) {
            self.admitted[request.tenant] += used;
            self.granted[request.tenant] += request.cost * 0.5 * (party.used_from + party.used_to);
        }
        let expected = request.cost * self.mean_use(tenant);
        if self.is_first_second(now, tenant) {
            self.first.1 += expected;
        }
        let due = self.trace.rate * now.as_secs_f64();
        self.lowest = self.lowest.min(self.sum - due);
        self.sum += used;
        self.excess = self.excess.max(self.sum - due - self.lowest);
    }

    fn settle(&mut self, now: Instant) {
        while let Some(Reverse((at, _, tenant, more))) = self.in_flight.peek().copied() {
            if at > now.as_nanos() {
                break;
            }
            self.in_flight.pop();
            let more = f64::from_bits(more);
            self.unsettled -= more.abs();
            self.scheme.settle(now, tenant, more);
        }
    }

    fn counts(&self, now: Instant) -> bool {
        now.as_secs_f64() >= self.trace.counted_from.as_secs_f64()
    }

    fn mean_use(&self, tenant: &Tenant) -> f64 {
        let party = &self.trace.tenants[tenant.party];
        0.5 * (party.used_from + party.used_to)
    }

    fn is_first_second(&self, now: Instant, tenant: &Tenant) -> bool {
        let party = &self.trace.tenants[tenant.party];
        let since = now.as_secs_f64() - party.from.as_secs_f64();
        party.watched && (0.0..1.0).contains(&since)
    }

    fn result(&self, tenants: &[Tenant], ideal: &[f64], bound: Option<f64>) -> Played {
        let counted_s = self.trace.duration.as_secs_f64() - self.trace.counted_from.as_secs_f64();
        let all = self.trace.rate * counted_s;
        let admitted: f64 = self.admitted.iter().sum();
        let offered: f64 = self.asked.iter().sum();
        let wrong: f64 = self.admitted.iter().zip(ideal).map(|(got, ideal)| (got - ideal).abs()).sum();
        let of_party = |values: &[f64], party: usize| -> f64 {
            tenants.iter().zip(values).filter(|(t, _)| t.party == party).map(|(_, v)| v).sum()
        };
        let parties = 0..self.trace.tenants.len();
        let off = parties.clone().map(|p| (of_party(&self.admitted, p), of_party(ideal, p)));
        let off = off.filter(|(_, ideal)| *ideal > 0.0).map(|(got, ideal)| (got / ideal - 1.0).abs());
        let watched = parties.filter(|p| self.trace.tenants[*p].watched);
        let (asked, got) = watched
            .fold((0.0, 0.0), |(asked, got), p| (asked + of_party(&self.asked, p), got + of_party(&self.granted, p)));
        Played {
            utilisation: admitted / all.min(offered),
            unfairness: wrong / ideal.iter().sum::<f64>(),
            off: off.fold(0.0, f64::max),
            first_second: (self.first.0 > 0.0).then(|| self.first.1 / self.first.0),
            of_asked: (asked > 0.0).then(|| got / asked),
            excess_s: self.excess / self.trace.rate,
            bound_s: bound.map(|b| (b + self.most_unsettled) / self.trace.rate),
            requests: self.requests,
        }
    }
}
