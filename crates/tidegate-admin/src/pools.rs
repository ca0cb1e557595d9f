//! The pools as they are now: copied under each pool's lock, formatted outside of it.

use crate::action::Target;
use crate::admin::Shared;
use crate::config::ConfigView;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_config::Load;
use tidegate_core::breaker::Level;
use tidegate_core::endpoint::Gate;
use tidegate_core::id::EndpointId;
use tidegate_core::load::{LoadReport, WorkReport};
use tidegate_core::pool::Pool;
use tidegate_core::prefix::{Hearing, PrefixCounts, PrefixIndex, Resident};
use tidegate_core::queue::FairQueue;
use tidegate_core::time::Instant;
use tidegate_proxy::PoolHandle;
use tidegate_telemetry::SignalFacts;

/// All pools, and the switches the page may offer.
#[derive(Debug, Serialize)]
pub(crate) struct Snapshot {
    version: &'static str,
    /// The config in force; `null` where it comes from no file.
    config: Option<ConfigView>,
    actions: Vec<ActionView>,
    pools: Vec<PoolView>,
}

#[derive(Debug, Serialize)]
struct ActionView {
    name: &'static str,
    on: &'static str,
    off: &'static str,
}

/// One pool.
#[derive(Debug, Serialize)]
pub(crate) struct PoolView {
    pub(crate) name: Arc<str>,
    /// The policy with its form, such as `fastest_recovery:ema`.
    policy: String,
    pub(crate) in_flight: usize,
    /// Requests in the queue, and by priority class where it has several.
    pub(crate) waiting: usize,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    waiting_by_class: BTreeMap<String, usize>,
    /// Most requests in flight now; `null` without a bound.
    pub(crate) limit: Option<u32>,
    usable: u32,
    /// Endpoints whose load signal cannot be used.
    pub(crate) degraded: usize,
    pub(crate) panic: bool,
    pub(crate) affinity_keys: usize,
    /// What is remembered of prompts; absent in pools that remember none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prefix_cache: Option<PrefixView>,
    #[serde(skip)]
    pub(crate) gates: [u32; Gate::ALL.len()],
    #[serde(skip)]
    pub(crate) has_load: bool,
    pub(crate) endpoints: Vec<EndpointView>,
    /// Endpoints that a reload took out and that still have requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leaving: Vec<LeavingView>,
}

/// The index of prompts, and what came of it since the start.
#[derive(Debug, Serialize)]
pub(crate) struct PrefixView {
    pub(crate) blocks: usize,
    pub(crate) bytes: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) matched_tokens: f64,
}

#[derive(Debug, Serialize)]
struct LeavingView {
    url: Arc<str>,
    in_flight: u32,
}

/// One endpoint. Times in seconds; `null` is "not known", never zero.
#[derive(Debug, Serialize)]
pub(crate) struct EndpointView {
    pub(crate) index: usize,
    pub(crate) url: Arc<str>,
    pub(crate) gate: &'static str,
    pub(crate) in_flight: u32,
    pub(crate) pending: u32,
    max_in_flight: Option<u32>,
    pub(crate) weight: f64,
    /// Part of its normal traffic it may take, 0..1: below 1 while it warms up or recovers.
    pub(crate) share: f64,
    requests_per_s: f64,
    /// `healthy`, `unhealthy`, or `unknown` without a check so far.
    health: &'static str,
    breaker: BreakerView,
    /// Reported load with own credit, 0 up.
    pub(crate) load: Option<f64>,
    /// Why the load signal cannot be used; always `null` in pools without one.
    pub(crate) degraded: Option<&'static str>,
    /// Age of the newest report.
    report_age_s: Option<f64>,
    /// What the endpoint says of its own requests; `null` in pools whose endpoints say nothing.
    work: Option<WorkView>,
    /// Used share of what is below it, 0..1; absent where no source tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<UsedView>,
    /// What is known of its prefix cache; absent in pools that remember no prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<CacheView>,
    /// What its pages were found to expose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    signals: Vec<SignalFacts>,
    /// Mean of the last 20 response times, failures as penalties.
    pub(crate) response_time_s: Option<f64>,
    /// Mean of the last 20 times to first byte.
    ttft_s: Option<f64>,
    stats: StatsView,
    /// The actions that are on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    actions: BTreeMap<&'static str, bool>,
}

/// The newest report of what is used.
#[derive(Debug, Serialize)]
struct UsedView {
    cpu: Option<f64>,
    gpu: Option<f64>,
    memory: Option<f64>,
}

impl UsedView {
    fn read([cpu, gpu, memory]: [Option<f64>; 3]) -> Option<Self> {
        (cpu.is_some() || gpu.is_some() || memory.is_some()).then_some(Self { cpu, gpu, memory })
    }
}

