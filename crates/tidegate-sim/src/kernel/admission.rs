//! A request at the limits: it enters, is spaced out, waits in its tenant's line for a share, or is refused; and gives back what it held.
//!
//! As the proxy's governor does it: what is reserved of tokens is what a request says in `max_tokens`, or what the tenant's answers were learned
//! to be, and is settled once from what was used. A baseline knows the length of every answer.

use std::collections::{BTreeMap, VecDeque};

use tidegate_core::hash::hash_bytes;
use tidegate_core::limit::limits::config::LimitConfig;
use tidegate_core::limit::{Actual, Ask, Limited, Limits, OutputEstimate, Reservation};
use tidegate_core::outcome::{Failure, Verdict};
use tidegate_core::request::Request;
use tidegate_core::time::{Duration, Instant};

use super::Kernel;
use super::governance::Governance;
use super::queue::Due;
use super::setup::Source;
use crate::engine::EngineRequest;

/// Requests of one tenant that wait for a share.
const MAX_WAITING: usize = 1000;
/// Tenants whose answers' length is learned, as in the proxy.
const MAX_LEARNED: usize = 10_000;
/// Time between two askings where shares do not say.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// A tenant of the run.
#[derive(Debug)]
pub(super) struct Tenant {
    /// Its place in the tally; `None` where what it got is not told apart.
    party: Option<usize>,
    /// Its name and hash; empty and 0 where nobody is told apart.
    name: String,
    hash: u64,
    weight: f64,
    class: Option<String>,
    priority: u8,
}

impl Tenant {
    /// The tenants of a source, in the order of its places.
    pub(super) fn all(source: &Source) -> Vec<Self> {
        let parties = match source {
            Source::Tenants { parties, .. } => parties,
            Source::Trace(recorded) => return Self::clients(recorded.clients),
            _ => return Vec::new(),
        };
        let of = |(place, party): (usize, &super::setup::Party)| {
            let (weight, class) = (party.weight, party.priority.clone());
            let tenant = move |name: String| Self {
                party: Some(place),
                hash: hash_bytes(name.as_bytes()),
                name,
                weight,
                class: class.clone(),
                priority: 0,
            };
            party.names().map(tenant).collect::<Vec<_>>()
        };
        parties.iter().enumerate().flat_map(of).collect()
    }

    /// Those of a trace, where it has more than one.
    fn clients(count: u32) -> Vec<Self> {
        let tenant = |k| {
            let name = format!("client-{k}");
            let hash = hash_bytes(name.as_bytes());
            Self { party: None, name, hash, weight: 1.0, class: None, priority: 0 }
        };
        if count < 2 { Vec::new() } else { (0..count).map(tenant).collect() }
    }

    /// Takes its priority from the queue's classes, or becomes one of the crowd.
    pub(super) fn come_under(&mut self, governance: &Governance) {
        let last = governance.classes.len().saturating_sub(1);
        let place = governance.classes.iter().position(|c| Some(c) == self.class.as_ref()).unwrap_or(last);
        self.priority = u8::try_from(place).unwrap_or(u8::MAX);
        if !governance.told_apart {
            (self.name, self.hash, self.weight, self.priority) = (String::new(), 0, 1.0, 0);
        }
    }

    /// What the pool is told of its request.
    pub(super) fn request<'a>(&self, known: Request<'a>) -> Request<'a> {
        Request { tenant: self.hash, tenant_weight: self.weight, priority: self.priority, ..known }
    }
}

/// The limits of one gateway.
#[derive(Debug)]
pub(super) struct Governor {
    pub(super) limits: Limits,
    /// Whether there is anything to reserve or learn.
    is_on: bool,
    /// What answers are expected to be; `None` where that is known.
    lengths: Option<OutputEstimate>,
    waits: Vec<(String, Duration)>,
    /// Baseline: windows in place of the limits.
    windows: Option<Windows>,
    /// Those who wait for a share of their tenant, and until when.
    lines: BTreeMap<u32, VecDeque<(u32, Instant)>>,
    /// Whether their next asking is in the queue.
    is_due: bool,
    pub(super) naive_attempts: Option<u32>,
}

