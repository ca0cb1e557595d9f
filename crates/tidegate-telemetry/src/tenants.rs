//! What is counted per tenant. Labels are the tenants of the config, `anonymous` and `other`: no client can make series.

use crate::exposition::Exposition;
use crate::families::family;
use crate::record::Record;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_config::Tenants;

/// How requests of a tenant ended, in the words of the label.
const RESULTS: [&str; 4] = ["served", "limited", "refused", "failed"];
const KINDS: [&str; 2] = ["prompt", "output"];

#[derive(Debug, Default)]
struct Counts {
    results: [AtomicU64; RESULTS.len()],
    tokens: [AtomicU64; KINDS.len()],
}

/// Counters by tenant; none where nobody is told apart.
#[derive(Debug, Default)]
pub(crate) struct TenantCounters {
    names: Vec<String>,
    places: HashMap<String, usize>,
    counts: Vec<Arc<Counts>>,
}

impl TenantCounters {
    /// Counters of the tenants of a config; those that `old` has count on.
    pub(crate) fn new(tenants: Option<&Tenants>, old: Option<&Self>) -> Self {
        let Some(tenants) = tenants else { return Self::default() };
        let mut names: Vec<String> = tenants.named.iter().map(|t| t.name.clone()).collect();
        if !names.iter().any(|n| n == "anonymous") {
            names.push("anonymous".to_owned());
        }
        names.push("other".to_owned());
        let places = names.iter().cloned().enumerate().map(|(k, name)| (name, k)).collect();
        let known = |name: &String| old.and_then(|old| Some(Arc::clone(&old.counts[*old.places.get(name)?])));
        Self { counts: names.iter().map(|name| known(name).unwrap_or_default()).collect(), names, places }
    }

    pub(crate) fn on_record(&self, record: &Record) {
        let place = self.places.get(&*record.tenant).copied().unwrap_or(self.names.len().saturating_sub(1));
        let Some(counts) = self.counts.get(place) else { return };
        let result = match record.status {
            429 | 413 => 1,
            400..=498 => 2,
            499.. => 3,
            _ => 0,
        };
        counts.results[result].fetch_add(1, Relaxed);
        if result == 0 {
            counts.tokens[0].fetch_add(u64::from(record.prompt_tokens), Relaxed);
            counts.tokens[1].fetch_add(record.output_tokens, Relaxed);
        }
    }

    pub(crate) fn render(&self, page: &mut Exposition) {
        page.family(&family::TENANT_REQUESTS);
        for (name, counts) in self.names.iter().zip(&self.counts) {
            for (result, count) in RESULTS.iter().zip(&counts.results) {
                page.count(&family::TENANT_REQUESTS, &[name, result], count.load(Relaxed));
            }
        }
        page.family(&family::TENANT_TOKENS);
        for (name, counts) in self.names.iter().zip(&self.counts) {
            for (kind, count) in KINDS.iter().zip(&counts.tokens) {
                page.count(&family::TENANT_TOKENS, &[name, kind], count.load(Relaxed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::Config;

    #[test]
    fn a_name_from_a_request_makes_no_series() {
        let text = "listeners: [{ address: 127.0.0.1:0 }]
tenants: { identify: [{ header: { name: x-tenant, trust: [127.0.0.1] } }], unknown: accept, named: { acme: {} } }
pools: { p: { endpoints: [{ url: http://127.0.0.1:8001 }] } }";
        let (config, _) = Config::parse(text, "t.yaml", &|_| None).unwrap();
        let counters = TenantCounters::new(config.tenants.as_ref(), None);
        for (tenant, status) in [("acme", 200), ("acme", 429), ("made-up-1", 200), ("made-up-2", 503)] {
            let record = Record { tenant: tenant.into(), status, prompt_tokens: 5, ..Record::default() };
            counters.on_record(&record);
        }
        let mut page = Exposition::default();
        counters.render(&mut page);
        let page = page.finish();
        for line in [
            "tidegate_tenant_requests_total{tenant=\"acme\",result=\"served\"} 1",
            "tidegate_tenant_requests_total{tenant=\"acme\",result=\"limited\"} 1",
            "tidegate_tenant_requests_total{tenant=\"other\",result=\"failed\"} 1",
            "tidegate_tenant_tokens_total{tenant=\"other\",kind=\"prompt\"} 5",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
        }
        assert!(!page.contains("made-up"));
    }
}