/// The newest report of an engine's own counts, of all its clients.
#[derive(Debug, Serialize)]
struct WorkView {
    running: Option<f64>,
    waiting: Option<f64>,
    queued_tokens: Option<f64>,
    /// Used share of KV memory, 0..1.
    kv_usage: Option<f64>,
}

impl WorkView {
    fn read(work: &WorkReport) -> Option<Self> {
        let WorkReport { running, waiting, queued_tokens, kv_usage, .. } = *work;
        (!work.is_empty()).then_some(Self { running, waiting, queued_tokens, kv_usage })
    }
}

/// What is known of an endpoint's prefix cache.
#[derive(Debug, Serialize)]
pub(crate) struct CacheView {
    /// Blocks of prompts that are expected to be there.
    blocks: u32,
    /// How far that is believed, 0..1, by what answers tell.
    trust: f64,
    /// `counted`, `uncounted`, `silent` or `missing`; `null` where nobody listens.
    events: Option<&'static str>,
    /// Tokens it holds by its own events; `null` where some were missed.
    pub(crate) resident_tokens: Option<u64>,
    /// How often events were missed.
    pub(crate) gaps: u64,
    #[serde(skip)]
    pub(crate) hearing: Option<Hearing>,
}

impl CacheView {
    fn read(prefixes: &PrefixIndex, id: EndpointId, is_listened_to: bool) -> Self {
        // A reload may have ended the listening: what was heard before is no news then.
        let resident = prefixes.resident(id).filter(|_| is_listened_to);
        let hearing = resident.and_then(Resident::hearing);
        Self {
            blocks: prefixes.blocks(id),
            trust: prefixes.trust(id),
            events: hearing.map(Hearing::as_str),
            resident_tokens: resident.and_then(Resident::tokens),
            gaps: resident.map_or(0, Resident::gaps),
            hearing,
        }
    }
}

/// The breaker for route class 0.
#[derive(Debug, Serialize)]
struct BreakerView {
    /// `closed`, `open` or `half_open`.
    state: &'static str,
    /// `full`, `reduced`, `open` or `half_open`.
    level: &'static str,
}

/// Counts since the start.
#[derive(Debug, Serialize)]
pub(crate) struct StatsView {
    pub(crate) dispatched: u64,
    succeeded: u64,
    failed: u64,
    throttled: u64,
    neutral: u64,
    streams: u32,
}

