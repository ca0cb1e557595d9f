//! Endpoints that can serve the same request, and everything that is decided about them.

use crate::affinity::Affinity;
use crate::breaker::{self, Breaker, DEFAULT_BREAKER, Outlier};
use crate::concurrency_limits::Adaptive;
use crate::endpoint::Endpoint;
use crate::endpoint_tls::{self, EndpointTls, Protocol};
use crate::health::Health;
use crate::key::{Absent, Key, Kind, Table};
use crate::load::Load;
use crate::models::{MODEL_LISTS, ModelList, Models};
use crate::policy::{self, Policy};
use crate::prefix_cache::PrefixCache;
use crate::problem::ProblemKind;
use crate::queue::Queue;
use crate::rate_limits::RateLimit;
use crate::reader::{Reader, Section, Switch};
use crate::recovery::WarmUp;
use crate::scalar;
use crate::slo::{Goals, Slo};
use crate::stream_end::{STREAM_ENDS, StreamEnd};
use crate::template;
use crate::timeouts::{Connections, Retry, Timeouts};
use crate::walk::{Complaint, Mark};
use std::time::Duration;
use tidegate_core::balance::registry::default_policy;
use tidegate_core::descriptor::Params;
use tidegate_core::pool::config::{EndpointConfig, PoolConfig};

/// The policy of a pool that names none.
const DEFAULT_POLICY: &str = "adaptive";
/// Policies whose rule is about a reported load.
const NEEDS_LOAD: &[&str] = &["fastest_recovery", "hybrid"];

/// One pool.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The name, unique in the file: letters, digits, `_`, `-` and `.`, at most 64.
    pub name: String,
    /// The policy that picks an endpoint.
    pub policy: Policy,
    /// Highest reported load (0..1] at which an endpoint is still used; `None` without a source of load, or where it is `off`.
    pub max_load: Option<f64>,
    /// The endpoints, at least one, no address twice.
    pub endpoints: Vec<Endpoint>,
    /// Active health checks; `None` makes none.
    pub health: Option<Health>,
    /// The source of reported loads; `None` has none.
    pub load: Option<Load>,
    /// The page that tells which models an endpoint serves; `None`: nobody asks.
    pub models: Option<Models>,
    /// Who answers `GET /v1/models`.
    pub model_list: ModelList,
    /// Time an endpoint takes to load a LoRA adapter that it does not hold.
    pub adapter_load: Duration,
    /// What is remembered of prompts sent; `None`: nothing.
    pub prefix_cache: Option<PrefixCache>,
    /// Header of answers that says whether they came from the endpoint's cache, in lower case; `None`: none does.
    pub cache_header: Option<String>,
    /// Warm-up of new endpoints.
    pub warm_up: WarmUp,
    /// The breaker of every endpoint.
    pub breaker: Breaker,
    /// Session affinity over the policy; `None` has none.
    pub affinity: Option<Affinity>,
    /// What answers should take; `None`: nobody asks.
    pub slo: Option<Slo>,
    /// Where requests wait that find no place; `None`: they are refused at once.
    pub queue: Option<Queue>,
    /// Most requests in flight; `None` has no bound but those of the endpoints.
    pub max_in_flight: Option<u32>,
    /// A limit on requests in flight that follows response times.
    pub adaptive: Option<Adaptive>,
    /// Limits on rates of requests to this pool.
    pub rate_limits: Vec<RateLimit>,
    /// How long each part of a request may take.
    pub timeouts: Timeouts,
    /// Retries before the first byte.
    pub retry: Retry,
    /// Connections that are kept.
    pub connections: Connections,
    /// What is spoken to the endpoints.
    pub protocol: Protocol,
    /// When a stream of events counts as whole.
    pub stream_end: StreamEnd,
    /// TLS to the endpoints whose URL begins with `https://`.
    pub tls: EndpointTls,
    /// Tidegate replicas that share the pool (at least 1); `None` learns them from what engines report.
    pub replicas: Option<u32>,
}

