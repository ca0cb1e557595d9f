//! The limits of the process: reserved before a request enters a pool, settled once when it is over.
//!
//! Limits span pools, so they have a lock of their own, taken before a pool's and never together with it or across an await. What was
//! reserved is a [`Budget`]: dropping it settles it, so a client that leaves at whatever point gives back what it did not use.

use crate::clock::Clock;
use crate::error::{Limit, ProxyError};
use crate::pool::PoolHandle;
use crate::tenant::Tenant;
use crate::usage::Usage;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tidegate_config::Config;
use tidegate_core::limit::limits::config::LimitsConfig;
use tidegate_core::limit::{Actual, Ask, Limited, Limits, OutputEstimate, Quantity, Reservation};
use tidegate_core::time::Instant;

/// Tenant and model pairs whose answers' length is learned.
const MAX_LEARNED: usize = 10_000;
/// Requests of one tenant that wait for a share, and tenants that do.
const MAX_WAITING: usize = 1000;
const MAX_LINES: usize = 10_000;

/// What a request asks of the limits.
pub(crate) struct Need {
    pub(crate) tenant: Arc<str>,
    pub(crate) model: String,
    pub(crate) route: Arc<str>,
    pub(crate) prompt_tokens: f64,
    pub(crate) output_tokens: f64,
}

impl Need {
    fn ask(&self) -> Ask<'_> {
        Ask {
            tenant: &self.tenant,
            model: &self.model,
            route: &self.route,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            cost: self.prompt_tokens + self.output_tokens,
        }
    }
}

/// What is left, for `ratelimit-*` headers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Left {
    pub(crate) rule: String,
    pub(crate) limit: f64,
    pub(crate) remaining: f64,
    pub(crate) reset: Duration,
}

/// A line of requests of one tenant that wait for its share; the mutex is fair, so the first to come is at the head.
#[derive(Debug, Default)]
struct Line {
    head: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

struct State {
    limits: Limits,
    lengths: OutputEstimate,
}

/// All limits of the process.
pub struct Governor {
    state: Mutex<State>,
    clock: Clock,
    /// What the config in force makes of it.
    settings: ArcSwap<Settings>,
    lines: Mutex<HashMap<Arc<str>, Arc<Line>>>,
}

/// What follows from a config, read without the lock.
#[derive(Debug, Default)]
struct Settings {
    /// Whether there is anything to reserve or learn.
    is_on: bool,
    counts_tokens: bool,
    follows_responses: bool,
    /// Longest wait for a share, by rule; absent: refused at once.
    waits: HashMap<String, Duration>,
}

impl Settings {
    fn new(config: &Config, cfg: &LimitsConfig, limits: &Limits) -> Self {
        Self {
            is_on: !cfg.rules.is_empty() || !cfg.concurrency.is_empty(),
            counts_tokens: cfg.rules.iter().any(|r| r.quantity != Quantity::Requests),
            follows_responses: limits.follows_responses(),
            waits: waits_of(config),
        }
    }
}

impl std::fmt::Debug for Governor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Governor").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The limits of a config: those of the gateway, and those of each pool, which count what is routed there.
fn limits_of(config: &Config) -> LimitsConfig {
    let of_pools = config.pools.iter().flat_map(|p| p.rate_limits.iter().map(|l| l.core_for(&p.name)));
    LimitsConfig {
        rules: config.rate_limits.iter().map(|l| l.core().clone()).chain(of_pools).collect(),
        concurrency: config.concurrency_limits.iter().map(|l| l.core().clone()).collect(),
    }
}

/// How long a request waits for a share, by the name of the limit.
fn waits_of(config: &Config) -> HashMap<String, Duration> {
    let own = config.rate_limits.iter().map(|l| (l.core().name.clone(), l.queue_wait()));
    let of_pools =
        config.pools.iter().flat_map(|p| p.rate_limits.iter().map(|l| (l.core_for(&p.name).name, l.queue_wait())));
    own.chain(of_pools).filter_map(|(name, wait)| Some((name, wait?))).collect()
}

impl Governor {
    pub(crate) fn new(config: &Config, clock: Clock) -> Self {
        let cfg = limits_of(config);
        let limits = Limits::new(clock.now(), &cfg);
        Self {
            settings: ArcSwap::from_pointee(Settings::new(config, &cfg, &limits)),
            state: Mutex::new(State { limits, lengths: OutputEstimate::new(MAX_LEARNED) }),
            clock,
            lines: Mutex::new(HashMap::new()),
        }
    }

