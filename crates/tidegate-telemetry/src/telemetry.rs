//! The sink of the live gateway: counts, keeps and logs every record.

use crate::counters::{self, PoolCounters};
use crate::exposition::Exposition;
use crate::families::family;
use crate::recent::{Kept, RECENT_RECORDS, Recent};
use crate::record::{Record, Sink};
use crate::signals::{SignalBoard, SignalFacts};
use crate::tenants::TenantCounters;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tidegate_config::Config;
use tidegate_core::event::Event;

/// Metrics, the last records, and one log event per request.
///
/// Cost per record: two hash look-ups, about eight atomic adds, one uncontended lock; no allocation once the ring is full, and the log
/// event only where level `debug` is on for the target `request`.
#[derive(Debug)]
pub struct Telemetry {
    series: ArcSwap<Series>,
    recent: Recent,
    signals: SignalBoard,
    reloads: [AtomicU64; RELOADS.len()],
    /// Generation of the config in force.
    generation: AtomicU64,
    /// Whether the last reload was rejected.
    rejected: AtomicBool,
}

/// Results of a reload, in the order of `Telemetry::reloads`.
const RELOADS: [&str; 2] = ["applied", "rejected"];

/// What one config names.
#[derive(Debug)]
struct Series {
    /// The pools of the config, then `none`, then `other`.
    pools: Vec<PoolCounters>,
    places: HashMap<String, usize>,
    tenants: TenantCounters,
    /// Rules of the config, and their changes.
    rules: Vec<(String, Arc<AtomicU64>)>,
}

impl Series {
    /// Every series the config can need; those that `old` has count on.
    fn new(config: &Config, old: Option<&Self>) -> Self {
        let urls = |p: &tidegate_config::Pool| p.endpoints.iter().map(|e| e.url.to_string()).collect::<Vec<_>>();
        let known = |name: &str| old?.pools.iter().find(|p| p.name() == name);
        let counters = |name: &str, urls: Vec<String>| PoolCounters::new(name, urls.into_iter(), known(name));
        let mut pools: Vec<_> = config.pools.iter().map(|p| counters(&p.name, urls(p))).collect();
        let places = config.pools.iter().enumerate().map(|(k, p)| (p.name.clone(), k)).collect();
        pools.extend(["none", "other"].map(|name| counters(name, Vec::new())));
        let tenants = TenantCounters::new(config.tenants.as_ref(), old.map(|old| &old.tenants));
        let changes = |name: &str| Some(Arc::clone(&old?.rules.iter().find(|(n, _)| n == name)?.1));
        let rule = |r: &tidegate_config::Rule| (r.name().to_owned(), changes(r.name()).unwrap_or_default());
        Self { pools, places, tenants, rules: config.rules.iter().map(rule).collect() }
    }

    fn counters(&self, pool: &str) -> &PoolCounters {
        let configured = self.pools.len() - 2;
        let unlisted = if pool.is_empty() { configured } else { configured + 1 };
        &self.pools[self.places.get(pool).copied().unwrap_or(unlisted)]
    }
}

impl Telemetry {
    /// Makes every series the config can need.
    pub fn new(config: &Config) -> Self {
        Self {
            series: ArcSwap::from_pointee(Series::new(config, None)),
            recent: Recent::new(RECENT_RECORDS),
            signals: SignalBoard::default(),
            reloads: Default::default(),
            generation: AtomicU64::new(1),
            rejected: AtomicBool::new(false),
        }
    }

    /// Makes the series of another config. What both name counts on; what is gone disappears, and late records of it count as `other`.
    pub fn configure(&self, config: &Config) {
        let series = Series::new(config, Some(&self.series.load()));
        self.series.store(Arc::new(series));
        self.signals.keep(config);
    }

    /// A config came in force, as this generation.
    pub fn on_applied(&self, generation: u64) {
        self.reloads[0].fetch_add(1, Relaxed);
        self.generation.store(generation, Relaxed);
        self.rejected.store(false, Relaxed);
    }

    /// A config was rejected.
    pub fn on_rejected(&self) {
        self.reloads[1].fetch_add(1, Relaxed);
        self.rejected.store(true, Relaxed);
    }

    /// Counts what a check or a poll of an endpoint told; other events, and endpoints that the config does not name, are not counted.
    pub fn on_signal(&self, pool: &str, endpoint: &str, event: &Event) {
        let series = self.series.load();
        if let Some(&place) = series.places.get(pool) {
            series.pools[place].on_signal(endpoint, event);
        }
    }

    /// What a page of an endpoint exposes was found, or has changed.
    pub fn on_facts(&self, pool: &str, endpoint: &str, facts: SignalFacts) {
        self.signals.put(pool, endpoint, facts);
    }

    /// What the pages of an endpoint expose, in no order; empty where none was polled yet.
    pub fn facts(&self, pool: &str, endpoint: &str) -> Vec<SignalFacts> {
        self.signals.get(pool, endpoint)
    }

