//! A pool and an onlooker who knows what must hold: driven by property tests, and by the fuzz target `pool`.
#![allow(dead_code, reason = "each driver uses its part")]

pub(crate) mod bytes;

use crate::driver::{FAILED, at, breaker, cases, secs};
use proptest::prelude::*;
use tidegate_core::breaker::Level;
use tidegate_core::descriptor::Value;
use tidegate_core::endpoint::Gate;
use tidegate_core::event::{Effect, Event};
use tidegate_core::explain::Explain;
use tidegate_core::id::{EndpointId, ProbeId};
use tidegate_core::load::LoadReport;
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::pool::config::{AffinityConfig, EndpointConfig, LoadConfig, Panic, PoolConfig, WarmUpStep};
use tidegate_core::pool::{Decision, Pool, Ticket};
use tidegate_core::prefix::{CacheBatch, CacheTold};
use tidegate_core::queue::{QueueConfig, Waiter};
use tidegate_core::request::Request;
use tidegate_core::time::Instant;

/// One thing that happens. Numbers are reduced to what exists: the k-th endpoint, the k-th request in flight.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Add {
        weight: f64,
        max: Option<u32>,
    },
    Remove(u32),
    /// New settings of an endpoint.
    Change {
        endpoint: u32,
        weight: f64,
        max: Option<u32>,
    },
    /// New settings of the pool.
    Reconfigure {
        case: usize,
        flags: u8,
    },
    Admit {
        key: Option<u64>,
        tokens: Option<u32>,
        retry_of: Option<u32>,
        explain: bool,
    },
    FirstByte(u32),
    Settle(u32, Verdict),
    Late(u32),
    Connected(u32, u64),
    Probed(u32, bool),
    Progress(u32, u64),
    Check(u32, bool),
    Report {
        endpoint: u32,
        load: Option<f64>,
        time_s: Option<f64>,
        used: Option<f64>,
        age_ms: i32,
    },
    Missed(u32),
    Cache {
        endpoint: u32,
        rank: u8,
        told: CacheTold,
    },
    Drain(u32, bool),
    Weight(u32, f64),
    Pass(u32),
    StepBack(u32),
    Deadline,
    Leave(u32),
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => 0.0..1.0,
        1 => Just(0.95),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 7.0, -0.0, f64::MIN_POSITIVE]),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        4 => Just(Verdict::Success),
        3 => Just(FAILED),
        1 => Just(Verdict::Failed(Failure::Truncated)),
        1 => Just(Verdict::Cancelled),
        1 => Just(Verdict::ClientError),
        1 => Just(Verdict::Throttled { retry_after: None }),
        1 => (0u64..1000).prop_map(|s| Verdict::Throttled { retry_after: Some(secs(s as f64)) }),
    ]
}