    /// Takes the limits of another config. Those that stay keep their balances, and whoever waits goes on waiting.
    pub(crate) fn configure(&self, config: &Config) {
        let cfg = limits_of(config);
        let mut state = self.state.lock();
        state.limits.configure(self.clock.now(), &cfg);
        self.settings.store(Arc::new(Settings::new(config, &cfg, &state.limits)));
    }

    /// Runs `f` under the lock of the limits. Never await in it.
    pub fn with<T>(&self, f: impl FnOnce(&mut Limits, Instant) -> T) -> T {
        let mut state = self.state.lock();
        let now = self.clock.now();
        f(&mut state.limits, now)
    }

    /// Output tokens to expect of a request.
    pub(crate) fn expected_output(&self, tenant: &str, model: &str, max_tokens: Option<u32>) -> f64 {
        if !self.settings.load().is_on {
            return f64::from(max_tokens.unwrap_or(0));
        }
        self.state.lock().lengths.tokens_for(tenant, model, max_tokens)
    }

    /// Whether answers have to be read for what they used.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.settings.load().counts_tokens
    }

    /// Reserves what a request needs, waiting where a limit says so.
    pub(crate) async fn reserve(self: &Arc<Self>, need: Need) -> Result<Budget, ProxyError> {
        if !self.settings.load().is_on {
            return Ok(Budget { governor: Arc::clone(self), need, held: None, used: Used::Nothing, whole: false });
        }
        let held = match self.with(|limits, now| limits.reserve(now, &need.ask())) {
            Ok(held) => held,
            Err(limited) => self.wait_for_share(&need, limited).await?,
        };
        let budget = Budget { governor: Arc::clone(self), need, held: Some(held), used: Used::Nothing, whole: false };
        let wait = budget.held.as_ref().map_or(Duration::ZERO, |h| h.not_before().since(self.clock.now()));
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(budget)
    }

    /// Keeps a request that its tenant's share refused at the head of the tenant's line, and asks again at each tick.
    async fn wait_for_share(&self, need: &Need, limited: Limited) -> Result<Reservation, ProxyError> {
        let refuse = |limited: Limited| ProxyError::Limited(Limit::of(limited, self.left(need)));
        let Some(wait) = self.settings.load().waits.get(&limited.rule).copied().filter(|_| !limited.terminal) else {
            return Err(refuse(limited));
        };
        let Some(line) = self.line(&need.tenant) else { return Err(refuse(limited)) };
        let _place = Waiting::new(&line);
        if line.waiting.load(Relaxed) > MAX_WAITING {
            return Err(refuse(limited));
        }
        let mut last = limited;
        let granted = tokio::time::timeout(wait, async {
            let _head = line.head.lock().await;
            loop {
                let (result, next) = self.with(|limits, now| {
                    let result = limits.reserve(now, &need.ask());
                    if result.is_err() {
                        // Those behind want as much, so that the tenant's whole need is seen and not only its head's.
                        limits.want(now, &need.ask());
                    }
                    (result, limits.next_tick_at())
                });
                match result {
                    Ok(held) => break held,
                    Err(limited) => last = limited,
                }
                let tick = next.map_or(Duration::from_millis(10), |at| at.since(self.clock.now()));
                tokio::time::sleep(tick.max(Duration::from_millis(1))).await;
            }
        });
        granted.await.map_err(|_| refuse(last))
    }

    fn line(&self, tenant: &Arc<str>) -> Option<Arc<Line>> {
        let mut lines = self.lines.lock();
        if lines.len() >= MAX_LINES {
            lines.retain(|_, line| line.waiting.load(Relaxed) > 0);
        }
        if lines.len() >= MAX_LINES && !lines.contains_key(tenant) {
            return None;
        }
        Some(Arc::clone(lines.entry(Arc::clone(tenant)).or_default()))
    }