impl Governor {
    pub(super) fn new(governance: &Governance) -> Self {
        Self {
            limits: Limits::new(Instant::ORIGIN, &governance.limits),
            is_on: !(governance.limits.rules.is_empty() && governance.limits.concurrency.is_empty()),
            lengths: (!governance.known_lengths).then(|| OutputEstimate::new(MAX_LEARNED)),
            waits: governance.waits.clone(),
            windows: governance.windows.then(|| Windows::new(governance)),
            lines: BTreeMap::new(),
            is_due: false,
            naive_attempts: governance.naive_attempts,
        }
    }

    /// Output tokens to expect of a request of `tenant` that says `max_tokens`.
    fn expected(&self, tenant: &str, request: &EngineRequest, max_tokens: Option<u32>) -> f64 {
        match &self.lengths {
            None => f64::from(request.output_tokens),
            Some(lengths) if self.is_on => lengths.tokens_for(tenant, "", f64::from(request.prompt_tokens), max_tokens),
            Some(_) => f64::from(max_tokens.unwrap_or(0)),
        }
    }

    /// How long a request that was refused so may wait.
    fn wait(&self, limited: &Limited) -> Option<Duration> {
        let wait = self.waits.iter().find(|(rule, _)| *rule == limited.rule);
        wait.filter(|_| !limited.terminal).map(|(_, wait)| *wait)
    }
}

/// Windows that begin anew every period: what a name used of the present one, by limit and name.
#[derive(Debug)]
struct Windows {
    governance: Governance,
    used: BTreeMap<(usize, String), (u64, f64)>,
}

impl Windows {
    fn new(governance: &Governance) -> Self {
        Self { governance: governance.clone(), used: BTreeMap::new() }
    }

    /// Takes what `ask` asks from every limit, or nothing from any.
    fn take(&mut self, now: Instant, ask: &Ask<'_>) -> bool {
        let mut all = Vec::new();
        for (place, rule) in self.governance.limits.rules.iter().enumerate() {
            let LimitConfig::Rate(cfg) = &rule.limit else { continue };
            let name = ask.name(cfg.scope).to_owned();
            let amount = cfg.amounts.iter().find(|(n, _)| *n == name).map_or(cfg.amount, |(_, a)| *a);
            let window = (now.as_secs_f64() / cfg.period.as_secs_f64().max(1e-9)) as u64;
            let key = (place, name);
            let used = self.used.get(&key).filter(|(w, _)| *w == window).map_or(0.0, |(_, used)| *used);
            let used = used + ask.amount(rule.quantity);
            if used > amount {
                return false;
            }
            all.push((key, (window, used)));
        }
        self.used.extend(all);
        true
    }
}

