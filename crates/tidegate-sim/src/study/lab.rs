//! A light loop for studies of breakers: the pool that runs live, and endpoints that are nothing but what goes wrong with them.
//!
//! The kernel's engines are there for their load; here a request takes a drawn time and ends as the endpoint's condition says, so that a
//! day of traffic takes seconds. The pool is told what a proxy would tell it: over which connection, first bytes, tokens, ends, probes.
//! Arrivals are Poisson at a rate that a script changes; the same seed gives the same arrivals and incidents to every breaker.

mod endpoint;
mod job;
mod queue;
mod shape;

pub(super) use endpoint::{Condition, Failing};
pub(super) use shape::Shape;

use tidegate_core::breaker::Level;
use tidegate_core::event::{Effect, Event};
use tidegate_core::id::{EndpointId, ProbeId};
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::pool::config::{EndpointConfig, PoolConfig};
use tidegate_core::pool::{Decision, Pool};
use tidegate_core::request::Request;
use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant, duration_from_secs};

use endpoint::Endpoint;
use job::Job;
use queue::{Due, Queue};

/// Streams of a seed: arrivals, what endpoints do, the pools' choice, the script.
const ARRIVALS: u64 = 11;
const ENDPOINTS: u64 = 12;
const CHOICE: u64 = 13;
/// Tenants, of sizes 1, 1/2, 1/3 and so on.
const TENANTS: usize = 8;
/// Time between two samples of tokens.
const TOLD_EVERY: Duration = Duration::from_millis(500);

/// Something a script does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Requests per second and endpoint, from now on.
    Rate(f64),
    /// The condition of one endpoint, or of all.
    Set(Option<u32>, Condition),
    /// Connections of an endpoint are reset with everything on them: all of them, or one.
    Reset(u32, bool),
    /// Whatever is in flight at an endpoint dies, each request at a time of its own within so many seconds.
    Doom(u32, f64),
    /// Requests of a tenant fail everywhere, or no longer.
    Poison(Option<u64>),
}

/// What is known of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Requests that came.
    pub(super) requests: u64,
    /// Requests whose client saw a failure.
    pub(super) failed: u64,
    /// Requests that found an endpoint's slots taken.
    pub(super) refused: u64,
    /// Endpoints that opened while they were not down.
    pub(super) false_trips: u64,
    /// Endpoints that opened while they were down.
    pub(super) true_trips: u64,
    /// Endpoints whose weight was cut while they were not down.
    pub(super) false_cuts: u64,
}

/// What is noted of one endpoint.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) endpoint: u32,
    /// When requests were sent there.
    pub(super) times: Vec<Instant>,
    /// Requests that found its slots taken.
    pub(super) refused: u64,
}

impl Watched {
    /// Watches from now on.
    pub(super) fn new(endpoint: u32) -> Self {
        Self { endpoint, times: Vec::new(), refused: 0 }
    }
}

/// A change of level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turned {
    pub(super) at: Instant,
    pub(super) endpoint: u32,
    pub(super) to: Level,
}

/// How the lab is set up.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The pool, the same in every gateway.
    pub(super) pool: PoolConfig,
    pub(super) endpoints: u32,
    pub(super) gateways: u32,
    pub(super) shape: Shape,
    /// Connections of an endpoint.
    pub(super) connections: u32,
    /// Requests an endpoint serves at once; the next is refused.
    pub(super) slots: u32,
    /// The poisoned tenant's requests keep their endpoint.
    pub(super) sticky: bool,
}

/// The loop.
pub(super) struct Lab<'s> {
    setup: &'s Setup,
    pub(super) now: Instant,
    pools: Vec<Pool>,
    deadlines: Vec<Instant>,
    endpoints: Vec<Endpoint>,
    jobs: Vec<Job>,
    free: Vec<u32>,
    queue: Queue,
    arrivals: Rng,
    weather: Rng,
    /// Requests per second of all gateways.
    rate: f64,
    next_arrival: Instant,
    poisoned: Option<u64>,
    telling: bool,
    effects: Vec<Effect>,
    pub(super) counts: Counts,
    /// Every change of level, where it is wanted.
    pub(super) turned: Vec<Turned>,
    /// When requests arrived at one endpoint, where that is wanted.
    pub(super) watched: Option<Watched>,
}

