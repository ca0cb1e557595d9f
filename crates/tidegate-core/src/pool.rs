//! The pool: the one place where a request meets the endpoints.
//!
//! `admit` decides, `on_event` is told, `settle` ends. The usable set is kept current by events, and a heap holds the instants at
//! which an endpoint changes by time alone, so a decision over ten thousand endpoints looks only at what its policy needs.

mod breakers;
mod candidates;
pub mod config;
mod decision;
mod gates;
mod in_flight;
mod members;
mod models;
mod reconfigure;
mod saving;
mod tenant_places;
mod told;
mod waiting;

pub use decision::{Decision, Shed};
pub use in_flight::{Dispatch, Prediction, Ticket};

use crate::affinity::{Affinity, Bound};
use crate::balance::{Cx, Pick, Picker, Usable, registry};
use crate::breaker::settings::Settings;
use crate::endpoint::{Endpoints, Gate};
use crate::event::{Effect, EndpointEvent};
use crate::explain::Explain;
use crate::health::Health;
use crate::id::{EndpointId, RequestKey};
use crate::journal::{Decided, Entry, Recorder};
use crate::limit::gradient::Gradient;
use crate::placement::{Adapters, Placement, Serves};
use crate::prefix::PrefixIndex;
use crate::queue::{FairQueue, WaiterId};
use crate::ramp::Ramp;
use crate::request::Request;
use crate::retry::RetryBudget;
use crate::rng::Rng;
use crate::stats::{Quantile, Rate};
use crate::time::{Duration, Instant, duration_from_secs};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use breakers::Class;
use config::{EndpointConfig, PoolConfig, WarmUpStep};
use core::cmp::Reverse;
use tenant_places::TenantPlaces;

/// Effects kept when nobody drains them; later ones are lost.
const MAX_EFFECTS: usize = 1024;
/// Time after which a refused client may come again, where nothing better is known.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// What a pool keeps of an endpoint beside what policies read.
#[derive(Clone, Debug)]
struct Member {
    /// As it was told, whatever an operator or a rule changed since.
    cfg: EndpointConfig,
    max_in_flight: Option<u32>,
    gradient: Option<Gradient>,
    draining: bool,
    removed: bool,
    /// What it said itself that it serves.
    told: Serves,
    /// Joined when the pool was in use already.
    cold: bool,
    /// Passed its checks at some time.
    was_healthy: bool,
    health: Health,
    /// Warm-up, or the way back after failed checks or a drain; breakers have their own.
    ramp: Option<Ramp>,
    /// Its breaker lets nothing but a trial through, in every class.
    out: bool,
    not_before: Instant,
    throttled_in_row: u32,
    usable_at: u32,
    timer: Instant,
    degraded: Option<crate::load::Degraded>,
    /// Since when it is asked for its load, and whether that was in vain at some time.
    load_since: Instant,
    load_missed: bool,
}

