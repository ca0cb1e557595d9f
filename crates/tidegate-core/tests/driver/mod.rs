//! Drives a pool in virtual time: arrivals, endpoints with given service times, reports. No clock, no sleeping; every run is its seed.
#![allow(dead_code, reason = "each test binary uses its part of the driver")]

use std::collections::BTreeMap;
use tidegate_core::balance::registry;
use tidegate_core::descriptor::{Params, Value};
use tidegate_core::endpoint::Gate;
use tidegate_core::event::{Effect, Event};
use tidegate_core::id::{EndpointId, ProbeId};
use tidegate_core::load::LoadReport;
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::pool::config::{EndpointConfig, LoadConfig, PoolConfig, WarmUpStep};
use tidegate_core::pool::{Decision, Pool, Shed, Ticket};
use tidegate_core::request::Request;
use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant};

pub(crate) const FAILED: Verdict = Verdict::Failed(Failure::Connect);

/// Load that one request adds.
const PER_REQUEST: f64 = 0.005;

pub(crate) fn at(s: f64) -> Instant {
    Instant::from_secs_f64(s)
}

pub(crate) fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

/// A policy with parameters, as a pool's configuration without warm-up.
pub(crate) struct Case {
    pub(crate) label: String,
    pub(crate) cfg: PoolConfig,
}

/// The parameters of `policy` with some set.
pub(crate) fn params(policy: &str, set: &[(&str, Value)]) -> Params {
    let Some(descriptor) = registry::find(policy) else { unreachable!("no policy {policy}") };
    let mut params = Params::defaults(descriptor);
    for &(name, value) in set {
        assert_eq!(params.set(name, value), Ok(()), "{policy} {name}");
    }
    params
}

/// The breaker `name` with some parameters set.
pub(crate) fn breaker(name: &str, set: &[(&str, Value)]) -> Params {
    let Some(descriptor) = tidegate_core::breaker::registry::find(name) else { unreachable!("no breaker {name}") };
    let mut params = Params::defaults(descriptor);
    for &(param, value) in set {
        assert_eq!(params.set(param, value), Ok(()), "{name} {param}");
    }
    params
}

/// The breaker that opens after five errors in a row, with its first pause of `s` seconds.
pub(crate) fn five_errors(s: f64) -> Params {
    breaker("classic", &[("cool_down", Value::Duration(s))])
}

/// A pool's configuration around `policy`.
pub(crate) fn config(policy: &str, set: &[(&str, Value)]) -> PoolConfig {
    PoolConfig { warm_up: Some(Vec::new()), ..PoolConfig::new(params(policy, set)) }
}

fn case(policy: &str, set: &[(&str, Value)]) -> Case {
    let set_to: Vec<String> = set.iter().map(|(n, v)| format!("{n}={v}")).collect();
    Case { label: format!("{policy} {}", set_to.join(" ")), cfg: config(policy, set) }
}

/// Every policy of the registry, then every other form and algorithm; those that read a load once without and once with reports.
pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = registry::all().iter().map(|d| case(d.name, &[])).collect();
    let forms: [(&str, &str, &[&'static str]); 4] = [
        ("weighted_round_robin", "weights", &["auto"]),
        ("least_response_time", "form", &["plain"]),
        ("least_response_time", "signal", &["ttft", "reported"]),
        ("consistent_hash", "algorithm", &["maglev"]),
    ];
    for (policy, name, words) in forms {
        all.extend(words.iter().map(|w| case(policy, &[(name, Value::Choice(w))])));
    }
    for algorithm in ["ring", "maglev"] {
        let bound = ("bounded_load", Value::Float(1.25));
        all.push(case("consistent_hash", &[("algorithm", Value::Choice(algorithm)), bound]));
    }
    for form in ["headroom", "ema", "peak", "forecast"] {
        all.push(with_load(case("fastest_recovery", &[("form", Value::Choice(form))])));
    }
    all.extend(["hybrid", "adaptive", "weighted_round_robin"].map(|p| with_load(case(p, &[]))));
    all
}

/// The same, reading loads that the endpoints report.
pub(crate) fn with_load(mut case: Case) -> Case {
    case.label.push_str(" +load");
    case.cfg.load = Some(LoadConfig { max_age: secs(3.0), per_request: Some(PER_REQUEST), by_answers: false });
    case
}

/// How an endpoint answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Service {
    /// Every request takes so many seconds, however many there are.
    Delay(f64),
    /// One request after another, so many seconds each.
    Queue(f64),
    /// One after another, so many seconds per unit of work.
    PerToken(f64),
    /// Ends with this verdict after so many seconds.
    Ends(Verdict, f64),
    /// Never.
    Hangs,
}