    /// Counts a change by the config's `rule`-th rule.
    pub fn on_rule_change(&self, rule: usize) {
        if let Some((_, changes)) = self.series.load().rules.get(rule) {
            changes.fetch_add(1, Relaxed);
        }
    }

    /// At most `limit` records, the newest first; [`RECENT_RECORDS`] are kept.
    pub fn recent(&self, limit: usize) -> Vec<Kept> {
        self.recent.newest(limit)
    }

    /// The kept records of a request id, the newest first.
    pub fn find(&self, request_id: &str) -> Vec<Kept> {
        self.recent.find(request_id)
    }

    /// Writes the families that records, signals and reloads make.
    pub fn render(&self, page: &mut Exposition) {
        let series = self.series.load();
        counters::render(&series.pools, page);
        series.tenants.render(page);
        page.family(&family::RULE_CHANGES);
        series.rules.iter().for_each(|(name, n)| page.count(&family::RULE_CHANGES, &[name], n.load(Relaxed)));
        page.family(&family::RELOADS);
        for (result, n) in RELOADS.iter().zip(&self.reloads) {
            page.count(&family::RELOADS, &[result], n.load(Relaxed));
        }
        page.family(&family::GENERATION);
        page.sample(&family::GENERATION, &[], self.generation.load(Relaxed) as f64);
        page.family(&family::REJECTED);
        page.sample(&family::REJECTED, &[], f64::from(self.rejected.load(Relaxed)));
    }
}

impl Sink for Telemetry {
    fn on_record(&self, record: &Record) {
        let series = self.series.load();
        series.counters(&record.pool).on_record(record);
        series.tenants.on_record(record);
        self.recent.push(record);
        log(record);
    }
}