impl EndpointView {
    pub(crate) fn healthy(&self) -> Option<bool> {
        match self.health {
            "healthy" => Some(true),
            "unhealthy" => Some(false),
            _ => None,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.breaker.level == Level::Open.as_str()
    }

    pub(crate) fn dispatched(&self) -> u64 {
        self.stats.dispatched
    }

    fn read(pool: &Pool, now: Instant, index: usize, url: &Arc<str>, (has_load, listens): (bool, bool)) -> Self {
        let id = EndpointId(index as u32);
        let (endpoints, hot) = (pool.endpoints(), pool.endpoints().get(id));
        let stats = &endpoints.stats[index];
        let level = pool.level(id, 0);
        let last = endpoints.loads[index].last().filter(|_| has_load);
        Self {
            index,
            url: Arc::clone(url),
            gate: hot.gate.as_str(),
            in_flight: hot.in_flight,
            pending: hot.pending,
            max_in_flight: pool.max_in_flight(id),
            weight: hot.weight,
            share: pool.share_at(id, now),
            requests_per_s: hot.rate.per_second_at(now),
            health: pool.health(id).map_or("unknown", |healthy| if healthy { "healthy" } else { "unhealthy" }),
            breaker: BreakerView { state: level.state(), level: level.as_str() },
            load: endpoints.load_at(id, now).filter(|_| has_load),
            degraded: endpoints.loads[index].degraded_at(now).filter(|_| has_load).map(|why| why.as_str()),
            report_age_s: last.map(|report| now.secs_since(report.sampled_at)),
            work: last.and_then(|report| WorkView::read(&report.work)),
            used: last.and_then(|report| UsedView::read(report.utilisation)),
            cache: pool.prefixes().map(|prefixes| CacheView::read(prefixes, id, listens)),
            signals: Vec::new(),
            response_time_s: stats.response_times.mean(),
            ttft_s: stats.first_bytes.mean(),
            stats: StatsView {
                dispatched: stats.dispatched,
                succeeded: stats.succeeded,
                failed: stats.failed,
                throttled: stats.throttled,
                neutral: stats.neutral,
                streams: stats.streams,
            },
            actions: BTreeMap::new(),
        }
    }
}

impl PoolView {
    pub(crate) fn read(handle: &PoolHandle) -> Self {
        handle.with_endpoints(|pool, now, all| {
            let has_load = pool.config().load.is_some();
            let listens = handle.settings().prefix_cache.as_ref().is_some_and(|c| c.events.is_some());
            let (mut endpoints, mut leaving) = (Vec::with_capacity(all.len()), Vec::new());
            for (index, endpoint) in all.iter().enumerate() {
                let in_flight = pool.endpoints().get(EndpointId(index as u32)).in_flight;
                if !endpoint.is_retired() {
                    endpoints.push(EndpointView::read(pool, now, index, &endpoint.url, (has_load, listens)));
                } else if in_flight > 0 {
                    leaving.push(LeavingView { url: Arc::clone(&endpoint.url), in_flight });
                }
            }
            Self {
                name: Arc::clone(&handle.name),
                policy: pool.config().policy.label(),
                in_flight: pool.in_flight(),
                waiting: pool.waiting(),
                waiting_by_class: pool.queue().map(waiting_by_class).unwrap_or_default(),
                limit: pool.limit(),
                usable: pool.count(Gate::Usable),
                degraded: endpoints.iter().filter(|e| e.degraded.is_some()).count(),
                panic: pool.is_panicking(),
                affinity_keys: pool.affinity_keys(),
                prefix_cache: pool.prefixes().map(|prefixes| {
                    let PrefixCounts { hits, misses, matched_tokens } = prefixes.counts();
                    PrefixView { blocks: prefixes.len(), bytes: prefixes.bytes(), hits, misses, matched_tokens }
                }),
                gates: Gate::ALL.map(|gate| pool.count(gate)),
                has_load,
                endpoints,
                leaving,
            }
        })
    }
}

fn waiting_by_class(queue: &FairQueue) -> BTreeMap<String, usize> {
    let classes = &queue.config().classes;
    if classes.len() < 2 {
        return BTreeMap::new();
    }
    classes.iter().map(|c| c.name.clone()).zip(queue.by_class()).collect()
}

/// All pools as they are now.
pub(crate) fn snapshot(shared: &Shared) -> Snapshot {
    let mut pools: Vec<PoolView> = shared.current.load().pools.iter().map(|p| PoolView::read(p)).collect();
    for (&(name, Target { pool, endpoint }), &on) in shared.switched.lock().iter() {
        if let Some(view) = pools.get_mut(pool).and_then(|p| p.endpoints.iter_mut().find(|e| e.index == endpoint)) {
            view.actions.insert(name, on);
        }
    }
    for (pool, handle) in pools.iter_mut().zip(&shared.current.load().pools) {
        let load = handle.settings().load.as_ref();
        if let Some(load) = load.filter(|l| l.orca) {
            tell_answers(pool, handle, load);
        }
    }
    for pool in &mut pools {
        for endpoint in &mut pool.endpoints {
            endpoint.signals.extend(shared.telemetry.facts(&pool.name, &endpoint.url));
        }
    }
    let actions = shared.actions.iter().map(|a| ActionView { name: a.name, on: a.on, off: a.off }).collect();
    let config = shared.config.as_ref().map(|book| book.config());
    Snapshot { version: env!("CARGO_PKG_VERSION"), config, actions, pools }
}

/// What answers were found to tell, as one more signal: nothing polls them, so nobody else says so.
fn tell_answers(pool: &mut PoolView, handle: &PoolHandle, load: &Load) {
    handle.with_endpoints(|p, now, all| {
        for endpoint in &mut pool.endpoints {
            let by_page = load.is_polled();
            let told = if by_page {
                all.get(endpoint.index).and_then(|e| e.answered_at(now, load.max_age))
            } else {
                p.endpoints().loads.get(endpoint.index).and_then(|signal| signal.last().copied())
            };
            endpoint.signals.push(of_answers(told.as_ref()));
        }
    });
}

fn of_answers(told: Option<&LoadReport>) -> SignalFacts {
    let mut facts = SignalFacts { source: "orca", ..SignalFacts::default() };
    let Some(report) = told else {
        return SignalFacts { trouble: Some("no answer has told its load so far, or lately".to_owned()), ..facts };
    };
    facts.trouble = report.impossible().map(|(name, value)| format!("impossible: {name} {value}"));
    let [cpu, _, memory] = report.utilisation;
    let WorkReport { running, waiting, kv_usage, .. } = report.work;
    for (name, value) in [
        ("load", report.load),
        ("cpu", cpu),
        ("memory", memory),
        ("running", running),
        ("waiting", waiting),
        ("kv_usage", kv_usage),
    ] {
        if value.is_some() { facts.present.push(name) } else { facts.missing.push(name) }
    }
    facts
}

/// Whether an endpoint of the pool could serve now or is only busy.
pub(crate) fn may_serve(handle: &PoolHandle) -> bool {
    let gates = [Gate::Usable, Gate::Full, Gate::Overloaded, Gate::CoolingDown];
    handle.with(|pool, _| gates.iter().any(|&gate| pool.count(gate) > 0))
}
