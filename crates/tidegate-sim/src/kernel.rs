//! Virtual time: the pool that runs live, engine models, and everything between them as events.
//!
//! One run is one policy and one seed. The decisions are those of [`tidegate_core::pool::Pool`], called as the proxy calls it: admit, tell
//! the first byte, tell progress every 0.5 s, settle once. Three streams of the seed are kept apart (engines' background, arrivals,
//! choice), so policies are compared on the same weather. An idle hour costs nothing; a request costs a few heap entries.

mod admission;
mod autoscaler;
mod crowd;
pub mod elastic;
mod endpoint;
mod errands;
mod fleet;
pub mod governance;
mod life;
mod queue;
pub mod setup;
mod signals;
mod source;
mod timeline;
mod turns;

pub use timeline::{Point, Sample, Timeline};

use std::collections::{BTreeMap, VecDeque};

use tidegate_core::balance::{Picker, registry};
use tidegate_core::event::{Effect, Event};
use tidegate_core::id::EndpointId;
use tidegate_core::limit::Reservation;
use tidegate_core::load::LoadReport;
use tidegate_core::outcome::{Failure, Verdict};
use tidegate_core::pool::config::PoolConfig;
use tidegate_core::pool::{Pool, Ticket};
use tidegate_core::queue::{Waiter, WaiterId};
use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant};

use crate::engine::{Detail, Emission, EngineRequest, RequestId};
use crate::tally::Tally;
use admission::{Governor, Tenant};
use endpoint::Endpoint;
use errands::Probe;
use fleet::Fleet;
use governance::Governance;
use queue::{Due, Queue};
use setup::{Setup, Source};
use source::{Coming, Feed};

/// Time between two progress samples of a stream's tokens, as live.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Stream of the seed from which policies choose, and the one that spreads requests over gateways.
const CHOICE_STREAM: u64 = 3;
const ROUTE_STREAM: u64 = 4;
/// Stream from which it is drawn what requests search for.
const QUERY_STREAM: u64 = 8;
/// A run ends this long after its last arrival, whatever is still out; that counts as failed.
const PATIENCE: Duration = Duration::from_secs(6 * 3600);

/// A gateway: one replica of Tidegate.
struct Gateway {
    pool: Pool,
    /// The site of each endpoint of the pool, and the endpoint of each site that is in it.
    sites: Vec<u32>,
    ids: Vec<Option<EndpointId>>,
    /// Status pages that were read and are on their way, oldest first.
    reports: VecDeque<Vec<Option<LoadReport>>>,
    /// Slots of the requests that wait.
    waiting: BTreeMap<WaiterId, u32>,
    /// The instant for which the pool's next deadline is in the queue.
    deadline: Option<Instant>,
}

/// A request between arrival and end.
struct Active {
    arrived: Instant,
    request: EngineRequest,
    /// The blocks of its prompt.
    prompt: (u32, u32),
    /// Prompt tokens that its engine found in its cache.
    cached: u32,
    gateway: u32,
    ticket: Option<Ticket>,
    /// Its place in the pool's queue, while it waits.
    waiter: Option<Waiter>,
    /// Its endpoint, what its pool calls that, and its id there once it has arrived there.
    site: u32,
    endpoint: EndpointId,
    id: Option<RequestId>,
    first_at: Option<Instant>,
    tokens: u32,
    /// The place of its tenant, and what it holds of the limits.
    tenant: u32,
    held: Option<Reservation>,
    /// Tokens that its answer is expected to have, as limits and the pool's queue see it.
    expected: f64,
    /// Dispatches so far.
    tries: u32,
    /// Breaks off after so many tokens.
    cut_at: Option<u32>,
    /// How the dispatch under way ends, once that is known.
    verdict: Verdict,
    attempted: Vec<EndpointId>,
}

/// A closed loop under way.
struct Rounds {
    clients: u32,
    requests: u32,
    tokens: (u32, u32),
    rounds_left: u32,
    to_ask: u32,
    to_end: u32,
    started: Instant,
}