/// Endpoints that can serve the same request, the policy that picks among them, and everything known of both.
pub struct Pool {
    cfg: PoolConfig,
    /// The bound as configured; that of `cfg` is what an operator or a rule made of it.
    configured_max: Option<u32>,
    breaker: Settings,
    /// Breakers by route class; class 0 first.
    classes: Vec<Class>,
    warm_up: Vec<WarmUpStep>,
    picker: Box<dyn Picker>,
    affinity: Option<Affinity>,
    placement: Placement,
    adapters: Adapters,
    /// Seconds until each could begin with the current request.
    starts: Vec<(EndpointId, f64)>,
    prefixes: Option<PrefixIndex>,
    /// What the current request's prompt matches, by endpoint.
    matched: Vec<(EndpointId, f64)>,
    budget: RetryBudget,
    /// Times to first byte, for hedging.
    first_bytes: Quantile,
    rng: Rng,
    endpoints: Endpoints,
    members: Vec<Member>,
    vacant: Vec<EndpointId>,
    usable: Vec<EndpointId>,
    usable_weight: f64,
    gates: [u32; Gate::ALL.len()],
    in_use: bool,
    panic: bool,
    panic_told: bool,
    checked: bool,
    /// Endpoints that a decision may have to leave out: ramped up, reduced, open.
    special: Vec<EndpointId>,
    /// Admissions of first attempts.
    rate: Rate,
    /// Every endpoint fails alike until then, as far as is known.
    failing_until: Option<Instant>,
    timers: BinaryHeap<Reverse<(Instant, EndpointId)>>,
    in_flight: InFlight,
    /// Who waits for a place; `None` where a full pool refuses at once.
    queue: Option<FairQueue>,
    /// Decisions about waiters that lie ready; bounded by the places of the queue.
    ready: BTreeMap<WaiterId, Decision>,
    tenants: TenantPlaces,
    gradient: Option<Gradient>,
    /// Weight of the tenants that wait, while the queue is served; else 0.
    waiting_weight: f64,
    effects: VecDeque<Effect>,
    scratch: Vec<EndpointId>,
    held_back: Vec<EndpointId>,
    /// Usable endpoints that are open for the class of the current request.
    barred: usize,
    /// Usable endpoints that do not serve the current request's model, or where it does not fit.
    unserving: usize,
    /// Connections made up for dispatches whose own is not known yet.
    connections: u64,
    /// Who is asked beside a suspect, and whose turn that is.
    control: Option<EndpointId>,
    control_turn: usize,
    /// The decision each endpoint was last left out of, and the number of the current one.
    left_out_of: Vec<u64>,
    decision: u64,
    recorder: Option<Box<dyn Recorder>>,
}

use in_flight::InFlight;

impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pool")
            .field("policy", &self.cfg.policy.label())
            .field("gates", &self.gates)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// An empty pool whose every draw follows from `seed`. `checked`: its endpoints are actively health-checked.
    pub fn new(cfg: PoolConfig, checked: bool, seed: u64) -> Self {
        let picker = registry::build(&cfg);
        Self::with_picker(cfg, checked, seed, picker)
    }

    /// The same with a rule that is in no registry, such as one that is compared with. A reload puts the configured policy in its place.
    pub fn with_picker(cfg: PoolConfig, checked: bool, seed: u64, picker: Box<dyn Picker>) -> Self {
        Self {
            configured_max: cfg.max_in_flight,
            breaker: Settings::of(&cfg.breaker),
            classes: alloc::vec![Class::new(0)],
            warm_up: cfg.warm_up_steps(),
            picker,
            affinity: cfg.affinity.map(Affinity::new),
            placement: Placement::default(),
            adapters: Adapters::default(),
            starts: Vec::new(),
            prefixes: cfg.prefix.map(|p| PrefixIndex::new(p, cfg.replicas)),
            matched: Vec::new(),
            budget: RetryBudget::new(cfg.retry.budget),
            first_bytes: Quantile::default(),
            rng: Rng::new(seed),
            endpoints: Endpoints::default(),
            members: Vec::new(),
            vacant: Vec::new(),
            usable: Vec::new(),
            usable_weight: 0.0,
            gates: [0; Gate::ALL.len()],
            in_use: false,
            panic: false,
            panic_told: false,
            checked,
            special: Vec::new(),
            rate: Rate::default(),
            failing_until: None,
            timers: BinaryHeap::new(),
            in_flight: InFlight::default(),
            queue: cfg.queue.clone().map(FairQueue::new),
            ready: BTreeMap::new(),
            tenants: TenantPlaces::default(),
            gradient: cfg.adaptive.map(Gradient::new),
            waiting_weight: 0.0,
            effects: VecDeque::new(),
            scratch: Vec::new(),
            held_back: Vec::new(),
            barred: 0,
            unserving: 0,
            connections: 0,
            control: None,
            control_turn: 0,
            left_out_of: Vec::new(),
            decision: 0,
            recorder: None,
            cfg,
        }
    }

    /// From now on `recorder` sees every input and decision. To be replayed, a journal begins before the first endpoint joins.
    pub fn record_into(&mut self, recorder: Box<dyn Recorder>) {
        self.recorder = Some(recorder);
    }

    /// Ends the recording, if there is one.
    pub fn stop_recording(&mut self) {
        self.recorder = None;
    }

    fn record(&mut self, now: Instant, entry: &Entry<'_>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.on_entry(now, entry);
        }
    }

    /// Decides about one request. A retry names what it attempted.
    pub fn admit(&mut self, now: Instant, req: &Request<'_>, explain: Option<&mut Explain>) -> Decision {
        let decision = self.decide(now, req, explain);
        self.record(now, &Entry::Admitted(req, Decided::of(&decision)));
        decision
    }

    fn decide(&mut self, now: Instant, req: &Request<'_>, explain: Option<&mut Explain>) -> Decision {
        self.let_pass(now);
        if self.fails_closed() || self.needs(req).is_some_and(|n| n.is_unknown_model()) {
            return self.refuse(now, req);
        }
        let retry = !req.attempted.is_empty();
        if retry {
            if req.attempted.len() >= self.cfg.retry.max_attempts as usize || !self.budget.withdraw(now) {
                return Decision::Shed { why: Shed::RetryBudget, retry_after: None };
            }
        } else {
            self.budget.on_admission(now);
            self.fill_ramps(now);
        }
        // Where models differ, whoever waits could not go where this one may: a place that is free is free for it.
        let decision = if (self.must_wait() && !self.placement.is_active()) || self.pool_is_full() {
            Decision::Shed { why: Shed::PoolLimit, retry_after: None }
        } else {
            self.place(now, req, explain)
        };
        if let Decision::Shed { .. } = decision { self.wait_or_refuse(now, req, decision) } else { decision }
    }

    /// Finds a place for a request that may have one.
    fn place(&mut self, now: Instant, req: &Request<'_>, explain: Option<&mut Explain>) -> Decision {
        if !self.loads_adapter(req) {
            return self.place_by_prefix(now, req, explain);
        }
        let mut starts = core::mem::take(&mut self.starts);
        self.fill_starts(now, req, &mut starts);
        let decision = self.place_by_prefix(now, &Request { starts: &starts, ..*req }, explain);
        self.starts = starts;
        decision
    }

    fn place_by_prefix(&mut self, now: Instant, req: &Request<'_>, explain: Option<&mut Explain>) -> Decision {
        let Some(prefixes) = self.prefixes.as_ref().filter(|_| !req.prefix.is_empty()) else {
            return self.place_known(now, req, explain);
        };
        let mut matched = core::mem::take(&mut self.matched);
        prefixes.look_up(req.prefix, req.block_tokens, &mut matched);
        // No more than whoever has most of it is believed to have.
        let most = matched.iter().map(|m| m.1).fold(0.0, f64::max);
        let shared = prefixes.shared_tokens(now, req.prefix, req.block_tokens, self.members.len()).min(most);
        let known = Request { matched: &matched, shared, ..*req };
        let decision = self.place_known(now, &known, explain);
        if let (Decision::Send { ticket, .. }, Some(prefixes)) = (&decision, &mut self.prefixes) {
            prefixes.count(known.matched_at(ticket.endpoint));
            prefixes.on_sent(ticket.endpoint, req.prefix, req.block_tokens);
            prefixes.note_use(now, req.prefix);
        }
        self.matched = matched;
        decision
    }

    fn place_known(&mut self, now: Instant, req: &Request<'_>, mut explain: Option<&mut Explain>) -> Decision {
        let class = self.class_of(now, req.class);
        if let Some(ex) = explain.as_deref_mut() {
            let unfit = self.endpoints.present().filter(|e| e.gate == Gate::Unfit);
            ex.unfit.extend(unfit.filter_map(|e| Some((e.id, self.endpoints.loads[e.id.index()].unfit_at(now)?))));
            ex.excluded.extend(self.endpoints.present().filter(|e| e.gate != Gate::Usable).map(|e| (e.id, e.gate)));
        }
        if let Some(id) = self.trial_for(now, req, class) {
            return self.send(now, req, Pick::of(id, "trial"), "probe", (class, true));
        }
        self.leave_out(now, req, class);
        let bound = self.look_up(now, req);
        if let Some(Bound::To(id)) = bound {
            return self.send(now, req, Pick::of(id, "affinity"), "affinity", (class, false));
        }
        let Some((pick, rule)) = self.pick(now, req, explain) else { return self.refuse(now, req) };
        if let Some((why, wait)) = self.misses_goal(now, pick.endpoint, req) {
            return Decision::Shed { why, retry_after: Some(wait) };
        }
        if let (Some(affinity), Some(Bound::Free), Some(key)) = (&mut self.affinity, bound, req.affinity_key) {
            affinity.bind(key, pick.endpoint);
        }
        self.send(now, req, pick, rule, (class, false))
    }

    /// The policy's choice among what can be used, and the name of the rule that chose.
    fn pick(&mut self, now: Instant, req: &Request<'_>, explain: Option<&mut Explain>) -> Option<(Pick, &'static str)> {
        let ids = if self.fill_candidates(req) { &self.scratch } else { &self.usable };
        if ids.is_empty() {
            return None;
        }
        let usable = Usable {
            ids,
            gate: if self.usable.is_empty() { Gate::CoolingDown } else { Gate::Usable },
            left_out_of: &self.left_out_of,
            decision: self.decision,
            endpoints: &self.endpoints,
            total_weight: self.usable_weight,
            total_in_flight: self.in_flight.len() as u32,
        };
        let mut cx = Cx { now, rng: &mut self.rng, explain };
        if let Some(ex) = cx.explain.as_deref_mut() {
            ex.held_back.extend_from_slice(&self.held_back);
        }
        let pick = self.picker.pick(&mut cx, req, &usable)?;
        let rule = if self.panic { "panic" } else { self.cfg.policy.descriptor().name };
        Some((pick, rule))
    }

    /// Which goal a request would miss at `id`, and when trying again makes sense: where the pool refuses what cannot meet its goals, and
    /// something is there already. An idle endpoint is always tried, as a prediction that is wrong would never be corrected else.
    fn misses_goal(&self, now: Instant, id: EndpointId, req: &Request<'_>) -> Option<(Shed, Duration)> {
        if !self.cfg.refuse_late || self.endpoints.hot[id.index()].in_flight == 0 {
            return None;
        }
        let over_s = |goal: Duration, expected_s: Option<f64>| expected_s.map(|e| e - goal.as_secs_f64());
        let first =
            req.ttft_goal.and_then(|goal| over_s(goal, self.picker.first_byte_s(now, id, req, &self.endpoints)));
        if let Some(late_s) = first.filter(|s| *s > 0.0) {
            return Some((Shed::GoalUnreachable, duration_from_secs(late_s.min(300.0))));
        }
        let pace = req.tpot_goal.and_then(|goal| over_s(goal, self.picker.token_s(now, id, &self.endpoints)));
        // When a stream will end that slows the others down, nobody knows.
        pace.filter(|s| *s > 0.0).map(|_| (Shed::PaceUnreachable, COME_AGAIN))
    }

    fn look_up(&mut self, now: Instant, req: &Request<'_>) -> Option<Bound> {
        let (affinity, key) = (self.affinity.as_mut()?, req.affinity_key?);
        // The keys of a returned endpoint come home as its ramp lets them. A new one has only the keys its ramp let in.
        let warms_up = |i: usize| self.members[i].ramp.is_some_and(|r| !r.is_recovery());
        let usable = |id: EndpointId| {
            let i = id.index();
            let left_out = self.left_out_of[i] == self.decision;
            let stays = self.endpoints.hot[i].gate == Gate::Usable && !req.attempted.contains(&id);
            stays && (!left_out || warms_up(i))
        };
        Some(affinity.look_up(now, key, usable))
    }

    fn send(
        &mut self,
        now: Instant,
        req: &Request<'_>,
        pick: Pick,
        rule: &'static str,
        (class, trial): (usize, bool),
    ) -> Decision {
        let id = pick.endpoint;
        let dispatch = Dispatch {
            endpoint: id,
            at: now,
            first_byte_at: None,
            work: req.work_at(id),
            matched: req.matched_at(id) / self.prefixes.as_ref().map_or(1.0, |p| p.trust(id)),
            model: req.model,
            start_s: req.start_s(id) + self.picker.wait_s(now, id, &self.endpoints),
            predicted: self.picker.predict(now, id, req, &self.endpoints),
            trial,
            tenant: req.tenant,
            beside: (self.in_flight.len() as u32 + 1, self.endpoints.hot[id.index()].in_flight + 1),
            traced: self.traced(id, req, class),
        };
        self.in_use = true;
        let key = self.in_flight.insert(dispatch);
        let member = &mut self.members[id.index()];
        if let Some(ramp) = &mut member.ramp {
            ramp.on_dispatch();
        }
        self.tell_adapter(req.model, id, true);
        if self.counts_tenants() {
            self.tenants.on_dispatch(req.tenant, req.weight(), id);
        }
        let hot = &mut self.endpoints.hot[id.index()];
        hot.in_flight += 1;
        hot.pending += 1;
        hot.rate.on_event(now);
        self.endpoints.stats[id.index()].on_dispatch();
        self.log_in_flight(now, id);
        self.tell_dispatch(now, key, &dispatch);
        self.picker.on_event(now, id, &EndpointEvent::Dispatched(&dispatch), &self.endpoints);
        self.refresh(now, id);
        Decision::Send { ticket: Ticket { key, endpoint: id, trial }, rule, detail: pick.reason }
    }

    /// How long an attempt waits for its first byte before another is made beside it, where the pool hedges: the quantile of what was seen,
    /// once that is 20 answers.
    pub fn hedge_after(&self) -> Option<Duration> {
        self.cfg.retry.hedge?;
        self.first_bytes.value().filter(|_| self.first_bytes.samples() >= 20).map(duration_from_secs)
    }

    /// Requests in flight, over all endpoints.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Keys that session affinity remembers.
    pub fn affinity_keys(&self) -> usize {
        self.affinity.as_ref().map_or(0, Affinity::len)
    }

    /// What is remembered of prompts, where the pool remembers any.
    pub fn prefixes(&self) -> Option<&PrefixIndex> {
        self.prefixes.as_ref()
    }

    /// The settings in force.
    pub fn config(&self) -> &PoolConfig {
        &self.cfg
    }

    /// Everything known of the endpoints.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Endpoints behind `gate`.
    pub fn count(&self, gate: Gate) -> u32 {
        self.gates[gate as usize]
    }

    /// Whether too few endpoints pass their checks.
    pub fn is_panicking(&self) -> bool {
        self.panic
    }

    /// Moves what happened since the last call into `into`.
    pub fn drain_effects(&mut self, into: &mut Vec<Effect>) {
        into.extend(self.effects.drain(..));
    }

    /// Keeps what a report's sample has to be compared with.
    fn log_in_flight(&mut self, now: Instant, id: EndpointId) {
        if self.cfg.load.is_some() {
            self.endpoints.loads[id.index()].on_in_flight(now, self.endpoints.hot[id.index()].in_flight);
        }
    }

    fn push_effect(&mut self, effect: Effect) {
        // Those who wait have to be told; the queue bounds how many that are.
        if self.effects.len() < MAX_EFFECTS || matches!(effect, Effect::Turn(_)) {
            self.effects.push_back(effect);
        }
    }

    /// The dispatch behind `key`, while it is out.
    pub fn dispatch(&mut self, key: RequestKey) -> Option<Dispatch> {
        self.in_flight.get_mut(key).copied()
    }
}
