//! `/metrics`: what telemetry counted, and gauges read from the pools at this moment.

use crate::pools::{EndpointView, PoolView, PrefixView};
use std::sync::Arc;
use tidegate_core::endpoint::Gate;
use tidegate_core::prefix::Hearing;
use tidegate_proxy::PoolHandle;
use tidegate_telemetry::{Exposition, Family, Telemetry, family};

type PoolGauge = (Family, fn(&PoolView) -> f64);
type PrefixNumber = (Family, fn(&PrefixView) -> f64);
type EndpointGauge = (Family, fn(&PoolView, &EndpointView) -> Option<f64>);

const PREFIX_NUMBERS: [PrefixNumber; 3] = [
    (family::PREFIX_BLOCKS, |p| p.blocks as f64),
    (family::PREFIX_BYTES, |p| p.bytes as f64),
    (family::PREFIX_MATCHED, |p| p.matched_tokens),
];

const POOL_GAUGES: [PoolGauge; 5] = [
    (family::POOL_WAITING, |p| p.waiting as f64),
    (family::POOL_IN_FLIGHT, |p| p.in_flight as f64),
    (family::POOL_PANIC, |p| f64::from(p.panic)),
    (family::POOL_AFFINITY_KEYS, |p| p.affinity_keys as f64),
    (family::POOL_DEGRADED, |p| p.degraded as f64),
];

const ENDPOINT_GAUGES: [EndpointGauge; 13] = [
    (family::IN_FLIGHT, |_, e| Some(f64::from(e.in_flight))),
    (family::PENDING, |_, e| Some(f64::from(e.pending))),
    (family::WEIGHT, |_, e| Some(e.weight)),
    (family::SHARE, |_, e| Some(e.share)),
    (family::LOAD, |_, e| e.load),
    (family::HEALTHY, |_, e| e.healthy().map(f64::from)),
    (family::OPEN, |_, e| Some(f64::from(e.is_open()))),
    (family::DEGRADED, |p, e| p.has_load.then(|| f64::from(e.degraded.is_some()))),
    (family::CACHE_HEARD, |_, e| e.cache.as_ref()?.hearing.map(|h| f64::from(h != Hearing::Missing))),
    (family::CACHE_TOKENS, |_, e| e.cache.as_ref().filter(|c| c.hearing.is_some())?.resident_tokens.map(|t| t as f64)),
    (family::CACHE_GAPS, |_, e| e.cache.as_ref().filter(|c| c.hearing.is_some()).map(|c| c.gaps as f64)),
    (family::RESPONSE, |_, e| e.response_time_s),
    (family::DISPATCHED, |_, e| Some(e.dispatched() as f64)),
];

/// The page of `/metrics`, in the Prometheus text format.
pub fn render(pools: &[Arc<PoolHandle>], telemetry: &Telemetry) -> String {
    let mut page = Exposition::default();
    page.family(&family::BUILD);
    page.sample(&family::BUILD, &[env!("CARGO_PKG_VERSION")], 1.0);
    telemetry.render(&mut page);
    let pools: Vec<PoolView> = pools.iter().map(|p| PoolView::read(p)).collect();
    let prefixes = || pools.iter().filter_map(|p| Some((&*p.name, p.prefix_cache.as_ref()?)));
    page.family(&family::POOL_LIMIT);
    for pool in &pools {
        if let Some(limit) = pool.limit {
            page.sample(&family::POOL_LIMIT, &[&pool.name], f64::from(limit));
        }
    }
    page.family(&family::POOL_ENDPOINTS);
    for pool in &pools {
        for (gate, &count) in Gate::ALL.iter().zip(&pool.gates) {
            page.sample(&family::POOL_ENDPOINTS, &[&pool.name, gate.as_str()], f64::from(count));
        }
    }
    for (family, read) in &POOL_GAUGES {
        page.family(family);
        pools.iter().for_each(|p| page.sample(family, &[&p.name], read(p)));
    }
    for (family, read) in &PREFIX_NUMBERS {
        page.family(family);
        prefixes().for_each(|(name, cache)| page.sample(family, &[name], read(cache)));
    }
    page.family(&family::PREFIX_LOOKUPS);
    for (name, cache) in prefixes() {
        page.sample(&family::PREFIX_LOOKUPS, &[name, "hit"], cache.hits as f64);
        page.sample(&family::PREFIX_LOOKUPS, &[name, "miss"], cache.misses as f64);
    }
    let endpoints = || pools.iter().flat_map(|p| p.endpoints.iter().map(move |e| (p, e)));
    for (family, read) in &ENDPOINT_GAUGES {
        page.family(family);
        for (pool, endpoint) in endpoints() {
            if let Some(value) = read(pool, endpoint) {
                page.sample(family, &[&pool.name, &endpoint.url], value);
            }
        }
    }
    page.family(&family::GATE);
    endpoints().for_each(|(p, e)| page.sample(&family::GATE, &[&p.name, &e.url, e.gate], 1.0));
    page.finish()
}