/// One run.
pub struct Kernel<'s> {
    setup: &'s Setup,
    now: Instant,
    queue: Queue,
    gateways: Vec<Gateway>,
    endpoints: Vec<Endpoint>,
    fleet: Fleet,
    active: Vec<Active>,
    free: Vec<u32>,
    live: usize,
    feed: Feed,
    next: Option<Coming>,
    tenants: Vec<Tenant>,
    /// One per gateway; none where nothing is limited.
    governors: Vec<Governor>,
    last_arrival: Instant,
    rounds: Option<Rounds>,
    route: Rng,
    queries: Rng,
    out: Vec<Emission>,
    effects: Vec<Effect>,
    /// Probes under way, and places of those that are over.
    probes: Vec<Probe>,
    free_probes: Vec<u32>,
    tally: Tally,
    timeline: Option<Timeline>,
}

impl<'s> Kernel<'s> {
    /// A run of `pool` over `setup`; equal seeds see equal arrivals and engines, whatever the policy.
    pub fn new(setup: &'s Setup, pool: &PoolConfig, seed: u64) -> Self {
        Self::ruled(setup, pool, seed, registry::build)
    }

    /// The same with a rule of the caller's in every pool.
    pub fn ruled(
        setup: &'s Setup,
        pool: &PoolConfig,
        seed: u64,
        rule: impl Fn(&PoolConfig) -> Box<dyn Picker>,
    ) -> Self {
        let replicas = setup.replicas.max(1);
        let detail = detail(setup);
        let endpoint = |(i, site)| {
            let own = seed.wrapping_mul(0x1_0000).wrapping_add(i as u64);
            Endpoint::new(site, own, detail, replicas as usize)
        };
        let gateway = |r: u32| {
            let choice = Rng::stream(seed, CHOICE_STREAM + (u64::from(r) << 8)).next_u64();
            let mut made = Pool::with_picker(pool.clone(), setup.check_every.is_some(), choice, rule(pool));
            let (mut sites, mut ids) = (Vec::new(), vec![None; setup.sites.len()]);
            for place in (0..setup.sites.len() as u32).filter(|p| setup.elastic.begins_with(*p)) {
                ids[place as usize] = Some(made.add(Instant::ORIGIN, setup.sites[place as usize].settings()));
                sites.push(place);
            }
            Gateway { pool: made, sites, ids, reports: VecDeque::new(), waiting: BTreeMap::new(), deadline: None }
        };
        Self {
            setup,
            now: Instant::ORIGIN,
            queue: Queue::default(),
            gateways: (0..replicas).map(gateway).collect(),
            endpoints: setup.sites.iter().enumerate().map(endpoint).collect(),
            fleet: Fleet::new(setup, seed),
            active: Vec::new(),
            free: Vec::new(),
            live: 0,
            feed: Feed::new(&setup.source, seed),
            next: None,
            tenants: Tenant::all(&setup.source),
            governors: Vec::new(),
            last_arrival: Instant::ORIGIN,
            rounds: None,
            route: Rng::stream(seed, ROUTE_STREAM),
            queries: Rng::stream(seed, QUERY_STREAM),
            out: Vec::new(),
            effects: Vec::new(),
            probes: Vec::new(),
            free_probes: Vec::new(),
            tally: Tally::of(setup),
            timeline: None,
        }
    }

    /// The same run under limits, as a gateway has them in front of its pools.
    pub fn governed(mut self, governance: &Governance) -> Self {
        self.governors = self.gateways.iter().map(|_| Governor::new(governance)).collect();
        self.tenants.iter_mut().for_each(|t| t.come_under(governance));
        self
    }

    /// Runs to the end.
    pub fn run(mut self) -> Tally {
        self.play();
        self.tally.requests += self.live as u64;
        self.close_fleet(self.tally.ended);
        (0..self.endpoints.len()).for_each(|site| self.count_queries(site));
        self.tally
    }

    fn play(&mut self) {
        self.start();
        loop {
            let due = self.queue.next_at();
            match self.next {
                Some(coming) if due.is_none_or(|d| coming.at < d) => {
                    self.now = coming.at;
                    self.last_arrival = coming.at;
                    self.next = self.feed.next(coming.at, self.setup.stream);
                    self.arrive(&coming);
                }
                None if self.live == 0 && self.rounds.is_none() => break,
                None if self.now > self.last_arrival + PATIENCE => break,
                _ => {
                    let Some((at, what)) = self.queue.pop() else { break };
                    self.now = at;
                    self.on_due(what);
                }
            }
        }
    }