impl<'s> Lab<'s> {
    pub(super) fn new(setup: &'s Setup, seed: u64) -> Self {
        let pool = |g: u32| {
            let choice = Rng::stream(seed, CHOICE + (u64::from(g) << 8)).next_u64();
            let mut pool = Pool::new(setup.pool.clone(), false, choice);
            for k in 0..setup.endpoints {
                let _ = pool.add(Instant::ORIGIN, EndpointConfig::new(format!("e{k}")));
            }
            pool
        };
        Self {
            setup,
            now: Instant::ORIGIN,
            pools: (0..setup.gateways).map(pool).collect(),
            deadlines: vec![Instant::FAR_FUTURE; setup.gateways as usize],
            endpoints: (0..setup.endpoints).map(|_| Endpoint::new(setup.connections * setup.gateways)).collect(),
            jobs: Vec::new(),
            free: Vec::new(),
            queue: Queue::default(),
            arrivals: Rng::stream(seed, ARRIVALS),
            weather: Rng::stream(seed, ENDPOINTS),
            rate: 0.0,
            next_arrival: Instant::FAR_FUTURE,
            poisoned: None,
            telling: false,
            effects: Vec::new(),
            counts: Counts::default(),
            turned: Vec::new(),
            watched: None,
        }
    }

    /// The pool of one gateway.
    pub(super) fn pool(&self, gateway: usize) -> &Pool {
        &self.pools[gateway]
    }

    /// Everything that happens up to `until`.
    pub(super) fn run(&mut self, until: Instant) {
        loop {
            let due = self.queue.next_at();
            if self.next_arrival <= until && due.is_none_or(|d| self.next_arrival < d) {
                self.now = self.next_arrival;
                self.next_arrival = self.now + duration_from_secs(self.arrivals.exponential(1.0 / self.rate));
                self.arrive();
            } else if due.is_some_and(|d| d <= until) {
                let Some((at, what)) = self.queue.pop() else { break };
                self.now = at;
                self.on_due(what);
            } else {
                break;
            }
        }
        self.now = until;
    }

    /// Does what a script says, now.
    pub(super) fn act(&mut self, act: Act) {
        match act {
            Act::Rate(per_endpoint) => {
                self.rate = per_endpoint * f64::from(self.setup.endpoints);
                let wait = if self.rate > 0.0 { self.arrivals.exponential(1.0 / self.rate) } else { 1e9 };
                self.next_arrival = self.now + duration_from_secs(wait);
            }
            Act::Set(Some(k), condition) => self.set(k, condition),
            Act::Set(None, condition) => (0..self.setup.endpoints).for_each(|k| self.set(k, condition)),
            Act::Reset(k, all) => self.reset(k, all),
            Act::Doom(k, within_s) => self.doom(k, within_s),
            Act::Poison(tenant) => self.poisoned = tenant,
        }
    }

    fn set(&mut self, k: u32, condition: Condition) {
        self.endpoints[k as usize].condition = condition;
        if condition.refuse >= 1.0 {
            self.reset(k, true);
        }
    }

    fn reset(&mut self, k: u32, all: bool) {
        let one = self.weather.below((self.setup.connections * self.setup.gateways) as usize) as u32;
        self.endpoints[k as usize].close(if all { None } else { Some(one) });
        for slot in 0..self.jobs.len() as u32 {
            let job = &self.jobs[slot as usize];
            if job.is_at(k) && (all || job.place == one) {
                let failure = if job.began { Failure::Truncated } else { Failure::Reset };
                self.end(slot, Verdict::Failed(failure));
            }
        }
    }

    fn doom(&mut self, k: u32, within_s: f64) {
        for slot in 0..self.jobs.len() as u32 {
            let job = &mut self.jobs[slot as usize];
            if job.is_at(k) {
                // What was due for it is void.
                job.turn = job.turn.wrapping_add(1);
                let failure = if job.began { Failure::Truncated } else { Failure::Reset };
                let at = self.now + duration_from_secs(self.weather.uniform(0.0, within_s));
                self.queue.push(at, Due::End(slot, job.turn, Verdict::Failed(failure)));
            }
        }
    }

    fn on_due(&mut self, due: Due) {
        match due {
            Due::FirstByte(slot, turn) if self.jobs[slot as usize].turn == turn => self.first_byte(slot, turn),
            Due::End(slot, turn, verdict) if self.jobs[slot as usize].turn == turn => self.end_of(slot, verdict),
            Due::FirstByte(..) | Due::End(..) => {}
            Due::Probed(gateway, endpoint, probe, passed) => {
                let event = Event::Probed { endpoint: EndpointId(endpoint), probe: ProbeId(probe), passed };
                self.pools[gateway as usize].on_event(self.now, event);
                self.attend(gateway);
            }
            Due::Deadline(g) => {
                if self.deadlines[g as usize] <= self.now {
                    self.deadlines[g as usize] = Instant::FAR_FUTURE;
                    self.pools[g as usize].on_deadline(self.now);
                    self.attend(g);
                }
            }
            Due::Tokens => self.tell_tokens(),
        }
    }

