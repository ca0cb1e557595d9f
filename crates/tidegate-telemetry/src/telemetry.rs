//! The sink of the live gateway: counts, keeps and logs every record.

use crate::counters::{self, PoolCounters};
use crate::exposition::Exposition;
use crate::families::family;
use crate::recent::{Kept, RECENT_RECORDS, Recent};
use crate::record::{Record, Sink};
use crate::tenants::TenantCounters;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_config::Config;
use tidegate_core::event::Event;

/// Metrics, the last records, and one log event per request.
///
/// Cost per record: two hash look-ups, about eight atomic adds, one uncontended lock; no allocation once the ring is full, and the log
/// event only where level `debug` is on for the target `request`.
#[derive(Debug)]
pub struct Telemetry {
    /// The pools of the config, then `none`, then `other`.
    pools: Vec<PoolCounters>,
    places: HashMap<String, usize>,
    recent: Recent,
    tenants: TenantCounters,
    /// Rules of the config, and their changes.
    rules: Vec<(String, AtomicU64)>,
}

impl Telemetry {
    /// Makes every series the config can need.
    pub fn new(config: &Config) -> Self {
        let urls = |p: &tidegate_config::Pool| p.endpoints.iter().map(|e| e.url.to_string()).collect::<Vec<_>>();
        let mut pools: Vec<_> = config.pools.iter().map(|p| PoolCounters::new(&p.name, urls(p).into_iter())).collect();
        let places = config.pools.iter().enumerate().map(|(k, p)| (p.name.clone(), k)).collect();
        pools.extend(["none", "other"].map(|name| PoolCounters::new(name, std::iter::empty())));
        let tenants = TenantCounters::new(config.tenants.as_ref());
        let rules = config.rules.iter().map(|r| (r.name().to_owned(), AtomicU64::new(0))).collect();
        Self { pools, places, recent: Recent::new(RECENT_RECORDS), tenants, rules }
    }

    /// Counts what a check or a poll of the config's `pool`-th pool told; other events are not counted.
    pub fn on_signal(&self, pool: usize, event: &Event) {
        // The last two are no pools of the config.
        if let Some(counters) = self.pools[..self.pools.len() - 2].get(pool) {
            counters.on_signal(event);
        }
    }

    /// Counts a change by the config's `rule`-th rule.
    pub fn on_rule_change(&self, rule: usize) {
        if let Some((_, changes)) = self.rules.get(rule) {
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

    /// Writes the families that records and signals make.
    pub fn render(&self, page: &mut Exposition) {
        counters::render(&self.pools, page);
        self.tenants.render(page);
        page.family(&family::RULE_CHANGES);
        self.rules.iter().for_each(|(name, n)| page.count(&family::RULE_CHANGES, &[name], n.load(Relaxed)));
    }

    fn counters(&self, pool: &str) -> &PoolCounters {
        let configured = self.pools.len() - 2;
        let unlisted = if pool.is_empty() { configured } else { configured + 1 };
        &self.pools[self.places.get(pool).copied().unwrap_or(unlisted)]
    }
}

impl Sink for Telemetry {
    fn on_record(&self, record: &Record) {
        self.counters(&record.pool).on_record(record);
        self.tenants.on_record(record);
        self.recent.push(record);
        log(record);
    }
}

/// One wide event. At `debug`, so that a busy gateway does not write a line per request unless asked.
fn log(record: &Record) {
    if !tracing::enabled!(target: "request", tracing::Level::DEBUG) {
        return;
    }
    tracing::debug!(
        target: "request",
        request_id = record.request_id,
        method = record.method,
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
    fn checks_and_polls_are_counted() {
        let t = telemetry();
        t.on_signal(0, &Event::Checked { endpoint: EndpointId(0), passed: true });
        t.on_signal(0, &Event::LoadMissed(EndpointId(0)));
        t.on_signal(0, &Event::LoadMissed(EndpointId(9)));
        t.on_signal(9, &Event::LoadMissed(EndpointId(0)));
        let page = page(&t);
        let series = |result| format!("{{pool=\"chat\",endpoint=\"http://127.0.0.1:8001\",result=\"{result}\"}}");
        has(&page, &format!("tidegate_health_checks_total{} 1", series("passed")));
        has(&page, &format!("tidegate_health_checks_total{} 0", series("failed")));
        has(&page, &format!("tidegate_load_polls_total{} 1", series("missed")));
    }
}
