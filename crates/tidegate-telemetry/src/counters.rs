//! What is counted per pool. Every series exists from the start, at a known place: counting is one look-up by
//! name and a few atomic adds.

use crate::exposition::Exposition;
use crate::families::family;
use crate::histogram::{Histogram, TOTAL_BOUNDS_S, TTFT_BOUNDS_S};
use crate::outcomes::{self, OUTCOMES};
use crate::record::Record;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_core::event::Event;

/// Results of checks and polls, in the order of [`Signals`].
const RESULTS: [(&str, &str); 2] = [("passed", "failed"), ("reported", "missed")];

/// Counters of one pool.
#[derive(Debug)]
pub(crate) struct PoolCounters {
    name: String,
    /// Those of the config, then `none`, then `other`.
    endpoints: Vec<Arc<EndpointCounters>>,
    places: HashMap<String, usize>,
    totals: Arc<Totals>,
}

/// Counters of one endpoint.
#[derive(Debug)]
struct EndpointCounters {
    label: String,
    /// By outcome.
    requests: [AtomicU64; OUTCOMES.len()],
    /// Checks passed and failed, polls reported and missed.
    signals: [AtomicU64; 4],
    /// Answers from its cache, and those not.
    cache: [AtomicU64; 2],
}

impl EndpointCounters {
    fn new(label: &str) -> Arc<Self> {
        let requests = std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Self { label: label.to_owned(), requests, signals: Default::default(), cache: Default::default() })
    }
}

/// What is counted of a pool as a whole.
#[derive(Debug)]
struct Totals {
    retries: AtomicU64,
    keyless: AtomicU64,
    degraded_picks: AtomicU64,
    stream_events: AtomicU64,
    response_bytes: AtomicU64,
    slo_requests: AtomicU64,
    goodput: AtomicU64,
    told_prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    ttft: Histogram,
    total: Histogram,
}

impl Totals {
    fn new() -> Self {
        Self {
            retries: AtomicU64::new(0),
            keyless: AtomicU64::new(0),
            degraded_picks: AtomicU64::new(0),
            stream_events: AtomicU64::new(0),
            response_bytes: AtomicU64::new(0),
            slo_requests: AtomicU64::new(0),
            goodput: AtomicU64::new(0),
            told_prompt_tokens: AtomicU64::new(0),
            cached_tokens: AtomicU64::new(0),
            ttft: Histogram::new(TTFT_BOUNDS_S),
            total: Histogram::new(TOTAL_BOUNDS_S),
        }
    }
}