/// A pool and the world around it.
pub(crate) struct Rig {
    pub(crate) pool: Pool,
    pub(crate) now: Instant,
    pub(crate) rng: Rng,
    pub(crate) services: Vec<Service>,
    /// Requests sent to each endpoint.
    pub(crate) sent: Vec<u32>,
    /// The order in which endpoints were picked.
    pub(crate) picks: Vec<u32>,
    pub(crate) shed: u32,
    pub(crate) response_s: Vec<f64>,
    pub(crate) last_detail: &'static str,
    free_at: Vec<Instant>,
    due: BTreeMap<(Instant, u64), (Ticket, Instant)>,
    /// Probes under way, with what comes of them.
    probes: BTreeMap<(Instant, u64), (EndpointId, ProbeId)>,
    seen: Vec<Effect>,
    number: u64,
    report_every: Option<Duration>,
    next_report: Instant,
}

impl Rig {
    pub(crate) fn new(cfg: PoolConfig, seed: u64) -> Self {
        Self::checked(cfg, false, seed)
    }

    pub(crate) fn checked(cfg: PoolConfig, checked: bool, seed: u64) -> Self {
        let report_every = cfg.load.map(|_| Duration::from_millis(250));
        Self {
            pool: Pool::new(cfg, checked, seed),
            now: at(1.0),
            rng: Rng::stream(seed, 77),
            services: Vec::new(),
            sent: Vec::new(),
            picks: Vec::new(),
            shed: 0,
            response_s: Vec::new(),
            last_detail: "",
            free_at: Vec::new(),
            due: BTreeMap::new(),
            probes: BTreeMap::new(),
            seen: Vec::new(),
            number: 0,
            report_every,
            next_report: at(1.0),
        }
    }

    /// A pool with one endpoint per service.
    pub(crate) fn of(cfg: &PoolConfig, services: &[Service], seed: u64) -> Self {
        let mut rig = Self::new(cfg.clone(), seed);
        services.iter().for_each(|&s| {
            rig.add(s);
        });
        rig
    }

    pub(crate) fn add(&mut self, service: Service) -> EndpointId {
        let name = format!("http://10.0.0.{}:8000", self.services.len());
        self.add_as(EndpointConfig::new(name), service)
    }

    pub(crate) fn add_as(&mut self, cfg: EndpointConfig, service: Service) -> EndpointId {
        let id = self.pool.add(self.now, cfg);
        if id.index() == self.services.len() {
            self.services.push(service);
            self.sent.push(0);
            self.free_at.push(self.now);
        }
        self.services[id.index()] = service;
        id
    }

    /// One request with a random key, now. The endpoint, or nothing if it was refused.
    pub(crate) fn offer(&mut self) -> Option<EndpointId> {
        let key = Some(self.rng.next_u64());
        self.offer_as(&Request { hash_key: key, ..Request::default() }).ok()
    }

    /// `n` times the same request in one instant; none may be refused.
    pub(crate) fn burst(&mut self, n: usize, req: &Request<'_>) {
        for _ in 0..n {
            assert!(self.offer_as(req).is_ok());
        }
    }

    /// One request, now.
    pub(crate) fn offer_as(&mut self, req: &Request<'_>) -> Result<EndpointId, Shed> {
        let ticket = match self.pool.admit(self.now, req, None) {
            Decision::Send { ticket, detail, .. } => {
                self.last_detail = detail;
                ticket
            }
            Decision::Wait { .. } => unreachable!("a pool without a queue lets nobody wait"),
            Decision::Shed { why, .. } => {
                self.shed += 1;
                return Err(why);
            }
        };
        let id = ticket.endpoint();
        self.sent[id.index()] += 1;
        self.picks.push(id.0);
        let start = self.free_at[id.index()].max(self.now);
        let end = match self.services[id.index()] {
            Service::Delay(s) | Service::Ends(_, s) => self.now + secs(s),
            Service::Queue(s) => start + secs(s),
            Service::PerToken(s) => start + secs(s * req.work()),
            Service::Hangs => Instant::FAR_FUTURE,
        };
        if matches!(self.services[id.index()], Service::Queue(_) | Service::PerToken(_)) {
            self.free_at[id.index()] = end;
        }
        self.number += 1;
        self.due.insert((end, self.number), (ticket, self.now));
        Ok(id)
    }