impl Pool {
    /// What core is told about the pool.
    pub fn core(&self) -> PoolConfig {
        let mut core = PoolConfig::new(self.policy.params.clone());
        core.max_load = self.max_load;
        if let Some(health) = &self.health {
            core.panic_threshold = health.panic_threshold;
            core.panic = health.panic;
            core.unhealthy_after = health.unhealthy_after;
            core.healthy_after = health.healthy_after;
        }
        core.warm_up = self.warm_up.core();
        core.breaker = self.breaker.params.clone();
        core.affinity = self.affinity.as_ref().map(Affinity::core);
        core.load = self.load.as_ref().map(Load::core);
        core.queue = self.queue.as_ref().map(|q| q.core().clone());
        core.max_in_flight = self.max_in_flight;
        core.adaptive = self.adaptive.as_ref().map(Adaptive::core);
        core.retry = self.retry.core();
        core.replicas = f64::from(self.replicas.unwrap_or(1));
        core.learn_replicas = self.replicas.is_none();
        core.refuse_late = self.slo.is_some_and(|s| s.refuse_late);
        (core.adapter_load, core.asks_models) = (self.adapter_load, self.models.is_some());
        core.prefix = self.prefix_cache.as_ref().map(PrefixCache::core);
        core
    }

    /// What core is told about the endpoints, in the file's order.
    pub fn core_endpoints(&self) -> Vec<EndpointConfig> {
        self.endpoints.iter().map(Endpoint::core).collect()
    }
}