fn told() -> impl Strategy<Value = CacheTold> {
    let batch = (prop_oneof![0u64..9, Just(u64::MAX)], any::<u32>(), any::<bool>(), any::<u64>(), any::<u64>());
    prop_oneof![
        1 => Just(CacheTold::Heard),
        1 => Just(CacheTold::Lost),
        6 => batch.prop_map(|(sequence, batches, cleared, stored, removed)| {
            let (batches, stored_tokens, removed_tokens) = (batches % 4, stored % 5000, removed % 3000);
            CacheTold::Batch(CacheBatch { sequence, batches, cleared, stored_tokens, removed_tokens })
        }),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let weight = prop_oneof![4 => Just(1.0), 1 => Just(0.0), 1 => Just(0.005), 1 => 0.1..50.0, 1 => number()];
    let option = |p: u32| move |v: u32| v.is_multiple_of(p);
    prop_oneof![
        2 => (weight.clone(), prop::option::of(0u32..6)).prop_map(|(weight, max)| Op::Add { weight, max }),
        1 => any::<u32>().prop_map(Op::Remove),
        1 => (any::<u32>(), weight.clone(), prop::option::of(0u32..6))
            .prop_map(|(endpoint, weight, max)| Op::Change { endpoint, weight, max }),
        1 => (0usize..64, any::<u8>()).prop_map(|(case, flags)| Op::Reconfigure { case, flags }),
        20 => (prop::option::of(0u64..20), prop::option::of(0u32..5000), prop::option::weighted(0.2, any::<u32>()), any::<u32>())
            .prop_map(move |(key, tokens, retry_of, e)| Op::Admit { key, tokens, retry_of, explain: option(8)(e) }),
        6 => any::<u32>().prop_map(Op::FirstByte),
        14 => (any::<u32>(), verdict()).prop_map(|(k, v)| Op::Settle(k, v)),
        1 => any::<u32>().prop_map(Op::Late),
        2 => (any::<u32>(), 0u64..4).prop_map(|(k, c)| Op::Connected(k, c)),
        4 => (any::<u32>(), any::<bool>()).prop_map(|(k, p)| Op::Probed(k, p)),
        2 => (any::<u32>(), 0u64..500).prop_map(|(k, n)| Op::Progress(k, n)),
        3 => (any::<u32>(), any::<bool>()).prop_map(|(k, p)| Op::Check(k, p)),
        4 => (any::<u32>(), prop::option::of(number()), prop::option::of(number()), prop::option::of(number()), -500i32..4000)
            .prop_map(|(endpoint, load, time_s, used, age_ms)| Op::Report { endpoint, load, time_s, used, age_ms }),
        1 => any::<u32>().prop_map(Op::Missed),
        2 => (any::<u32>(), 0u8..3, told()).prop_map(|(endpoint, rank, told)| Op::Cache { endpoint, rank, told }),
        1 => (any::<u32>(), any::<bool>()).prop_map(|(k, d)| Op::Drain(k, d)),
        1 => (any::<u32>(), weight).prop_map(|(k, w)| Op::Weight(k, w)),
        10 => (0u32..2_000).prop_map(Op::Pass),
        1 => (0u32..100_000).prop_map(Op::Pass),
        1 => (0u32..20_000).prop_map(Op::StepBack),
        1 => Just(Op::Deadline),
        2 => any::<u32>().prop_map(Op::Leave),
    ]
}

/// A pool and what an onlooker knows of it.
pub(crate) struct World {
    pub(crate) pool: Pool,
    now: Instant,
    pub(crate) out: Vec<Ticket>,
    ended: Vec<tidegate_core::id::RequestKey>,
    present: Vec<EndpointId>,
    max: Vec<Option<u32>>,
    stepped_back: bool,
    probes: Vec<(EndpointId, ProbeId)>,
    /// Who waits, and whether it was nowhere yet.
    waiting: Vec<(Waiter, bool)>,
}

impl World {
    pub(crate) fn new(cfg: PoolConfig, checked: bool) -> Self {
        let pool = Pool::new(cfg, checked, 1);
        let (out, ended, present, max) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            pool,
            now: at(100.0),
            out,
            ended,
            present,
            max,
            stepped_back: false,
            probes: Vec::new(),
            waiting: Vec::new(),
        }
    }

    fn endpoint(&self, k: u32) -> Option<EndpointId> {
        (!self.present.is_empty()).then(|| self.present[k as usize % self.present.len()])
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        let event = |w: &mut Self, k: u32, f: &dyn Fn(EndpointId) -> Event| {
            // One in eight is about an endpoint that may have left, or never was.
            let id = if k.is_multiple_of(8) { Some(EndpointId(k / 8 % 40)) } else { w.endpoint(k) };
            if let Some(id) = id {
                w.pool.on_event(w.now, f(id));
            }
        };
        match *op {
            Op::Add { weight, max } => self.add(weight, max),
            Op::Remove(k) => {
                if let Some(id) = self.endpoint(k) {
                    self.pool.remove(self.now, id);
                    self.present.retain(|&e| e != id);
                }
            }
            Op::Change { endpoint, weight, max } => {
                let Some(id) = self.endpoint(endpoint) else { return };
                let cfg = EndpointConfig { weight, max_in_flight: max, ..EndpointConfig::new("another name") };
                self.pool.change(self.now, id, &cfg);
                // What is there stays, and there may be as many until it has ended.
                let there = self.pool.endpoints().get(id).in_flight;
                self.max[id.index()] = max.map(|m| m.max(there));
            }
            Op::Reconfigure { case, flags } => {
                let names = self.pool.endpoints().names.clone();
                let in_flight = self.pool.in_flight();
                self.pool.reconfigure(self.now, configured(case, flags), flags & 64 != 0);
                assert_eq!(self.pool.endpoints().names, names);
                assert!(self.pool.in_flight() >= in_flight, "what is in flight stays");
            }
            Op::Admit { key, tokens, retry_of, explain } => self.admit(key, tokens, retry_of, explain),
            Op::FirstByte(k) if !self.out.is_empty() => {
                let key = self.out[k as usize % self.out.len()].key();
                self.pool.on_event(self.now, Event::FirstByte(key));
            }
            Op::Settle(k, verdict) if !self.out.is_empty() => {
                let ticket = self.out.swap_remove(k as usize % self.out.len());
                self.ended.push(ticket.key());
                self.pool.settle(self.now, ticket, Outcome::new(verdict));
            }
            Op::Late(k) if !self.ended.is_empty() => {
                let key = self.ended[k as usize % self.ended.len()];
                let still_out = self.out.iter().any(|t| t.key() == key);
                assert!(!still_out, "a key names one dispatch for ever");
                self.pool.on_event(self.now, Event::FirstByte(key));
            }
            Op::Connected(k, connection) if !self.out.is_empty() => {
                let key = self.out[k as usize % self.out.len()].key();
                self.pool.on_event(self.now, Event::Connected { key, connection });
            }
            Op::Probed(k, passed) => self.answer(k, passed),
            Op::Progress(k, tokens) => event(self, k, &|endpoint| Event::Progress { endpoint, tokens }),
            Op::Check(k, passed) => event(self, k, &|endpoint| Event::Checked { endpoint, passed }),
            Op::Cache { endpoint: k, rank, told } => {
                event(self, k, &|endpoint| Event::CacheTold { endpoint, rank, told });
            }
            Op::Missed(k) => event(self, k, &Event::LoadMissed),
            Op::Drain(k, draining) => event(self, k, &|endpoint| Event::Drain { endpoint, draining }),
            Op::Weight(k, weight) => event(self, k, &|endpoint| Event::Weight { endpoint, weight }),
            Op::Report { endpoint: k, load, time_s, used, age_ms } => {
                let age = secs(f64::from(age_ms.unsigned_abs()) / 1e3);
                let sampled_at = if age_ms < 0 { self.now + age } else { self.now - age };
                let report = LoadReport {
                    sampled_at,
                    load,
                    response_time_s: time_s,
                    utilisation: [used, None, load],
                    ..LoadReport::default()
                };
                event(self, k, &|endpoint| Event::LoadReported { endpoint, report });
            }
            Op::Pass(ms) => self.now = self.now + secs(f64::from(ms) / 1e3),
            Op::StepBack(ms) => {
                self.stepped_back = true;
                self.now = self.now - secs(f64::from(ms) / 1e3);
            }
            Op::Deadline => {
                if let Some(next) = self.pool.next_deadline() {
                    self.now = self.now.max(next);
                    self.pool.on_deadline(self.now);
                }
            }
            Op::Leave(k) if !self.waiting.is_empty() => {
                let (waiter, _) = self.waiting.swap_remove(k as usize % self.waiting.len());
                self.pool.leave(self.now, waiter);
            }
            Op::FirstByte(_) | Op::Settle(..) | Op::Late(_) | Op::Connected(..) | Op::Leave(_) => {}
        }
    }

    /// Takes down the probes that were asked for. Some are never answered.
    fn take_effects(&mut self) {
        let mut effects = Vec::new();
        self.pool.drain_effects(&mut effects);
        assert!(effects.len() <= 1024);
        let more = !effects.is_empty();
        for effect in &effects {
            let Effect::Turn(id) = effect else { continue };
            let Some(k) = self.waiting.iter().position(|(w, _)| w.id() == *id) else { continue };
            let (waiter, _) = self.waiting.swap_remove(k);
            match self.pool.claim(self.now, waiter) {
                Decision::Send { ticket, .. } => self.out.push(ticket),
                Decision::Shed { .. } => {}
                Decision::Wait { .. } => unreachable!("a claim is a decision"),
            }
        }
        self.probes.extend(effects.iter().filter_map(|e| match e {
            Effect::Probe { endpoint, probe, .. } => Some((*endpoint, *probe)),
            _ => None,
        }));
        let many = self.probes.len().saturating_sub(64);
        self.probes.drain(..many);
        if more {
            // A claim lets time pass, and with it others may have their turn.
            self.take_effects();
        }
    }

    /// Answers one of the probes that are out, and sometimes one that nobody asked for.
    fn answer(&mut self, k: u32, passed: bool) {
        self.take_effects();
        let (endpoint, probe) = match self.probes.len() {
            0 => (EndpointId(k % 8), ProbeId(u64::from(k) << 33)),
            n => self.probes.swap_remove(k as usize % n),
        };
        self.pool.on_event(self.now, Event::Probed { endpoint, probe, passed });
    }

    pub(crate) fn add(&mut self, weight: f64, max_in_flight: Option<u32>) {
        if self.present.len() >= 12 {
            return;
        }
        let name = format!("e{}", self.max.len());
        let id = self.pool.add(self.now, EndpointConfig { weight, max_in_flight, ..EndpointConfig::new(name) });
        assert!(self.out.iter().all(|t| t.endpoint() != id), "a slot is reused only after its last request");
        assert!(!self.present.contains(&id));
        self.present.push(id);
        if id.index() >= self.max.len() {
            self.max.resize(id.index() + 1, None);
        }
        self.max[id.index()] = max_in_flight;
    }

    fn admit(&mut self, key: Option<u64>, tokens: Option<u32>, retry_of: Option<u32>, explain: bool) {
        let attempted: Vec<EndpointId> = retry_of.and_then(|k| self.endpoint(k)).into_iter().collect();
        let req = Request {
            hash_key: key,
            affinity_key: key,
            prompt_tokens: tokens,
            attempted: &attempted,
            ..Request::default()
        };
        self.pool.on_deadline(self.now);
        let gates: Vec<Gate> = self.pool.endpoints().hot.iter().map(|e| e.gate).collect();
        let open = |gate: Gate| {
            gates.iter().enumerate().any(|(k, &g)| g == gate && !attempted.contains(&EndpointId(k as u32)))
        };
        let mut record = Explain::default();
        match self.pool.admit(self.now, &req, explain.then_some(&mut record)) {
            Decision::Send { ticket, rule, .. } => {
                let id = ticket.endpoint();
                assert!(!attempted.contains(&id), "never back to where it was");
                let gate = gates[id.index()];
                if ticket.is_trial() {
                    assert_eq!((gate, rule), (Gate::Open, "probe"));
                } else if gate == Gate::CoolingDown {
                    assert!(!gates.contains(&Gate::Usable), "a cooling endpoint only when no other is left");
                } else {
                    assert_eq!(gate, Gate::Usable);
                }
                self.out.push(ticket);
            }
            Decision::Wait { waiter, .. } => self.waiting.push((waiter, attempted.is_empty())),
            Decision::Shed { .. } => {
                let closed = self.pool.is_panicking() && self.pool.config().panic == Panic::Refuse;
                let gave_up = !attempted.is_empty();
                let cooling_serves = open(Gate::CoolingDown) && !gates.contains(&Gate::Usable);
                let only_attempted = !open(Gate::Usable) && !cooling_serves;
                // With a queue, who comes may find it full, or as long as no answer in time allows.
                let only_attempted = only_attempted || self.pool.waiting() > 0;
                assert!(closed || gave_up || only_attempted, "refused although somebody could serve: {gates:?}");
            }
        }
    }

    pub(crate) fn check(&self) {
        let endpoints = self.pool.endpoints();
        assert_eq!(self.pool.in_flight(), self.out.len(), "in flight = dispatched - ended");
        assert_eq!(self.pool.waiting(), self.waiting.len(), "who waits is in the queue");
        let newcomers = self.waiting.iter().any(|(_, fresh)| *fresh);
        assert!(!newcomers || self.pool.count(Gate::Usable) == 0, "nobody waits while a place is free");
        for gate in Gate::ALL {
            let counted = endpoints.hot.iter().filter(|e| e.gate == gate).count();
            assert_eq!(self.pool.count(gate) as usize, counted, "{gate:?}");
        }
        for e in &endpoints.hot {
            let out = self.out.iter().filter(|t| t.endpoint() == e.id).count();
            assert_eq!(e.in_flight as usize, out, "of {:?}", e.id);
            assert!(e.pending <= e.in_flight);
            assert_eq!(endpoints.stats[e.id.index()].streams, e.in_flight - e.pending);
            assert!((0.0..=1.0).contains(&self.pool.share_at(e.id, self.now)));
            assert!(e.weight >= 0.0 && e.weight.is_finite());
            assert!(endpoints.load_at(e.id, self.now).is_none_or(|l| l.is_finite() && l >= 0.0));
            let max = self.max[e.id.index()].map_or(u32::MAX, |m| m.max(1));
            assert!(e.in_flight <= max, "max_in_flight of {:?}", e.id);
            assert!(self.present.contains(&e.id) || matches!(e.gate, Gate::Draining | Gate::Vacant), "{:?}", e.gate);
        }
    }

    /// Ends everything, and lets all time pass that anybody waits for.
    pub(crate) fn wind_down(&mut self) {
        while let Some(ticket) = self.out.pop() {
            self.pool.settle(self.now, ticket, Outcome::new(Verdict::Success));
            self.take_effects();
        }
        let mut turns = 0;
        while let Some(next) = self.pool.next_deadline() {
            self.now = self.now.max(next);
            self.pool.on_deadline(self.now);
            self.take_effects();
            while !self.probes.is_empty() {
                self.answer(0, true);
            }
            for ticket in std::mem::take(&mut self.out) {
                self.pool.settle(self.now, ticket, Outcome::new(Verdict::Success));
                self.take_effects();
            }
            turns += 1;
            assert!(turns < 5_000, "timers must drain");
        }
        assert!(self.waiting.is_empty(), "nobody waits past the deadline");
        self.check();
        for id in std::mem::take(&mut self.present) {
            // One that is half-open waits for the next request, and there is none.
            let waits = self.pool.level(id, 0) == Level::HalfOpen && self.pool.share_at(id, self.now) == 0.0;
            assert!(waits || self.pool.share_at(id, self.now) == 1.0, "every ramp ends");
            self.pool.remove(self.now, id);
        }
        assert_eq!(self.pool.count(Gate::Vacant) as usize, self.pool.endpoints().hot.len());
        assert_eq!(self.pool.affinity_keys(), 0, "keys of endpoints that left are forgotten");
    }
}