    /// Lets everything happen that is due up to `until`.
    pub(crate) fn advance(&mut self, until: Instant) {
        loop {
            self.take_effects();
            let next_end = self.due.first_key_value().map(|(&(at, _), _)| at).filter(|&at| at <= until);
            let probe = self.probes.first_key_value().map(|(&(at, _), _)| at);
            let timer = self.pool.next_deadline().into_iter().chain(probe).min().filter(|&at| at <= until);
            if let Some(at) = timer.filter(|at| next_end.is_none_or(|end| *at <= end)) {
                self.now = self.now.max(at);
                self.pass_time();
                continue;
            }
            let report = self.report_every.map(|_| self.next_report).filter(|&at| at <= until);
            match (next_end, report) {
                (end, Some(at)) if end.is_none_or(|e| at <= e) => {
                    self.now = self.now.max(at);
                    self.next_report = at + self.report_every.unwrap_or_default();
                    self.report_all();
                }
                (Some(end), _) => self.end_first(end),
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    /// Probes are sent, everything else is kept for the test.
    fn take_effects(&mut self) {
        let mut effects = Vec::new();
        self.pool.drain_effects(&mut effects);
        for effect in effects {
            if let Effect::Probe { endpoint, probe, timeout } = effect {
                self.number += 1;
                let hangs = self.services[endpoint.index()] == Service::Hangs;
                let takes = if hangs { timeout } else { secs(0.001) };
                self.probes.insert((self.now + takes, self.number), (endpoint, probe));
            }
            self.seen.push(effect);
        }
    }

    /// Answers probes and lets the pool see its deadline.
    fn pass_time(&mut self) {
        while let Some(entry) = self.probes.first_entry().filter(|e| e.key().0 <= self.now) {
            let (endpoint, probe) = entry.remove();
            let down = matches!(self.services[endpoint.index()], Service::Ends(Verdict::Failed(_), _) | Service::Hangs);
            self.pool.on_event(self.now, Event::Probed { endpoint, probe, passed: !down });
        }
        self.pool.on_deadline(self.now);
    }

    fn end_first(&mut self, end: Instant) {
        let Some((_, (ticket, sent_at))) = self.due.pop_first() else { return };
        self.now = self.now.max(end);
        let verdict = match self.services[ticket.endpoint().index()] {
            Service::Ends(verdict, _) => verdict,
            _ => Verdict::Success,
        };
        if verdict == Verdict::Success {
            self.pool.on_event(self.now, Event::FirstByte(ticket.key()));
            self.response_s.push(self.now.secs_since(sent_at));
        }
        self.pool.settle(self.now, ticket, Outcome::new(verdict));
    }

    /// Every endpoint reports a load that goes with its requests in flight.
    pub(crate) fn report_all(&mut self) {
        for index in 0..self.services.len() {
            let endpoint = EndpointId(index as u32);
            let load = (0.1 + PER_REQUEST * f64::from(self.in_flight(endpoint))).min(0.88);
            self.report(endpoint, load);
        }
    }

    pub(crate) fn report(&mut self, endpoint: EndpointId, load: f64) {
        let report = LoadReport {
            sampled_at: self.now,
            load: Some(load),
            response_time_s: Some(0.1 + load),
            utilisation: [Some(load), None, None],
            ..LoadReport::default()
        };
        self.pool.on_event(self.now, Event::LoadReported { endpoint, report });
    }

    /// No more reports by themselves.
    pub(crate) fn stop_reports(&mut self) {
        self.report_every = None;
    }

    /// Poisson arrivals of `rate` per second for `for_s` seconds.
    pub(crate) fn run(&mut self, rate: f64, for_s: f64) {
        let end = self.now + secs(for_s);
        loop {
            let next = self.now + secs(self.rng.exponential(1.0 / rate));
            if next > end {
                break;
            }
            self.advance(next);
            self.offer();
        }
        self.advance(end);
    }

    /// Ends whatever ends by itself, and then what hangs.
    pub(crate) fn drain(&mut self) {
        self.report_every = None;
        // Long enough for everything that ends, and for the timers of a pool that nobody asks any more.
        self.advance(self.now + secs(1000.0));
        while let Some((_, (ticket, _))) = self.due.pop_first() {
            self.pool.settle(self.now, ticket, Outcome::new(Verdict::Cancelled));
        }
    }

    pub(crate) fn in_flight(&self, id: EndpointId) -> u32 {
        self.pool.endpoints().get(id).in_flight
    }

    pub(crate) fn gate(&self, id: EndpointId) -> Gate {
        self.pool.endpoints().get(id).gate
    }

    pub(crate) fn is_out(&self, id: EndpointId) -> bool {
        self.pool.level(id, 0) == tidegate_core::breaker::Level::Open
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.pool.on_event(self.now, event);
    }

    pub(crate) fn check(&mut self, endpoint: EndpointId, passed: bool) {
        self.event(Event::Checked { endpoint, passed });
    }

    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        self.take_effects();
        std::mem::take(&mut self.seen)
    }

    /// Forgets the counts so far and returns them.
    pub(crate) fn take_sent(&mut self) -> Vec<u32> {
        let none = vec![0; self.sent.len()];
        std::mem::replace(&mut self.sent, none)
    }

    pub(crate) fn mean_s(&self) -> f64 {
        self.response_s.iter().sum::<f64>() / self.response_s.len().max(1) as f64
    }
}

/// Steps that hold for `s` seconds at `share` and then end.
pub(crate) fn step(share: f64, s: f64) -> Vec<WarmUpStep> {
    vec![WarmUpStep { at: secs(0.0), share }, WarmUpStep { at: secs(s), share: 1.0 }]
}

/// How many standard errors `count` of `total` draws is from probability `p`.
pub(crate) fn errors_from(count: u32, total: u32, p: f64) -> f64 {
    let (n, mean) = (f64::from(total), f64::from(total) * p);
    (f64::from(count) - mean).abs() / (n * p * (1.0 - p)).sqrt().max(1e-9)
}