const KEYS: &[Key] = &[
    Key {
        name: "template",
        kind: Kind::Choice(template::NAMES),
        absent: Absent::Means("no template"),
        summary: "What the pool is, but for what it says itself; `tidegate template show NAME` prints it in full.",
        example: "interactive",
    },
    Key {
        name: "policy",
        kind: Kind::Policy,
        absent: Absent::Default(DEFAULT_POLICY),
        summary: "How an endpoint is chosen; `tidegate policies` lists names and parameters.",
        example: "adaptive",
    },
    Key {
        name: "max_load",
        kind: Kind::Fraction { min: 0.01, max: 1.0, word: Some("off") },
        absent: Absent::Default("0.9"),
        summary: "Highest reported load at which an endpoint is still used; it needs a source of load.",
        example: "0.9",
    },
    Key {
        name: "endpoints",
        kind: Kind::List(Endpoint::TABLE),
        absent: Absent::Required,
        summary: "The engines.",
        example: "[{ url: http://127.0.0.1:8000 }]",
    },
    Key {
        name: "health",
        kind: Kind::Table(Health::TABLE),
        absent: Absent::Means("no active checks"),
        summary: "Active health checks.",
        example: "{ http: { path: /health }, interval: 5s }",
    },
    Key {
        name: "load",
        kind: Kind::Table(Load::TABLE),
        absent: Absent::Means("no reported load"),
        summary: "Where an endpoint's load comes from.",
        example: "{ status: { path: /status, interval: 1s } }",
    },
    Key {
        name: "prefix_cache",
        kind: Kind::TableOr(PrefixCache::TABLE, "off"),
        absent: Absent::Means("nothing is remembered of prompts"),
        summary: "What is remembered of prompts sent, for engines that keep the beginnings they computed.",
        example: "{ tokens: 430_000, memory: 64MiB, block: 256 }",
    },
    WarmUp::KEY,
    Key {
        name: "breaker",
        kind: Kind::Breaker,
        absent: Absent::Default(DEFAULT_BREAKER),
        summary: "What keeps traffic from an endpoint that fails; `tidegate policies --breakers` lists names and parameters.",
        example: "{ name: adaptive, stall_after: 2s }",
    },
    Key {
        name: "outlier",
        kind: Kind::Table(Outlier::TABLE),
        absent: Absent::Means("breaker decides"),
        summary: "The classic breaker in the words of Envoy and Istio, in place of `breaker`.",
        example: "{ consecutive_5xx: 5, base_ejection_time: 30s }",
    },
    Key {
        name: "cache_header",
        kind: Kind::Name,
        absent: Absent::Means("cache hits of whole answers are not counted"),
        summary: "Header of answers whose value begins with hit or miss: whether the answer came from the endpoint's cache, as vector indexes and caches before engines say it. Counted in `tidegate_cache_answers_total`.",
        example: "x-cache",
    },
    Key {
        name: "models",
        kind: Kind::Table(Models::TABLE),
        absent: Absent::Means("no endpoint is asked"),
        summary: "Asks every endpoint which models it serves.",
        example: "{ path: /v1/models, interval: 10s }",
    },
    Key {
        name: "model_list",
        kind: Kind::Choice(MODEL_LISTS),
        absent: Absent::Default("merged"),
        summary: "Who answers `GET /v1/models` and `GET /v1/models/ID`: merged is the gateway, with what all endpoints in use serve, where that is known by their `models` or by asking them; engine is the endpoint it goes to, which knows only its own.",
        example: "engine",
    },
    Key {
        name: "adapter_load",
        kind: Kind::Duration { min: 0.0, max: 600.0, word: None },
        absent: Absent::Default("200ms"),
        summary: "Time an endpoint takes to load a LoRA adapter that it does not hold; adaptive and least_work price it, so that requests for an adapter go where it is until the queue there costs more.",
        example: "500ms",
    },
    Key {
        name: "affinity",
        kind: Kind::Table(Affinity::TABLE),
        absent: Absent::Means("no affinity"),
        summary: "Session affinity over the policy.",
        example: "{ key: { header: x-session-id }, hold: 60s }",
    },
    Key {
        name: "slo",
        kind: Kind::Table(Slo::TABLE),
        absent: Absent::Means("no goals"),
        summary: "What answers should take.",
        example: "{ ttft: 2s, tpot: 100ms }",
    },
    Key {
        name: "queue",
        kind: Kind::TableOr(Queue::TABLE, "off"),
        absent: Absent::Means("a request that finds no place is refused at once"),
        summary: "Where requests wait that find no place.",
        example: "{ max_waiting: 1000, max_wait: 10s }",
    },
    Key {
        name: "rate_limits",
        kind: Kind::List(RateLimit::TABLE),
        absent: Absent::Means("only those of the whole gateway"),
        summary: "Limits on rates of requests to this pool.",
        example: "[{ name: pace, limit: 100 requests/10s, max_wait: 5m }]",
    },
    Key {
        name: "max_in_flight",
        kind: Kind::Integer { min: 1, max: 10_000_000, word: Some("none") },
        absent: Absent::Default("none"),
        summary: "Most requests in flight in the whole pool.",
        example: "256",
    },
    Key {
        name: "adaptive_limit",
        kind: Kind::TableOr(Adaptive::TABLE, "off"),
        absent: Absent::Means("no limit that follows response times"),
        summary: "A limit on requests in flight that falls when times to first byte show a queue, up to max_in_flight.",
        example: "{ min: 8, max: 256 }",
    },
    Key {
        name: "timeouts",
        kind: Kind::Table(Timeouts::TABLE),
        absent: Absent::Default("{}"),
        summary: "How long each part of a request may take.",
        example: "{ connect: 1s, first_byte: 60s, total: none }",
    },
    Key {
        name: "retry",
        kind: Kind::Table(Retry::TABLE),
        absent: Absent::Default("{}"),
        summary: "Retries before the first byte.",
        example: "{ max_attempts: 3, budget: 0.2 }",
    },
    Key {
        name: "connections",
        kind: Kind::Table(Connections::TABLE),
        absent: Absent::Default("{}"),
        summary: "Connections that are kept for the next request.",
        example: "{ max_idle_per_endpoint: 256, idle_timeout: 60s }",
    },
    Key {
        name: "protocol",
        kind: Kind::Choice(endpoint_tls::PROTOCOLS),
        absent: Absent::Default("auto"),
        summary: "What is spoken to the endpoints: auto is what ALPN finds over TLS, and HTTP/1.1 without; h2 without TLS is by prior knowledge.",
        example: "h2",
    },
    Key {
        name: "stream_end",
        kind: Kind::Choice(STREAM_ENDS),
        absent: Absent::Default("marker"),
        summary: "When a stream of events counts as whole: marker wants the end that its API promises ([DONE] on completions), any takes every clean end.",
        example: "marker",
    },
    Key {
        name: "tls",
        kind: Kind::Table(EndpointTls::TABLE),
        absent: Absent::Default("{}"),
        summary: "TLS to the endpoints whose URL begins with https.",
        example: "{ ca: /etc/tidegate/engines-ca.pem }",
    },
    Key {
        name: "replicas",
        kind: Kind::Integer { min: 1, max: 10_000, word: Some("auto") },
        absent: Absent::Default("auto"),
        summary: "Tidegate replicas that share the pool; what one of them has in flight is scaled by it. auto begins at 1 and learns from what engines report of requests (load.metrics).",
        example: "2",
    },
];