impl PoolCounters {
    /// Counters of the pool `name`; those of `old`, the same pool before a reload, count on.
    pub(crate) fn new(name: &str, urls: impl Iterator<Item = String>, old: Option<&Self>) -> Self {
        let labels = urls.chain(["none".to_owned(), "other".to_owned()]);
        let known = |label: &str| old?.endpoints.iter().find(|e| e.label == label).map(Arc::clone);
        let endpoints: Vec<_> = labels.map(|l| known(&l).unwrap_or_else(|| EndpointCounters::new(&l))).collect();
        let places = endpoints.iter().enumerate().map(|(k, e)| (e.label.clone(), k)).collect();
        let totals = old.map_or_else(|| Arc::new(Totals::new()), |old| Arc::clone(&old.totals));
        Self { name: name.to_owned(), endpoints, places, totals }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn on_record(&self, record: &Record) {
        let configured = self.endpoints.len() - 2;
        let unlisted = if record.endpoint.is_empty() { configured } else { configured + 1 };
        let endpoint = self.places.get(&*record.endpoint).copied().unwrap_or(unlisted);
        let outcome = outcomes::place(record.outcome, record.status);
        self.endpoints[endpoint].requests[outcome].fetch_add(1, Relaxed);
        if let Some(hit) = record.cache_hit {
            self.endpoints[endpoint].cache[usize::from(!hit)].fetch_add(1, Relaxed);
        }
        let totals = &self.totals;
        if let Some((prompt, cached)) = record.cached_of {
            totals.told_prompt_tokens.fetch_add(prompt, Relaxed);
            totals.cached_tokens.fetch_add(cached, Relaxed);
        }
        let retries = record.attempts.saturating_sub(1);
        if retries > 0 {
            totals.retries.fetch_add(u64::from(retries), Relaxed);
        }
        if record.reason.ends_with(";no_key") {
            totals.keyless.fetch_add(1, Relaxed);
        } else if record.reason.ends_with(";degraded") {
            totals.degraded_picks.fetch_add(1, Relaxed);
        }
        if record.output_events > 0 {
            totals.stream_events.fetch_add(record.output_events, Relaxed);
        }
        totals.response_bytes.fetch_add(record.bytes_out, Relaxed);
        if let Some(met) = record.met_goal() {
            totals.slo_requests.fetch_add(1, Relaxed);
            totals.goodput.fetch_add(u64::from(met), Relaxed);
        }
        if record.ttft_s > 0.0 {
            totals.ttft.observe(record.ttft_s);
        }
        totals.total.observe(record.total_s);
    }

    pub(crate) fn on_signal(&self, endpoint: &str, event: &Event) {
        let place = match *event {
            Event::Checked { passed, .. } => usize::from(!passed),
            Event::LoadReported { .. } => 2,
            Event::LoadMissed(_) => 3,
            _ => return,
        };
        let configured = self.endpoints.len() - 2;
        if let Some(&at) = self.places.get(endpoint).filter(|&&at| at < configured) {
            self.endpoints[at].signals[place].fetch_add(1, Relaxed);
        }
    }

    fn render_requests(&self, page: &mut Exposition) {
        for endpoint in &self.endpoints {
            for (outcome, count) in OUTCOMES.iter().zip(&endpoint.requests) {
                // Nearly all of the pairs never happen; a page of zeros would be a hundred times as long.
                let count = count.load(Relaxed);
                if count > 0 {
                    page.count(&family::REQUESTS, &[&self.name, &endpoint.label, outcome], count);
                }
            }
        }
    }

    fn render_cache(&self, page: &mut Exposition) {
        for endpoint in &self.endpoints {
            let [hits, misses] = [0, 1].map(|k| endpoint.cache[k].load(Relaxed));
            // Endpoints that never said have no series.
            if hits + misses > 0 {
                page.count(&family::CACHE_ANSWERS, &[&self.name, &endpoint.label, "hit"], hits);
                page.count(&family::CACHE_ANSWERS, &[&self.name, &endpoint.label, "miss"], misses);
            }
        }
    }

    fn render_signals(&self, page: &mut Exposition, family: &crate::Family, kind: usize) {
        let (good, bad) = RESULTS[kind];
        for endpoint in &self.endpoints {
            let counts = &endpoint.signals;
            let [ok, not] = [&counts[2 * kind], &counts[2 * kind + 1]].map(|c| c.load(Relaxed));
            // Pools without such a signal have no series.
            if ok + not > 0 {
                page.count(family, &[&self.name, &endpoint.label, good], ok);
                page.count(family, &[&self.name, &endpoint.label, bad], not);
            }
        }
    }
}

/// Writes every family of counters over all pools.
pub(crate) fn render(pools: &[PoolCounters], page: &mut Exposition) {
    page.family(&family::REQUESTS);
    pools.iter().for_each(|p| p.render_requests(page));
    for (family, read) in [
        (family::RETRIES, (|t| &t.retries) as fn(&Totals) -> &AtomicU64),
        (family::KEYLESS, |t| &t.keyless),
        (family::DEGRADED_PICKS, |t| &t.degraded_picks),
        (family::STREAM_EVENTS, |t| &t.stream_events),
        (family::RESPONSE_BYTES, |t| &t.response_bytes),
        (family::SLO_REQUESTS, |t| &t.slo_requests),
        (family::GOODPUT, |t| &t.goodput),
        (family::TOLD_PROMPT_TOKENS, |t| &t.told_prompt_tokens),
        (family::CACHED_TOKENS, |t| &t.cached_tokens),
    ] {
        page.family(&family);
        pools.iter().for_each(|p| page.count(&family, &[&p.name], read(&p.totals).load(Relaxed)));
    }
    page.family(&family::CACHE_ANSWERS);
    pools.iter().for_each(|p| p.render_cache(page));
    page.family(&family::TTFT);
    pools.iter().for_each(|p| page.histogram(&family::TTFT, &[&p.name], &p.totals.ttft));
    page.family(&family::TOTAL);
    pools.iter().for_each(|p| page.histogram(&family::TOTAL, &[&p.name], &p.totals.total));
    for (kind, family) in [family::CHECKS, family::POLLS].into_iter().enumerate() {
        page.family(&family);
        pools.iter().for_each(|p| p.render_signals(page, &family, kind));
    }
}