/// One wide event. At `debug`, so that a busy gateway does not write a line per request unless asked.
pub(crate) fn log(record: &Record) {
    if !tracing::enabled!(target: "request", tracing::Level::DEBUG) {
        return;
    }
    tracing::debug!(
        target: "request",
        request_id = record.request_id,
        method = &*record.method,
        path = record.path,
        tenant = &*record.tenant,
        pool = &*record.pool,
        endpoint = &*record.endpoint,
        reason = record.reason,
        model = record.model,
        stream = record.stream,
        status = record.status,
        outcome = record.outcome,
        attempts = record.attempts,
        prompt_tokens = record.prompt_tokens,
        output_events = record.output_events,
        output_tokens = record.output_tokens,
        queued_s = record.queued_s,
        bytes_out = record.bytes_out,
        ttft_s = record.ttft_s,
        total_s = record.total_s,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent::tests::record;
    use tidegate_core::id::EndpointId;

    fn telemetry() -> Telemetry {
        let text =
            "listeners: [{ address: 127.0.0.1:0 }]\npools: { chat: { endpoints: [{ url: http://127.0.0.1:8001 }] } }";
        let (config, _) = Config::parse(text, "t.yaml", &|_| None).unwrap();
        Telemetry::new(&config)
    }

    fn page(telemetry: &Telemetry) -> String {
        let mut page = Exposition::default();
        telemetry.render(&mut page);
        page.finish()
    }

    #[track_caller]
    fn has(page: &str, line: &str) {
        assert!(page.lines().any(|l| l == line), "no line {line} in\n{page}");
    }

    #[test]
    fn records_are_counted_by_pool_endpoint_and_outcome() {
        let t = telemetry();
        let mut r = record("a");
        r.attempts = 3;
        (r.output_events, r.bytes_out) = (7, 100);
        t.on_record(&r);
        t.on_record(&r);
        for reason in ["consistent_hash;no_key", "retry;endpoint_reset;adaptive;degraded", "adaptive;price"] {
            t.on_record(&Record { reason: reason.to_owned(), pool: "chat".into(), ..Record::default() });
        }
        let page = page(&t);
        has(&page, r#"tidegate_requests_total{pool="chat",endpoint="http://127.0.0.1:8001",outcome="success"} 2"#);
        has(&page, r#"tidegate_retries_total{pool="chat"} 4"#);
        has(&page, r#"tidegate_keyless_total{pool="chat"} 1"#);
        has(&page, r#"tidegate_degraded_picks_total{pool="chat"} 1"#);
        has(&page, r#"tidegate_stream_events_total{pool="chat"} 14"#);
        has(&page, r#"tidegate_response_bytes_total{pool="chat"} 200"#);
        has(&page, r#"tidegate_ttft_seconds_bucket{pool="chat",le="0.025"} 2"#);
        has(&page, r#"tidegate_request_seconds_bucket{pool="chat",le="0.25"} 3"#);
        has(&page, r#"tidegate_request_seconds_count{pool="chat"} 5"#);
        assert_eq!(t.find("a").len(), 2);
    }

    #[test]
    fn requests_with_a_goal_are_counted_and_those_that_met_it() {
        let t = telemetry();
        for ttft_s in [0.1, 0.2, 5.0] {
            t.on_record(&Record { ttft_goal_s: 1.0, ttft_s, ..record("a") });
        }
        t.on_record(&record("a"));
        has(&page(&t), r#"tidegate_slo_requests_total{pool="chat"} 3"#);
        has(&page(&t), r#"tidegate_goodput_total{pool="chat"} 2"#);
    }

    #[test]
    fn cache_hits_are_counted_where_they_are_told() {
        let t = telemetry();
        assert!(!page(&t).contains("tidegate_cache_answers_total{"));
        for (cache_hit, cached_of) in [(Some(true), Some((100, 80))), (Some(false), Some((50, 0))), (None, None)] {
            t.on_record(&Record { cache_hit, cached_of, ..record("a") });
        }
        for line in [
            r#"tidegate_cache_answers_total{pool="chat",endpoint="http://127.0.0.1:8001",result="hit"} 1"#,
            r#"tidegate_cache_answers_total{pool="chat",endpoint="http://127.0.0.1:8001",result="miss"} 1"#,
            r#"tidegate_told_prompt_tokens_total{pool="chat"} 150"#,
            r#"tidegate_cached_tokens_total{pool="chat"} 80"#,
        ] {
            has(&page(&t), line);
        }
    }

    #[test]
    fn what_the_config_does_not_name_makes_no_series() {
        let t = telemetry();
        let mut r = record("a");
        (r.pool, r.endpoint, r.outcome, r.status) = ("".into(), "".into(), "no_route", 404);
        t.on_record(&r);
        for k in 0..100 {
            (r.pool, r.endpoint, r.status) = (format!("p{k}").into(), format!("e{k}").into(), 500);
            (r.outcome, r.ttft_s) = ("news", 0.0);
            t.on_record(&r);
        }
        let page = page(&t);
        has(&page, r#"tidegate_requests_total{pool="none",endpoint="none",outcome="no_route"} 1"#);
        has(&page, r#"tidegate_requests_total{pool="other",endpoint="other",outcome="other"} 100"#);
        has(&page, r#"tidegate_ttft_seconds_count{pool="other"} 0"#);
    }

    #[test]
    fn what_a_reload_keeps_counts_on_and_what_it_takes_away_disappears() {
        let t = telemetry();
        t.on_record(&record("a"));
        let text = "listeners: [{ address: 127.0.0.1:0 }]
pools: { chat: { endpoints: [{ url: http://127.0.0.1:8001 }, { url: http://127.0.0.1:8002 }] } }";
        t.configure(&Config::parse(text, "t.yaml", &|_| None).unwrap().0);
        t.on_applied(2);
        t.on_rejected();
        t.on_record(&record("b"));
        let before = page(&t);
        has(&before, r#"tidegate_requests_total{pool="chat",endpoint="http://127.0.0.1:8001",outcome="success"} 2"#);
        has(&before, r#"tidegate_request_seconds_count{pool="chat"} 2"#);
        has(&before, r#"tidegate_config_reloads_total{result="applied"} 1"#);
        has(&before, r#"tidegate_config_reloads_total{result="rejected"} 1"#);
        has(&before, "tidegate_config_generation 2");
        has(&before, "tidegate_config_rejected 1");
        t.configure(
            &Config::parse(&text.replace("{ url: http://127.0.0.1:8001 }, ", ""), "t.yaml", &|_| None).unwrap().0,
        );
        t.on_applied(3);
        t.on_record(&record("c"));
        let after = page(&t);
        assert!(!after.contains("127.0.0.1:8001"), "{after}");
        has(&after, r#"tidegate_requests_total{pool="chat",endpoint="other",outcome="success"} 1"#);
        has(&after, r#"tidegate_request_seconds_count{pool="chat"} 3"#);
        has(&after, "tidegate_config_rejected 0");
    }

    #[test]
    fn checks_and_polls_are_counted() {
        let t = telemetry();
        let url = "http://127.0.0.1:8001";
        t.on_signal("chat", url, &Event::Checked { endpoint: EndpointId(0), passed: true });
        t.on_signal("chat", url, &Event::LoadMissed(EndpointId(0)));
        t.on_signal("chat", "other", &Event::LoadMissed(EndpointId(9)));
        t.on_signal("news", url, &Event::LoadMissed(EndpointId(0)));
        let page = page(&t);
        let series = |result| format!("{{pool=\"chat\",endpoint=\"http://127.0.0.1:8001\",result=\"{result}\"}}");
        has(&page, &format!("tidegate_health_checks_total{} 1", series("passed")));
        has(&page, &format!("tidegate_health_checks_total{} 0", series("failed")));
        has(&page, &format!("tidegate_load_polls_total{} 1", series("missed")));
    }
}