impl Kernel<'_> {
    /// The place of the party that sent the request in `slot`.
    pub(super) fn party(&self, slot: u32) -> Option<usize> {
        self.tenants.get(self.active[slot as usize].tenant as usize).and_then(|t| t.party)
    }

    /// A request that has just arrived asks the limits.
    pub(super) fn govern(&mut self, slot: u32) {
        let a = &mut self.active[slot as usize];
        let (gateway, tenant) = (a.gateway, a.tenant);
        let Some(g) = self.governors.get_mut(gateway as usize) else { return self.dispatch(slot) };
        let name = self.tenants.get(tenant as usize).map_or("", |t| t.name.as_str());
        a.expected = g.expected(name, &a.request, self.setup.max_tokens);
        let ask = ask(name, &a.request, a.expected);
        if let Some(windows) = &mut g.windows {
            return if windows.take(self.now, &ask) { self.dispatch(slot) } else { self.turn_away(slot) };
        }
        match g.limits.reserve(self.now, &ask) {
            Ok(held) => self.enter(slot, held),
            Err(limited) => {
                let wait = g.wait(&limited);
                let line = g.lines.entry(tenant).or_default();
                match wait.filter(|_| line.len() < MAX_WAITING) {
                    Some(wait) => {
                        line.push_back((slot, self.now + wait));
                        self.plan_shares(gateway);
                    }
                    None => self.turn_away(slot),
                }
            }
        }
    }

    /// Has what it asked for: it goes to the pool, at once or when it is spaced out to.
    fn enter(&mut self, slot: u32, held: Reservation) {
        let at = held.not_before();
        self.active[slot as usize].held = Some(held);
        if at > self.now { self.queue.push(at, Due::Enter(slot)) } else { self.dispatch(slot) }
    }

    fn turn_away(&mut self, slot: u32) {
        self.active[slot as usize].verdict = Verdict::Failed(Failure::Status);
        self.tally.shed += 1;
        self.finish(slot);
    }

    /// Makes sure that those in line ask again when shares change.
    fn plan_shares(&mut self, gateway: u32) {
        let g = &mut self.governors[gateway as usize];
        if g.is_due || g.lines.values().all(VecDeque::is_empty) {
            return;
        }
        g.is_due = true;
        let at = g.limits.next_tick_at().filter(|at| *at > self.now).unwrap_or(self.now + ASK_AGAIN);
        self.queue.push(at, Due::Shares(gateway));
    }

    /// The heads of all lines ask again; one that gets its share lets the next ask.
    pub(super) fn on_shares(&mut self, gateway: u32) {
        let now = self.now;
        let (mut enter, mut gone) = (Vec::new(), Vec::new());
        let g = &mut self.governors[gateway as usize];
        g.is_due = false;
        for (tenant, line) in &mut g.lines {
            let name = self.tenants.get(*tenant as usize).map_or("", |t| t.name.as_str());
            while let Some(&(slot, until)) = line.front() {
                let waits = &self.active[slot as usize];
                let ask = ask(name, &waits.request, waits.expected);
                if until < now {
                    gone.push(slot);
                } else if let Ok(held) = g.limits.reserve(now, &ask) {
                    enter.push((slot, held));
                } else {
                    // Those behind want as much: the tenant's whole need is seen.
                    g.limits.want(now, &ask);
                    break;
                }
                line.pop_front();
            }
        }
        enter.into_iter().for_each(|(slot, held)| self.enter(slot, held));
        gone.into_iter().for_each(|slot| self.turn_away(slot));
        self.plan_shares(gateway);
    }

    /// The first byte of the answer is here: limits that follow response times learn.
    pub(super) fn on_begun(&mut self, slot: u32) {
        let a = &self.active[slot as usize];
        if let Some(g) = self.governors.get_mut(a.gateway as usize)
            && g.limits.follows_responses()
        {
            g.limits.on_response(self.now, self.now.since(a.arrived), false);
        }
    }

    /// Gives back what the request in `slot` holds and did not use.
    pub(super) fn leave(&mut self, slot: u32) {
        let a = &mut self.active[slot as usize];
        let Some(g) = self.governors.get_mut(a.gateway as usize) else { return };
        if let Some(lengths) = g.lengths.as_mut().filter(|_| g.is_on && a.verdict == Verdict::Success) {
            let name = self.tenants.get(a.tenant as usize).map_or("", |t| t.name.as_str());
            lengths.on_output(name, "", f64::from(a.request.prompt_tokens), f64::from(a.tokens));
        }
        let Some(held) = a.held.take() else { return };
        if a.first_at.is_none() && a.verdict != Verdict::Success {
            return g.limits.release(self.now, held);
        }
        let (prompt_tokens, output_tokens) = (f64::from(a.request.prompt_tokens), f64::from(a.tokens));
        g.limits.settle(self.now, held, &Actual { prompt_tokens, output_tokens, cost: prompt_tokens + output_tokens });
    }
}

fn ask<'a>(tenant: &'a str, request: &EngineRequest, output_tokens: f64) -> Ask<'a> {
    let prompt_tokens = f64::from(request.prompt_tokens);
    Ask { tenant, prompt_tokens, output_tokens, cost: prompt_tokens + output_tokens, ..Ask::default() }
}