    fn start(&mut self) {
        for g in 0..self.gateways.len() as u32 {
            if self.setup.probes.is_some() {
                self.queue.push(self.now, Due::Poll(g));
            }
            if self.setup.check_every.is_some() {
                // The live gateway takes no traffic before its first checks are done.
                self.on_check(g);
            }
        }
        self.plan_fleet();
        for (i, outage) in self.setup.outages.iter().enumerate() {
            self.queue.push(Instant::ORIGIN + outage.at, Due::Fault(i as u32));
        }
        if self.setup.stream {
            self.queue.push(self.now + PROGRESS_EVERY, Due::Progress);
        }
        if let Source::Closed { clients, requests, rounds, tokens } = self.setup.source {
            let (to_ask, to_end, started) = (0, 0, self.now);
            self.rounds = Some(Rounds { clients, requests, tokens, rounds_left: rounds, to_ask, to_end, started });
            self.next_round();
        }
        self.next = self.feed.next(Instant::ORIGIN, self.setup.stream);
    }

    fn on_due(&mut self, due: Due) {
        match due {
            Due::Engine(site) => self.on_engine(site),
            Due::Reach(slot) => self.reach(slot),
            Due::FirstByte(slot) => self.first_byte(slot),
            Due::End(slot) | Due::Refusal(slot) => self.end(slot),
            Due::Poll(g) => self.on_poll(g),
            Due::Reports(g) => self.on_reports(g),
            Due::Check(g) => self.on_check(g),
            Due::Progress => self.on_progress(),
            Due::Sample => self.on_sample(),
            Due::Fault(i) => self.on_fault(i),
            Due::FaultEnds(i) => self.on_fault_end(i),
            Due::Client => self.ask(),
            Due::Deadline(g) => self.on_pool_deadline(g),
            Due::Probed(place) => self.on_probed(place),
            Due::Enter(slot) => self.dispatch(slot),
            Due::Shares(g) => self.on_shares(g),
            Due::Change(i) => self.on_change(i),
            Due::Scale(i) => self.on_scale(i),
            Due::Ready(site) => self.on_ready(site),
            Due::Grace(site) => self.on_grace(site),
        }
    }

    /// Starts the next round of a closed loop, if one is left.
    fn next_round(&mut self) {
        let Some(r) = &mut self.rounds else { return };
        if r.rounds_left == 0 {
            self.rounds = None;
            return;
        }
        r.rounds_left -= 1;
        (r.to_ask, r.to_end, r.started) = (r.requests, r.requests, self.now);
        for _ in 0..r.clients.min(r.requests) {
            self.queue.push(self.now, Due::Client);
        }
    }

    /// A client of the closed loop asks, if the round has a request left.
    fn ask(&mut self) {
        let Some(r) = self.rounds.as_mut().filter(|r| r.to_ask > 0) else { return };
        r.to_ask -= 1;
        let request = source::request(r.tokens, self.setup.stream);
        self.last_arrival = self.now;
        self.arrive(&Coming { at: self.now, request, tenant: source::NOBODY, prompt: (0, 0) });
    }

    /// A request of the closed loop ended; one that was refused lets its client wait a moment.
    fn on_client_free(&mut self, ok: bool) {
        let Some(r) = &mut self.rounds else { return };
        r.to_end -= 1;
        if r.to_end == 0 {
            self.tally.rounds.push(self.now.secs_since(r.started));
            self.next_round();
        } else if r.to_ask > 0 {
            let wait = if ok { Duration::ZERO } else { Duration::from_millis(100) };
            self.queue.push(self.now + wait, Due::Client);
        }
    }

    fn tell(&mut self, gateway: u32, event: Event) {
        let now = self.now;
        if let Some(g) = self.gateways.get_mut(gateway as usize) {
            g.pool.on_event(now, event);
        }
        self.after_pool(gateway);
    }
}

/// How much engines tell: every token only where answers are streams.
fn detail(setup: &Setup) -> Detail {
    if setup.stream { Detail::EveryToken } else { Detail::FirstAndDone }
}

/// Whether the proxy would try another endpoint after this.
fn is_retryable(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Failed(Failure::Connect | Failure::Reset | Failure::Malformed | Failure::Status)
            | Verdict::Throttled { .. }
    )
}

#[cfg(test)]
mod tests;