    fn arrive(&mut self) {
        self.counts.requests += 1;
        let gateway = if self.pools.len() > 1 { self.arrivals.below(self.pools.len()) as u32 } else { 0 };
        let tenant = tenant(&mut self.arrivals);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(Job::default());
            (self.jobs.len() - 1) as u32
        });
        let job = &mut self.jobs[slot as usize];
        *job = Job { turn: job.turn.wrapping_add(1), gateway, tenant, ..Job::default() };
        self.dispatch(slot);
    }

    fn dispatch(&mut self, slot: u32) {
        let now = self.now;
        let job = &mut self.jobs[slot as usize];
        let sticky = self.setup.sticky && self.poisoned == Some(job.tenant);
        let request = Request {
            tenant: job.tenant,
            affinity_key: sticky.then_some(job.tenant),
            attempted: &job.attempted[..usize::from(job.attempts)],
            ..Request::default()
        };
        let gateway = job.gateway;
        let Decision::Send { ticket, .. } = self.pools[gateway as usize].admit(now, &request, None) else {
            self.counts.failed += 1;
            self.free.push(slot);
            return self.attend(gateway);
        };
        let k = ticket.endpoint().0;
        job.endpoint = k;
        let key = ticket.key();
        job.ticket = Some(ticket);
        let (turn, poisoned) = (job.turn, self.poisoned == Some(job.tenant));
        let e = &mut self.endpoints[k as usize];
        let sent = e.serve(now, gateway * self.setup.connections, self.setup, poisoned, &mut self.weather);
        self.counts.refused += u64::from(sent.full);
        if let Some(watched) = self.watched.as_mut().filter(|w| w.endpoint == k) {
            watched.times.push(now);
            watched.refused += u64::from(sent.full);
        }
        let job = &mut self.jobs[slot as usize];
        (job.place, job.inside, job.sent_at) = (sent.place, !sent.full, now);
        if sent.stream && !self.telling {
            self.telling = true;
            self.queue.push(now + TOLD_EVERY, Due::Tokens);
        }
        if let Some(s) = sent.first_byte_s {
            self.queue.push(now + duration_from_secs(s), Due::FirstByte(slot, turn));
            self.jobs[slot as usize].rest_s = sent.end_s - s;
        } else {
            self.queue.push(now + duration_from_secs(sent.end_s), Due::End(slot, turn, sent.verdict));
        }
        self.jobs[slot as usize].verdict = sent.verdict;
        self.pools[gateway as usize].on_event(now, Event::Connected { key, connection: sent.connection });
        self.attend(gateway);
    }

    fn first_byte(&mut self, slot: u32, turn: u32) {
        let job = &mut self.jobs[slot as usize];
        let c = self.endpoints[job.endpoint as usize].condition;
        if let Some(until) = c.silent_until(self.now) {
            let timeout = job.sent_at + duration_from_secs(self.setup.shape.timeout_s());
            let due = if until < timeout { Due::FirstByte(slot, turn) } else { Due::End(slot, turn, TIMED_OUT) };
            return self.queue.push(until.min(timeout).max(self.now), due);
        }
        job.began = true;
        let Some(key) = job.ticket.as_ref().map(tidegate_core::pool::Ticket::key) else { return };
        let gateway = job.gateway;
        if job.rest_s <= 0.0 {
            // The end says it all.
            let verdict = job.verdict;
            return self.end_of(slot, verdict);
        }
        self.queue.push(self.now + duration_from_secs(job.rest_s), Due::End(slot, turn, job.verdict));
        self.pools[gateway as usize].on_event(self.now, Event::FirstByte(key));
        self.attend(gateway);
    }

    /// An answer is whole, unless its endpoint is silent.
    fn end_of(&mut self, slot: u32, verdict: Verdict) {
        let job = &self.jobs[slot as usize];
        let silent = self.endpoints[job.endpoint as usize].condition.silent_until(self.now);
        let waits = !job.began && matches!(verdict, Verdict::Failed(Failure::Status) | Verdict::ClientError);
        if let Some(until) = silent.filter(|_| waits) {
            // Nothing is answered, failures neither.
            let timeout = job.sent_at + duration_from_secs(self.setup.shape.timeout_s());
            let verdict = if until < timeout { verdict } else { TIMED_OUT };
            return self.queue.push(until.min(timeout).max(self.now), Due::End(slot, job.turn, verdict));
        }
        match silent.filter(|_| job.began && verdict == Verdict::Success && job.rest_s > 0.0) {
            Some(until) if until < self.now + Duration::from_secs(60) => {
                self.queue.push(until, Due::End(slot, job.turn, verdict));
            }
            Some(_) => self.queue.push(self.now + Duration::from_secs(30), Due::End(slot, job.turn, STALLED)),
            None => self.end(slot, verdict),
        }
    }

    fn end(&mut self, slot: u32, verdict: Verdict) {
        let job = &mut self.jobs[slot as usize];
        let Some(ticket) = job.ticket.take() else { return };
        job.turn = job.turn.wrapping_add(1);
        let (gateway, k, trial) = (job.gateway, job.endpoint, ticket.is_trial());
        self.endpoints[k as usize].on_end(job.inside);
        self.pools[gateway as usize].settle(self.now, ticket, Outcome::new(verdict));
        let failed = matches!(verdict, Verdict::Failed(_));
        let job = &mut self.jobs[slot as usize];
        let most = (self.setup.pool.retry.max_attempts as usize).min(job.attempted.len() + 1);
        let again = failed && !job.began && (trial || usize::from(job.attempts) + 1 < most);
        if again && usize::from(job.attempts) < job.attempted.len() {
            job.attempted[usize::from(job.attempts)] = EndpointId(k);
            job.attempts += 1;
            self.attend(gateway);
            return self.dispatch(slot);
        }
        self.counts.failed += u64::from(failed);
        self.free.push(slot);
        self.attend(gateway);
    }

    /// Does what a pool asks for, and wakes it in time.
    fn attend(&mut self, gateway: u32) {
        let g = gateway as usize;
        let mut effects = std::mem::take(&mut self.effects);
        self.pools[g].drain_effects(&mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Probe { endpoint, probe, timeout } => {
                    let e = &self.endpoints[endpoint.index()];
                    let (passed, takes) = e.condition.probe(self.now, timeout, &mut self.weather);
                    self.queue.push(self.now + takes, Due::Probed(gateway, endpoint.0, probe.0, passed));
                }
                Effect::Redispatch(key) => {
                    let waits = |j: &Job| j.gateway == gateway && !j.began && j.is(key);
                    if let Some(slot) = self.jobs.iter().position(waits) {
                        self.end(slot as u32, TIMED_OUT);
                    }
                }
                Effect::Breaker { endpoint, from, to, .. } => self.on_turned(endpoint.0, from, to),
                _ => {}
            }
        }
        if self.effects.capacity() == 0 {
            self.effects = effects;
        }
        if let Some(at) = self.pools[g].next_deadline().filter(|&at| at < self.deadlines[g]) {
            self.deadlines[g] = at;
            self.queue.push(at.max(self.now), Due::Deadline(gateway));
        }
    }

    fn on_turned(&mut self, endpoint: u32, from: Level, to: Level) {
        let down = self.endpoints[endpoint as usize].condition.down;
        let closed = matches!(from, Level::Full | Level::Reduced);
        match to {
            Level::Open if closed && down => self.counts.true_trips += 1,
            Level::Open if closed => self.counts.false_trips += 1,
            Level::Reduced if !down => self.counts.false_cuts += 1,
            _ => {}
        }
        self.turned.push(Turned { at: self.now, endpoint, to });
    }

    fn tell_tokens(&mut self) {
        let running = self.jobs.iter().filter(|j| j.began && j.ticket.is_some());
        let mut streams = vec![0u64; self.endpoints.len() * self.pools.len()];
        running.for_each(|j| streams[j.gateway as usize * self.endpoints.len() + j.endpoint as usize] += 1);
        if streams.iter().all(|&n| n == 0) {
            self.telling = false;
            return;
        }
        for (place, &n) in streams.iter().enumerate().filter(|(_, n)| **n > 0) {
            let (g, k) = (place / self.endpoints.len(), place % self.endpoints.len());
            let silent = self.endpoints[k].condition.silent_until(self.now).is_some();
            let tokens = if silent { 0 } else { 10 * n };
            self.pools[g].on_event(self.now, Event::Progress { endpoint: EndpointId(k as u32), tokens });
            self.attend(g as u32);
        }
        self.queue.push(self.now + TOLD_EVERY, Due::Tokens);
    }
}

/// The first byte did not come in time.
const TIMED_OUT: Verdict = Verdict::Failed(Failure::FirstByteTimeout);
/// An answer stands still.
const STALLED: Verdict = Verdict::Failed(Failure::Stalled);

/// One of [`TENANTS`], the k-th with a part of 1/k.
fn tenant(rng: &mut Rng) -> u64 {
    // 1/1 + 1/2 + ... + 1/8
    let mut x = rng.unit() * 2.717_857_142_857;
    for k in 1..=TENANTS {
        x -= 1.0 / k as f64;
        if x < 0.0 {
            return k as u64;
        }
    }
    TENANTS as u64
}