pub(crate) fn configured(case: usize, flags: u8) -> PoolConfig {
    let all = cases();
    let mut cfg = all[case % all.len()].cfg.clone();
    let flag = |bit: u8| flags & (1 << bit) != 0;
    if flag(0) {
        cfg.load = Some(LoadConfig { max_age: secs(3.0), per_request: None, by_answers: false });
    }
    cfg.affinity = flag(1).then_some(AffinityConfig { hold: secs(5.0), max_keys: 8 });
    cfg.warm_up = flag(2).then(WarmUpStep::defaults);
    cfg.panic = if flag(3) { Panic::Refuse } else { Panic::UseAll };
    if flag(4) {
        cfg.breaker = breaker("classic", &[("consecutive_errors", Value::Integer(2))]);
    }
    if flag(5) {
        cfg.max_load = None;
    }
    cfg.queue = flag(7).then(|| QueueConfig { max_waiting: 6, max_wait: secs(4.0), ..QueueConfig::default() });
    cfg
}

/// Everything that is drawn for one run: policy, settings, what happens.
pub(crate) fn run() -> impl Strategy<Value = (usize, u8, Vec<Op>)> {
    (0usize..64, any::<u8>(), prop::collection::vec(op(), 1..300))
}

/// Drives a pool through `ops` and checks after every one.
pub(crate) fn drive(case: usize, flags: u8, ops: &[Op]) {
    let mut world = World::new(configured(case, flags), flags & 64 != 0);
    (0..4).for_each(|_| world.add(1.0, None));
    for op in ops {
        world.apply(op);
        world.take_effects();
        world.check();
    }
    world.wind_down();
}
