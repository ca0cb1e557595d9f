//! The limits of the process: reserved before a request enters a pool, settled once when it is over.
//!
//! Limits span pools, so they have a lock of their own, taken before a pool's and never together with it or across an await. What was
//! reserved is a [`Budget`]: dropping it settles it, so a client that leaves at whatever point gives back what it did not use.

use crate::request::budget::Budget;
use crate::request::error::{Limit, ProxyError};
use crate::state::clock::Clock;
use crate::state::inherit::{LateUse, Saved};
use crate::state::pool::PoolHandle;
use crate::state::tenant::Tenant;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tidegate_config::Config;
use tidegate_core::limit::limits::config::LimitsConfig;
use tidegate_core::limit::{Actual, Ask, Charge, Limited, Limits, OutputEstimate, Quantity, Reservation};
use tidegate_core::saved::SavedLimits;
use tidegate_core::time::Instant;
use tokio::sync::mpsc;

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
    /// The gateway answers by itself.
    pub(crate) asks_no_engine: bool,
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
            asks_no_engine: self.asks_no_engine,
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
    /// Where it is told what is used, while another process goes on from these balances.
    heir: Option<mpsc::Sender<LateUse>>,
}

impl State {
    fn tell(&mut self, need: &Need, requests: f64, prompt_tokens: f64, output_tokens: f64) {
        let Some(heir) = &self.heir else { return };
        let used = LateUse {
            tenant: need.tenant.to_string(),
            model: need.model.clone(),
            route: need.route.to_string(),
            requests,
            prompt_tokens,
            output_tokens,
        };
        if heir.try_send(used).is_err() {
            tracing::warn!("the process that took over does not keep up: it is told of no more usage");
            self.heir = None;
        }
    }
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
            state: Mutex::new(State { limits, lengths: OutputEstimate::new(MAX_LEARNED), heir: None }),
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

    /// Balances and learned lengths, at the same instant. From then on `heir` is told what is used, until [`Governor::keep`].
    pub(crate) fn save(&self, heir: mpsc::Sender<LateUse>) -> (SavedLimits, Vec<(String, f64, u32)>) {
        let mut state = self.state.lock();
        state.heir = Some(heir);
        let now = self.clock.now();
        (state.limits.save(now), state.lengths.save())
    }

    /// Nobody goes on from these balances any more.
    pub(crate) fn keep(&self) {
        self.state.lock().heir = None;
    }

    /// Goes on from another process's balances and learned lengths.
    pub(crate) fn restore(&self, saved: &Saved) {
        let mut state = self.state.lock();
        state.limits.restore(self.clock.now(), &saved.limits);
        state.lengths.restore(&saved.lengths);
    }

    /// The process before this one used something.
    pub fn charge(&self, used: &LateUse) {
        let ask = Ask {
            tenant: &used.tenant,
            model: &used.model,
            route: &used.route,
            prompt_tokens: used.prompt_tokens,
            output_tokens: used.output_tokens,
            cost: used.prompt_tokens + used.output_tokens,
            ..Ask::default()
        };
        let charge = Charge {
            requests: used.requests,
            prompt_tokens: used.prompt_tokens,
            output_tokens: used.output_tokens,
            cost: ask.cost,
        };
        self.with(|limits, now| limits.charge(now, &ask, &charge));
    }

    /// Reserves at once, or says why not. A tenant that waits in line (`waits`) has its need remembered.
    fn try_reserve(&self, need: &Need, waits: bool) -> (Result<Reservation, Limited>, Option<Instant>) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let result = state.limits.reserve(now, &need.ask());
        match &result {
            Ok(_) => state.tell(need, 1.0, need.prompt_tokens, need.output_tokens),
            // Those behind want as much, so that the tenant's whole need is seen and not only its head's.
            Err(_) if waits => state.limits.want(now, &need.ask()),
            Err(_) => {}
        }
        (result, state.limits.next_tick_at())
    }

    /// Runs `f` under the lock of the limits. Never await in it.
    pub fn with<T>(&self, f: impl FnOnce(&mut Limits, Instant) -> T) -> T {
        let mut state = self.state.lock();
        let now = self.clock.now();
        f(&mut state.limits, now)
    }

    /// Output tokens to expect of a request.
    pub(crate) fn expected_output(
        &self,
        tenant: &str,
        model: &str,
        prompt_tokens: u32,
        max_tokens: Option<u32>,
    ) -> f64 {
        if !self.settings.load().is_on {
            return f64::from(max_tokens.unwrap_or(0));
        }
        self.state.lock().lengths.tokens_for(tenant, model, f64::from(prompt_tokens), max_tokens)
    }

    /// Whether answers have to be read for what they used.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.settings.load().counts_tokens
    }

    /// Reserves what a request needs, waiting where a limit says so.
    pub(crate) async fn reserve(self: &Arc<Self>, need: Need) -> Result<Budget, ProxyError> {
        if !self.settings.load().is_on {
            return Ok(Budget::new(self, need, None));
        }
        let held = match self.try_reserve(&need, false).0 {
            Ok(held) => held,
            Err(limited) => self.wait_for_share(&need, limited).await?,
        };
        let budget = Budget::new(self, need, Some(held));
        let wait = budget.not_before().map_or(Duration::ZERO, |at| at.since(self.clock.now()));
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
                let (result, next) = self.try_reserve(need, true);
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

    /// An engine began to answer, this long after the request came.
    pub(crate) fn on_begun(&self, ttft: Duration) {
        if self.settings.load().follows_responses {
            self.with(|limits, now| limits.on_response(now, ttft, false));
        }
    }

    /// What `need` reserved was used as `actual` says, in prompt and output tokens; `None`: nothing was. `learned`: the length of a whole answer.
    pub(crate) fn settle(
        &self,
        need: &Need,
        held: Option<Reservation>,
        actual: Option<(f64, f64)>,
        learned: Option<f64>,
    ) {
        if held.is_none() && !self.settings.load().is_on {
            return;
        }
        let mut state = self.state.lock();
        let now = self.clock.now();
        if let Some(output) = learned {
            state.lengths.on_output(&need.tenant, &need.model, need.prompt_tokens, output);
        }
        let Some(held) = held else { return };
        match actual {
            Some((prompt_tokens, output_tokens)) => {
                state.tell(need, 0.0, prompt_tokens - need.prompt_tokens, output_tokens - need.output_tokens);
                let actual = Actual { prompt_tokens, output_tokens, cost: prompt_tokens + output_tokens };
                state.limits.settle(now, held, &actual);
            }
            None => {
                state.tell(need, -1.0, -need.prompt_tokens, -need.output_tokens);
                state.limits.release(now, held);
            }
        }
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

    pub(crate) fn left(&self, need: &Need) -> Option<Left> {
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

/// The class of `tenant` in the queue of `pool`: what it says, else the last.
pub(crate) fn priority(tenant: &Tenant, pool: &PoolHandle) -> u8 {
    let Some(queue) = &pool.settings().queue else { return 0 };
    let last = u8::try_from(queue.core().classes.len().saturating_sub(1)).unwrap_or(u8::MAX);
    tenant.priority.as_deref().and_then(|name| queue.class(name)).unwrap_or(last)
}