impl Section for Pool {
    const TABLE: &'static Table =
        &Table { place: "pools.NAME", summary: "Endpoints that can serve the same request.", keys: KEYS };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        // It was put in place before; asked for here so that a name that does not exist is told.
        r.choice("template");
        let place = r.place();
        r.walk.marks.push(Mark { what: "pool name", place, text: String::new() });
        let policy = policy::read(r, DEFAULT_POLICY);
        let max_load = r.number_or_none("max_load");
        let endpoints = endpoints(r);
        let load: Option<Load> = r.table("load");
        check_load(r, policy.as_ref(), max_load, load.as_ref());
        let warm_up = WarmUp::read(r);
        let breaker = breaker::read_either(r);
        let tls = endpoint_tls::of_pool(r, &endpoints);
        let problems = r.walk.problems.len();
        let slo: Option<Slo> = r.table("slo");
        let is_whole = r.walk.problems.len() == problems;
        warn_of_idle_keys(r, policy.as_ref(), slo.as_ref());
        if let Some(slo) = &slo {
            // What could not be read may be the goal.
            let has_some = slo.goals != Goals::default() || slo.refuse_late || !is_whole;
            r.mark(crate::slo::OF_POOL, "slo", if has_some { "goals".to_owned() } else { String::new() });
        }
        let prefix_cache: Option<PrefixCache> = match r.switch("prefix_cache") {
            Switch::On(cache) => Some(cache),
            Switch::Off | Switch::Absent => None,
        };
        warn_of_idle_endpoint_keys(r, &endpoints, load.as_ref(), prefix_cache.as_ref());
        warn_of_idle_places(r, &endpoints);
        Self {
            name: String::new(),
            // The stand-in for a policy that could not be read; a config with it is never returned.
            policy: policy.unwrap_or_else(|| Policy { params: Params::defaults(default_policy()), key: None }),
            // Without a source there is nothing to compare with; core is told so instead of waiting for reports that never come.
            max_load: max_load.filter(|_| load.as_ref().is_some_and(Load::tells_load)),
            endpoints,
            health: r.table("health"),
            load,
            models: r.table("models"),
            model_list: ModelList::named(r.choice("model_list")),
            adapter_load: r.duration("adapter_load"),
            prefix_cache,
            cache_header: r.value("cache_header", |_, text| scalar::header_name(text)),
            warm_up,
            breaker,
            affinity: r.table("affinity"),
            slo,
            queue: match r.switch("queue") {
                Switch::On(queue) => Some(queue),
                Switch::Off | Switch::Absent => None,
            },
            rate_limits: r.list("rate_limits"),
            max_in_flight: r.integer_or_none("max_in_flight").map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            adaptive: match r.switch("adaptive_limit") {
                Switch::On(adaptive) => Some(adaptive),
                Switch::Off | Switch::Absent => None,
            },
            timeouts: r.table_or_default("timeouts"),
            retry: r.table_or_default("retry"),
            connections: r.table_or_default("connections"),
            protocol: Protocol::named(r.choice("protocol")),
            stream_end: StreamEnd::named(r.choice("stream_end")),
            tls,
            replicas: r.integer_or_none("replicas").map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        }
    }
}

