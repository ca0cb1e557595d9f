//! What is counted per pool. Every series exists from the start, at a place computed from two indices: counting is one look-up by
//! name and a few atomic adds.

use crate::exposition::Exposition;
use crate::families::family;
use crate::histogram::{Histogram, TOTAL_BOUNDS_S, TTFT_BOUNDS_S};
use crate::outcomes::{self, OUTCOMES};
use crate::record::Record;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;

/// Results of checks and polls, in the order of [`Signals`].
const RESULTS: [(&str, &str); 2] = [("passed", "failed"), ("reported", "missed")];

/// Counters of one pool.
#[derive(Debug)]
pub(crate) struct PoolCounters {
    name: String,
    /// Endpoint labels: those of the config, then `none`, then `other`.
    endpoints: Vec<String>,
    places: HashMap<String, usize>,
    /// By endpoint, then outcome.
    requests: Box<[AtomicU64]>,
    /// By endpoint of the config: checks passed and failed, polls reported and missed.
    signals: Box<[[AtomicU64; 4]]>,
    retries: AtomicU64,
    keyless: AtomicU64,
    degraded_picks: AtomicU64,
    stream_events: AtomicU64,
    response_bytes: AtomicU64,
    ttft: Histogram,
    total: Histogram,
}

impl PoolCounters {
    pub(crate) fn new(name: &str, urls: impl Iterator<Item = String>) -> Self {
        let mut endpoints: Vec<String> = urls.collect();
        let places = endpoints.iter().cloned().enumerate().map(|(k, url)| (url, k)).collect();
        let signals = endpoints.iter().map(|_| Default::default()).collect();
        endpoints.extend(["none".to_owned(), "other".to_owned()]);
        Self {
            name: name.to_owned(),
            requests: (0..endpoints.len() * OUTCOMES.len()).map(|_| AtomicU64::new(0)).collect(),
            endpoints,
            places,
            signals,
            retries: AtomicU64::new(0),
            keyless: AtomicU64::new(0),
            degraded_picks: AtomicU64::new(0),
            stream_events: AtomicU64::new(0),
            response_bytes: AtomicU64::new(0),
            ttft: Histogram::new(TTFT_BOUNDS_S),
            total: Histogram::new(TOTAL_BOUNDS_S),
        }
    }

    pub(crate) fn on_record(&self, record: &Record) {
        let configured = self.endpoints.len() - 2;
        let unlisted = if record.endpoint.is_empty() { configured } else { configured + 1 };
        let endpoint = self.places.get(&*record.endpoint).copied().unwrap_or(unlisted);
        let outcome = outcomes::place(record.outcome, record.status);
        self.requests[endpoint * OUTCOMES.len() + outcome].fetch_add(1, Relaxed);
        let retries = record.attempts.saturating_sub(1);
        if retries > 0 {
            self.retries.fetch_add(u64::from(retries), Relaxed);
        }
        if record.reason.ends_with(";no_key") {
            self.keyless.fetch_add(1, Relaxed);
        } else if record.reason.ends_with(";degraded") {
            self.degraded_picks.fetch_add(1, Relaxed);
        }
        if record.output_events > 0 {
            self.stream_events.fetch_add(record.output_events, Relaxed);
        }
        self.response_bytes.fetch_add(record.bytes_out, Relaxed);
        if record.ttft_s > 0.0 {
            self.ttft.observe(record.ttft_s);
        }
        self.total.observe(record.total_s);
    }

    pub(crate) fn on_signal(&self, event: &Event) {
        let (id, place) = match *event {
            Event::Checked { endpoint, passed } => (endpoint, usize::from(!passed)),
            Event::LoadReported { endpoint, .. } => (endpoint, 2),
            Event::LoadMissed(endpoint) => (endpoint, 3),
            _ => return,
        };
        if let Some(counts) = self.signals.get(EndpointId::index(id)) {
            counts[place].fetch_add(1, Relaxed);
        }
    }

    fn render_requests(&self, page: &mut Exposition) {
        for (endpoint, counts) in self.endpoints.iter().zip(self.requests.chunks(OUTCOMES.len())) {
            for (outcome, count) in OUTCOMES.iter().zip(counts) {
                // Nearly all of the pairs never happen; a page of zeros would be a hundred times as long.
                let count = count.load(Relaxed);
                if count > 0 {
                    page.count(&family::REQUESTS, &[&self.name, endpoint, outcome], count);
                }
            }
        }
    }

    fn render_signals(&self, page: &mut Exposition, family: &crate::Family, kind: usize) {
        let (good, bad) = RESULTS[kind];
        for (endpoint, counts) in self.endpoints.iter().zip(&self.signals) {
            let [ok, not] = [&counts[2 * kind], &counts[2 * kind + 1]].map(|c| c.load(Relaxed));
            // Pools without such a signal have no series.
            if ok + not > 0 {
                page.count(family, &[&self.name, endpoint, good], ok);
                page.count(family, &[&self.name, endpoint, bad], not);
            }
        }
    }
}

/// Writes every family of counters over all pools.
pub(crate) fn render(pools: &[PoolCounters], page: &mut Exposition) {
    page.family(&family::REQUESTS);
    pools.iter().for_each(|p| p.render_requests(page));
    for (family, read) in [
        (family::RETRIES, (|p| &p.retries) as fn(&PoolCounters) -> &AtomicU64),
        (family::KEYLESS, |p| &p.keyless),
        (family::DEGRADED_PICKS, |p| &p.degraded_picks),
        (family::STREAM_EVENTS, |p| &p.stream_events),
        (family::RESPONSE_BYTES, |p| &p.response_bytes),
    ] {
        page.family(&family);
        pools.iter().for_each(|p| page.count(&family, &[&p.name], read(p).load(Relaxed)));
    }
    page.family(&family::TTFT);
    pools.iter().for_each(|p| page.histogram(&family::TTFT, &[&p.name], &p.ttft));
    page.family(&family::TOTAL);
    pools.iter().for_each(|p| page.histogram(&family::TOTAL, &[&p.name], &p.total));
    for (kind, family) in [family::CHECKS, family::POLLS].into_iter().enumerate() {
        page.family(&family);
        pools.iter().for_each(|p| p.render_signals(page, &family, kind));
    }
}
