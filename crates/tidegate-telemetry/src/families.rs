//! Every metric: name, kind, unit, labels and meaning, written once. `/metrics` and `docs/metrics.md` are both made from this.

use crate::histogram::{TOTAL_BOUNDS_S, TTFT_BOUNDS_S};
use std::fmt::Write;

/// A family of series that share a name.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name, `tidegate_...`.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: FamilyKind,
    /// The unit, a plural noun.
    pub unit: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it tells, one sentence without quotes or line breaks.
    pub help: &'static str,
}

/// How a family's numbers are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// Only goes up, until the process restarts.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts per bucket, a sum and a count.
    Histogram,
}

impl FamilyKind {
    /// The word in a `# TYPE` line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

const POOL: &[&str] = &["pool"];
const ENDPOINT: &[&str] = &["pool", "endpoint"];

macro_rules! families {
    ($($id:ident: $kind:ident $name:literal, $unit:literal, $labels:expr, $help:literal;)*) => {
        /// Every family by its constant.
        pub mod family {
            use super::{ENDPOINT, Family, FamilyKind, POOL};
            $(#[doc = $help] pub const $id: Family =
                Family { name: $name, kind: FamilyKind::$kind, unit: $unit, labels: $labels, help: $help };)*
            /// All of them, in the order of the docs.
            pub const ALL: &[Family] = &[$($id),*];
        }
    };
}

families! {
    REQUESTS: Counter "tidegate_requests_total", "requests", &["pool", "endpoint", "outcome"],
        "Requests that ended, by the endpoint tried last and how they ended.";
    RETRIES: Counter "tidegate_retries_total", "dispatches", POOL,
        "Dispatches after the first one of the same request.";
    KEYLESS: Counter "tidegate_keyless_total", "requests", POOL,
        "Requests to a consistent_hash pool that carried no key and were placed by power of two choices.";
    DEGRADED_PICKS: Counter "tidegate_degraded_picks_total", "requests", POOL,
        "Requests that a load-based policy placed by its fallback because no load was reported.";
    TTFT: Histogram "tidegate_ttft_seconds", "seconds", POOL,
        "Time from the head of a request to the first byte of its answer, of requests that got one.";
    TOTAL: Histogram "tidegate_request_seconds", "seconds", POOL,
        "Time from the head of a request to its end.";
    STREAM_EVENTS: Counter "tidegate_stream_events_total", "events", POOL,
        "Server-sent events relayed, counted when their stream ends.";
    RESPONSE_BYTES: Counter "tidegate_response_bytes_total", "bytes", POOL,
        "Bytes of response bodies sent downstream, counted when the request ends.";
    SLO_REQUESTS: Counter "tidegate_slo_requests_total", "requests", POOL,
        "Requests that had a goal (`slo`) and were not ended by their client or refused by its fault.";
    GOODPUT: Counter "tidegate_goodput_total", "requests", POOL,
        "Those of them whose whole answer began in time and came at its pace.";
    TOLD_PROMPT_TOKENS: Counter "tidegate_told_prompt_tokens_total", "tokens", POOL,
        "Prompt tokens of answers whose engine said how many of them it had in its cache.";
    CACHED_TOKENS: Counter "tidegate_cached_tokens_total", "tokens", POOL,
        "Those of them it had in its cache.";
    CACHE_ANSWERS: Counter "tidegate_cache_answers_total", "requests", &["pool", "endpoint", "result"],
        "Answers whose cache_header said hit or miss.";
    CHECKS: Counter "tidegate_health_checks_total", "checks", &["pool", "endpoint", "result"],
        "Active health checks that ended, passed or failed.";
    POLLS: Counter "tidegate_load_polls_total", "polls", &["pool", "endpoint", "result"],
        "Polls of status pages that ended, reported or missed.";
    TENANT_REQUESTS: Counter "tidegate_tenant_requests_total", "requests", &["tenant", "result"],
        "Requests that ended, by tenant: served, limited (429 and 413), refused (other 4xx), failed.";
    TENANT_TOKENS: Counter "tidegate_tenant_tokens_total", "tokens", &["tenant", "kind"],
        "Tokens of served requests by tenant: prompts as estimated, output as engines told it or events were counted.";
    RULE_CHANGES: Counter "tidegate_rule_changes_total", "changes", &["rule"],
        "Changes of a limit by an auto-tuning rule, or by an operator who took one back; dry runs change nothing.";
    POOL_WAITING: Gauge "tidegate_pool_waiting", "requests", POOL,
        "Requests that wait in the queue of the pool.";
    POOL_LIMIT: Gauge "tidegate_pool_limit", "requests", POOL,
        "Most requests in flight in the pool now, fixed or adaptive; absent without a bound.";
    POOL_ENDPOINTS: Gauge "tidegate_pool_endpoints", "endpoints", &["pool", "gate"],
        "Endpoints behind each gate; usable is the one that lets requests in.";
    POOL_IN_FLIGHT: Gauge "tidegate_pool_in_flight", "requests", POOL,
        "Requests in flight upstream.";
    POOL_PANIC: Gauge "tidegate_pool_panic", "0 or 1", POOL,
        "Whether fewer endpoints than panic_threshold pass their checks.";
    POOL_AFFINITY_KEYS: Gauge "tidegate_pool_affinity_keys", "keys", POOL,
        "Keys that session affinity remembers.";
    POOL_DEGRADED: Gauge "tidegate_pool_degraded", "endpoints", POOL,
        "Endpoints whose load signal is missing, old, frozen or impossible; 0 in pools without a source of load.";
    PREFIX_BLOCKS: Gauge "tidegate_prefix_blocks", "blocks", POOL,
        "Blocks of prompts that are remembered, over all endpoints; absent in pools without prefix_cache, as are the others of this kind.";
    PREFIX_BYTES: Gauge "tidegate_prefix_bytes", "bytes", POOL,
        "Bytes they count for against prefix_cache.memory.";
    PREFIX_LOOKUPS: Counter "tidegate_prefix_lookups_total", "requests", &["pool", "result"],
        "Dispatches with a prompt, by whether anything of it was remembered of the endpoint they went to.";
    PREFIX_MATCHED: Counter "tidegate_prefix_matched_tokens_total", "tokens", POOL,
        "Tokens of prompts that were expected to be cached where they were sent.";
    IN_FLIGHT: Gauge "tidegate_endpoint_in_flight", "requests", ENDPOINT,
        "Own requests in flight.";
    PENDING: Gauge "tidegate_endpoint_pending", "requests", ENDPOINT,
        "Own requests in flight that wait for their first byte.";
    GATE: Gauge "tidegate_endpoint_gate", "1", &["pool", "endpoint", "gate"],
        "The gate the endpoint is behind: one series of value 1 per endpoint, whose gate label changes.";
    WEIGHT: Gauge "tidegate_endpoint_weight", "weight", ENDPOINT,
        "Static weight in force.";
    SHARE: Gauge "tidegate_endpoint_share", "fraction", ENDPOINT,
        "Share of its normal traffic the endpoint may take; below 1 while it warms up or recovers.";
    LOAD: Gauge "tidegate_endpoint_load", "fraction", ENDPOINT,
        "Reported load with own credit; absent while the signal is degraded.";
    HEALTHY: Gauge "tidegate_endpoint_healthy", "0 or 1", ENDPOINT,
        "Verdict of the active checks; absent before the first check and in pools without checks.";
    OPEN: Gauge "tidegate_endpoint_open", "0 or 1", ENDPOINT,
        "Whether the endpoint is out after consecutive errors.";
    DEGRADED: Gauge "tidegate_endpoint_degraded", "0 or 1", ENDPOINT,
        "Whether the load signal cannot be used; absent in pools without a source of load.";
    CACHE_HEARD: Gauge "tidegate_endpoint_cache_events_heard", "0 or 1", ENDPOINT,
        "Whether the cache events of all ranks are heard; absent in pools without prefix_cache.events.";
    CACHE_TOKENS: Gauge "tidegate_endpoint_cache_tokens", "tokens", ENDPOINT,
        "Tokens in its prefix cache by its own events; absent where some were missed.";
    CACHE_GAPS: Counter "tidegate_endpoint_cache_event_gaps_total", "gaps", ENDPOINT,
        "How often cache events were missed, by their numbers.";
    RESPONSE: Gauge "tidegate_endpoint_response_seconds", "seconds", ENDPOINT,
        "Mean of the last 20 response times, failures as penalties of at least 5 s; absent before the first.";
    DISPATCHED: Counter "tidegate_endpoint_dispatched_total", "requests", ENDPOINT,
        "Requests sent to the endpoint, retries and trials included.";
    RELOADS: Counter "tidegate_config_reloads_total", "reloads", &["result"],
        "Reloads of the config, applied or rejected.";
    GENERATION: Gauge "tidegate_config_generation", "generations", &[],
        "Generation of the config in force: 1 at the start, one more with each that was applied.";
    REJECTED: Gauge "tidegate_config_rejected", "0 or 1", &[],
        "Whether the last reload was rejected, so that the config in force is not what the file says.";
    BUILD: Gauge "tidegate_build_info", "1", &["version"],
        "The version that runs.";
}

const INTRO: &str = "\
# Metrics

<!-- Generated from crates/tidegate-telemetry/src/families.rs; a test compares. To write it anew: TIDEGATE_WRITE_DOCS=1 cargo test -p tidegate-telemetry -->

`GET /metrics` at the admin address, in the Prometheus text format 0.0.4. With an admin token, scrape with `authorization: Bearer TOKEN`.

| name | kind | unit | labels | meaning |
|---|---|---|---|---|
";

/// The text of `docs/metrics.md`.
pub fn docs() -> String {
    let mut text = INTRO.to_owned();
    for f in family::ALL {
        let labels: Vec<String> = f.labels.iter().map(|l| format!("`{l}`")).collect();
        let labels = labels.join(", ");
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "| `{}` | {} | {} | {labels} | {} |", f.name, f.kind.as_str(), f.unit, f.help);
    }
    let list = |bounds: &[f64]| bounds.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
    let outcomes: Vec<String> = crate::outcomes::OUTCOMES.iter().map(|o| format!("`{o}`")).collect();
    let gates: Vec<String> = tidegate_core::endpoint::Gate::ALL.iter().map(|g| format!("`{}`", g.as_str())).collect();
    let _ = write!(
        text,
        "\n## Labels\n\n\
         Label values come from the config and from closed lists, never from a request, so the number of series is bounded. A series of \
         `tidegate_requests_total` appears with its first request.\n\n\
         - `pool`: the name in the config; `none` for requests that no route took, `other` for a pool made after the start.\n\
         - `endpoint`: the URL; `none` where no endpoint was tried, `other` for an endpoint made after the start.\n\
         - `outcome`: {}. A refusal of a faulty request without a word of its own is `bad_request`, anything else `other`.\n\
         - `gate`: {}.\n\
         - `result`: `passed` or `failed` of checks, `reported` or `missed` of polls, `hit` or `miss` of prefixes and caches.\n\n\
         ## Buckets\n\n\
         Upper bounds in seconds, the last is infinite.\n\n\
         - `tidegate_ttft_seconds`: {}.\n\
         - `tidegate_request_seconds`: {}.\n\n\
         ## Records in the log\n\n\
         Each request leaves one wide event in the target `request`, at level `debug`: a gateway that serves 20,000 requests a second would \
         otherwise write 20,000 lines a second. Set `log: {{ level: debug }}` to see them; the last {} are kept in memory at any level, \
         for `GET /api/requests` and `GET /api/requests/ID`.\n",
        outcomes.join(", "),
        gates.join(", "),
        list(TTFT_BOUNDS_S),
        list(TOTAL_BOUNDS_S),
        crate::recent::RECENT_RECORDS,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        if std::env::var_os("TIDEGATE_WRITE_DOCS").is_some() {
            std::fs::write(path, docs()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), docs(), "TIDEGATE_WRITE_DOCS=1 writes it anew");
    }

    #[test]
    fn names_are_well_formed_and_unique() {
        for (i, f) in family::ALL.iter().enumerate() {
            assert!(f.name.starts_with("tidegate_") && f.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert_eq!(f.kind == FamilyKind::Counter, f.name.ends_with("_total"), "{}", f.name);
            assert!(!f.help.contains(['\n', '\\', '|']), "{}", f.name);
            assert!(family::ALL[..i].iter().all(|g| g.name != f.name), "{}", f.name);
        }
    }
}