/// Says which settings do nothing under the policy that is chosen.
fn warn_of_idle_keys(r: &mut Reader<'_, '_>, policy: Option<&Policy>, slo: Option<&Slo>) {
    let Some(name) = policy.map(|p| p.params.descriptor().name) else { return };
    if r.is_set("prefix_cache") && !["adaptive", "least_work", "prefix_affinity"].contains(&name) {
        let found = format!("prefix_cache under {name}, which does not go by it");
        r.warning(
            "prefix_cache",
            found,
            "adaptive, least_work or prefix_affinity",
            "choose one of them, or leave it out".to_owned(),
        );
    }
    if r.is_set("adapter_load") && !["adaptive", "least_work"].contains(&name) {
        let found = format!("adapter_load under {name}, which does not go by it");
        r.warning("adapter_load", found, "adaptive or least_work", "choose one of them, or leave it out".to_owned());
    }
    if name == "prefix_affinity" && !r.is_set("prefix_cache") {
        let found = "prefix_affinity without prefix_cache: nothing is remembered of prompts".to_owned();
        r.warning("policy", found, "prefix_cache beside it", "for example: `prefix_cache: {}`".to_owned());
    }
    if slo.is_some_and(|s| s.refuse_late) && !["adaptive", "least_work"].contains(&name) {
        let found = format!("refuse_late under {name}, which predicts no time to the first token");
        r.warning("slo", found, "adaptive or least_work", "choose one of them, or leave refuse_late out".to_owned());
    }
}

/// Says what endpoints tell of themselves that nobody asks for.
fn warn_of_idle_endpoint_keys(
    r: &mut Reader<'_, '_>,
    endpoints: &[Endpoint],
    load: Option<&Load>,
    cache: Option<&PrefixCache>,
) {
    if endpoints.iter().any(|e| e.cache_events.is_some()) && cache.is_none_or(|c| c.events.is_none()) {
        let found = "cache_events of an endpoint without prefix_cache.events: nobody listens".to_owned();
        let hint = "for example: `prefix_cache: { events: {} }`".to_owned();
        r.warning("endpoints", found, "prefix_cache.events beside it", hint);
    }
    if let Some(events) = cache.and_then(|c| c.events.as_ref()) {
        let heard = |e: &Endpoint| events.publishers(&e.url, e.cache_events.as_ref());
        let shared =
            |(i, e): (usize, &Endpoint)| endpoints[..i].iter().any(|o| heard(o).iter().any(|p| heard(e).contains(p)));
        if endpoints.iter().enumerate().any(shared) {
            let found = "two endpoints with one publisher of cache events: each counts what the other holds".to_owned();
            let hint = "for example, at an endpoint: `cache_events: tcp://127.0.0.1:5558`".to_owned();
            r.warning("endpoints", found, "a publisher of its own for each", hint);
        }
    }
    if endpoints.iter().any(|e| !e.gpus.is_empty()) && load.is_none_or(|l| l.accelerator.is_none()) {
        let found = "gpus of an endpoint without load.accelerator: nobody asks an exporter".to_owned();
        let hint = "for example: `load: { accelerator: { url: 'http://{host}:9400/metrics' } }`".to_owned();
        r.warning("endpoints", found, "load.accelerator beside it", hint);
    }
}