    fn left(&self, need: &Need) -> Option<Left> {
        self.with(|limits, now| {
            let h = limits.headroom_at(now, &need.ask())?;
            Some(Left { rule: h.rule.to_owned(), limit: h.limit, remaining: h.remaining, reset: h.reset })
        })
    }
}

/// Counts a request among those of its line that wait.
struct Waiting<'a>(&'a Line);

impl<'a> Waiting<'a> {
    fn new(line: &'a Line) -> Self {
        line.waiting.fetch_add(1, Relaxed);
        Self(line)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// What became of the work that was reserved for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Used {
    /// No engine did any of it.
    Nothing,
    /// An engine has begun; so many tokens of the answer are known to have come.
    Begun { output_tokens: f64 },
    /// The engine said what it used.
    Told(Usage),
    /// It is whole, and nobody said what it used: the estimate stands.
    AsExpected,
}

/// What a request reserved. Settled when dropped.
pub(crate) struct Budget {
    governor: Arc<Governor>,
    need: Need,
    held: Option<Reservation>,
    used: Used,
    /// The answer ended by itself: its length is one to learn from.
    whole: bool,
}

impl Budget {
    /// What is left of the tightest limit.
    pub(crate) fn left(&self) -> Option<Left> {
        self.held.as_ref().and_then(|_| self.governor.left(&self.need))
    }

    /// Whether the answer has to be read for what it used.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.held.is_some() && self.governor.counts_tokens()
    }

    /// An engine began to answer, this long after the request came.
    pub(crate) fn on_begun(&mut self, ttft: Duration) {
        if self.governor.settings.load().follows_responses {
            self.governor.with(|limits, now| limits.on_response(now, ttft, false));
        }
        self.used = Used::Begun { output_tokens: 0.0 };
    }

    /// The answer is over, whole or not. `events`: pieces of a stream that came, 0 if it was none.
    pub(crate) fn on_end(&mut self, usage: Option<Usage>, events: u64, whole: bool) {
        self.whole = whole;
        self.used = match (usage, events, whole) {
            (Some(usage), ..) => Used::Told(usage),
            (None, 0, true) => Used::AsExpected,
            (None, events, _) => Used::Begun { output_tokens: events as f64 },
        };
    }

    fn actual(&self) -> Option<(f64, f64)> {
        match self.used {
            Used::Nothing => None,
            Used::Begun { output_tokens } => Some((self.need.prompt_tokens, output_tokens)),
            Used::Told(usage) => {
                let prompt = if usage.prompt_tokens > 0 { usage.prompt_tokens as f64 } else { self.need.prompt_tokens };
                Some((prompt, usage.output_tokens as f64))
            }
            Used::AsExpected => Some((self.need.prompt_tokens, self.need.output_tokens)),
        }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let actual = self.actual();
        if self.held.is_none() && !self.governor.settings.load().is_on {
            return;
        }
        let mut state = self.governor.state.lock();
        let now = self.governor.clock.now();
        if let (Used::Told(_) | Used::Begun { .. }, Some((_, output))) = (self.used, actual)
            && output > 0.0
            && self.whole
        {
            state.lengths.on_output(&self.need.tenant, &self.need.model, output);
        }
        let Some(held) = self.held.take() else { return };
        match actual {
            Some((prompt_tokens, output_tokens)) => {
                let actual = Actual { prompt_tokens, output_tokens, cost: prompt_tokens + output_tokens };
                state.limits.settle(now, held, &actual);
            }
            None => state.limits.release(now, held),
        }
    }
}

/// The class of `tenant` in the queue of `pool`: what it says, else the last.
pub(crate) fn priority(tenant: &Tenant, pool: &PoolHandle) -> u8 {
    let Some(queue) = &pool.settings().queue else { return 0 };
    let last = u8::try_from(queue.core().classes.len().saturating_sub(1)).unwrap_or(u8::MAX);
    tenant.priority.as_deref().and_then(|name| queue.class(name)).unwrap_or(last)
}