/// Says which endpoints have places for adapters that nobody knows of.
fn warn_of_idle_places(r: &mut Reader<'_, '_>, endpoints: &[Endpoint]) {
    let is_idle = |e: &&Endpoint| e.max_adapters.is_some() && e.adapters.is_empty();
    let Some(idle) = endpoints.iter().find(is_idle).filter(|_| !r.is_set("models")) else { return };
    let found = format!("max_adapters of {} without adapters: no request is known to ask for one", idle.url);
    let hint = "for example, at the endpoint: `adapters: [support-de]`; or ask the engines: `models: {}` of the pool";
    r.warning("endpoints", found, "adapters beside it, or models of the pool", hint.to_owned());
}

/// The endpoints: at least one, none twice, not all drained.
fn endpoints(r: &mut Reader<'_, '_>) -> Vec<Endpoint> {
    let before = r.walk.marks.len();
    let endpoints: Vec<Endpoint> = r.list("endpoints");
    if endpoints.is_empty() && r.is_set("endpoints") && r.all_good(&["endpoints"]) {
        r.missing("endpoints");
    }
    let urls: Vec<Mark> = r.walk.marks.drain(before..).collect();
    for (i, mark) in urls.iter().enumerate() {
        let Some(first) = urls.iter().take(i).find(|m| m.text == mark.text) else { continue };
        let complaint = Complaint {
            found: format!("{} a second time; the first is on line {}", mark.text, first.place.span.line),
            allowed: "each endpoint once".to_owned(),
            hint: "remove one of the two; for a larger share give it a `weight`".to_owned(),
        };
        r.walk.error(ProblemKind::Contradiction, &mark.place, complaint);
    }
    // They stay for the check against the listeners.
    r.walk.marks.extend(urls);
    if !endpoints.is_empty() && endpoints.iter().all(|e| e.weight == 0.0) && r.all_good(&["endpoints"]) {
        let found = "only endpoints of weight 0: every request is refused with 503".to_owned();
        r.warning("endpoints", found, "at least one weight above 0", "for example: `weight: 1`".to_owned());
    }
    endpoints
}

/// Settings that are about a reported load need a source that tells it.
fn check_load(r: &mut Reader<'_, '_>, policy: Option<&Policy>, max_load: Option<f64>, load: Option<&Load>) {
    if load.is_none() && r.is_set("load") {
        return;
    }
    let hint = || match load {
        None => "for example: `load: { status: { path: /status, interval: 1s } }`",
        Some(_) => "for example: `metrics: { load: 'max(my_busy_ratio)' }`, or `status` beside `metrics`",
    };
    let said = match load {
        None => "in a pool whose endpoints report no load",
        Some(l) if l.metrics.is_some() => "in a pool whose metrics tell requests and tokens, and no load in 0..1",
        Some(_) => "in a pool whose sources tell no load in 0..1; GPUs and nodes have gates of their own",
    };
    let tells_load = load.is_some_and(Load::tells_load);
    if !tells_load && r.is_set("max_load") && max_load.is_some() && r.all_good(&["max_load"]) {
        r.contradiction(
            "max_load",
            format!("max_load {said}"),
            "max_load together with load",
            format!("remove max_load, or add a source, {}", hint()),
        );
    }
    let Some(params) = policy.map(|p| &p.params) else { return };
    let name = params.descriptor().name;
    if !tells_load && (NEEDS_LOAD.contains(&name) || params.choice("signal") == "reported") {
        let found = format!("{name} {said}: it falls back to what is seen here");
        r.warning("policy", found, "this policy together with load", hint().to_owned());
    }
    let tells_utilisation = tells_load || load.is_some_and(Load::tells_utilisation);
    if !tells_utilisation && name == "weighted_round_robin" && params.choice("weights") == "auto" {
        let found = format!("{name} with `weights: auto` {said}: the static weights hold");
        let more = "the page may carry `cpu`, `gpu` and `memory` (0..1) beside `current_load`";
        r.warning("policy", found, "`weights: auto` together with load", format!("{}; {more}", hint()));
    }
}
