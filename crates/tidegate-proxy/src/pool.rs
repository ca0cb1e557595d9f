//! A pool as the data plane holds it: core's pool behind its lock, and where its endpoints are.

use crate::clock::Clock;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_config::{Journal, KeySource};
use tidegate_core::event::{Effect, Event};
use tidegate_core::id::EndpointId;
use tidegate_core::pool::Pool;
use tidegate_telemetry::{JournalError, JournalSettings, JournalWriter};

/// How often token progress is sampled.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// One pool, shared by all cores.
#[derive(Debug)]
pub struct PoolHandle {
    /// Its name in the config.
    pub name: Arc<str>,
    /// Its endpoints; the place is the [`EndpointId`].
    pub endpoints: Vec<EndpointHandle>,
    pub(crate) index: usize,
    pub(crate) settings: tidegate_config::Pool,
    pub(crate) hash_key: Option<KeySource>,
    pub(crate) affinity_key: Option<KeySource>,
    pool: Mutex<Pool>,
    clock: Clock,
}

/// Where one endpoint is.
#[derive(Debug)]
pub struct EndpointHandle {
    /// Its URL as configured.
    pub url: Arc<str>,
    /// `host:port`.
    pub authority: String,
    /// The address, where the host is one.
    pub(crate) address: Option<SocketAddr>,
    /// Its URL as the value of `x-tidegate-endpoint`.
    pub(crate) header: http::HeaderValue,
    /// Tokens relayed since the last progress event, from all cores.
    pub(crate) tokens: AtomicU64,
}

impl PoolHandle {
    /// Builds core's pool from the settings. Every draw follows from `seed`.
    ///
    /// # Errors
    /// If its journal cannot be written.
    pub(crate) fn new(
        index: usize,
        settings: &tidegate_config::Pool,
        journal: Option<&Journal>,
        clock: Clock,
        seed: u64,
    ) -> Result<Self, JournalError> {
        let (core, checked) = (settings.core(), settings.health.is_some());
        let told = JournalSettings::of(&settings.name, &core, checked, seed);
        let mut pool = Pool::new(core, checked, seed);
        if let Some(journal) = journal {
            pool.record_into(Box::new(JournalWriter::create(&journal.folder, &told, journal.max_bytes)?));
        }
        let now = clock.now();
        for endpoint in settings.core_endpoints() {
            let _ = pool.add(now, endpoint);
        }
        let endpoints = settings.endpoints.iter().map(|e| EndpointHandle::new(&e.url)).collect();
        Ok(Self {
            name: settings.name.as_str().into(),
            endpoints,
            index,
            settings: settings.clone(),
            hash_key: settings.policy.key.clone(),
            affinity_key: settings.affinity.as_ref().map(|a| a.key.clone()),
            pool: Mutex::new(pool),
            clock,
        })
    }

    /// Runs `f` under the pool's lock with the time of now. Never await in it.
    pub fn with<T>(&self, f: impl FnOnce(&mut Pool, tidegate_core::time::Instant) -> T) -> T {
        let mut pool = self.pool.lock();
        // The time is taken under the lock, so that the pool's inputs are in the order of their times.
        let now = self.clock.now();
        f(&mut pool, now)
    }

    /// Tells the pool what happened.
    pub fn on_event(&self, event: Event) {
        self.with(|pool, now| pool.on_event(now, event));
    }

    /// The settings this pool was made from.
    pub fn settings(&self) -> &tidegate_config::Pool {
        &self.settings
    }

    /// The endpoint at `url`.
    pub fn find(&self, url: &str) -> Option<EndpointId> {
        let trimmed = url.trim_end_matches('/');
        let place =
            self.endpoints.iter().position(|e| e.url.trim_end_matches('/') == trimmed || e.authority == trimmed)?;
        Some(EndpointId(u32::try_from(place).ok()?))
    }

    /// Samples token progress into one event per endpoint, lets time pass, and logs what changed.
    pub(crate) fn tick(&self) {
        let mut effects = Vec::new();
        self.with(|pool, now| {
            for (place, endpoint) in self.endpoints.iter().enumerate() {
                let tokens = endpoint.tokens.swap(0, Relaxed);
                pool.on_event(now, Event::Progress { endpoint: EndpointId(place as u32), tokens });
            }
            pool.on_deadline(now);
            pool.drain_effects(&mut effects);
        });
        effects.iter().for_each(|e| self.log(e));
    }

    fn log(&self, effect: &Effect) {
        let (pool, url) = (&*self.name, |id: EndpointId| &*self.endpoints[id.index()].url);
        match effect {
            Effect::Breaker { endpoint, class, from, to, why } => {
                let (from, to) = (from.as_str(), to.as_str());
                tracing::warn!(pool, endpoint = url(*endpoint), class, from, to, why, "breaker");
            }
            Effect::PoolFailing(true) => tracing::error!(pool, "every endpoint fails alike: no breaker opens"),
            Effect::PoolFailing(false) => tracing::info!(pool, "the endpoints no longer fail alike"),
            Effect::Probe { .. } | Effect::Redispatch(_) => {}
            Effect::Health { endpoint, healthy: true } => {
                tracing::info!(pool, endpoint = url(*endpoint), "endpoint is healthy");
            }
            Effect::Health { endpoint, healthy: false } => {
                tracing::warn!(pool, endpoint = url(*endpoint), "endpoint is unhealthy");
            }
            Effect::Panic(true) => tracing::error!(pool, "too few endpoints pass their checks: panic mode"),
            Effect::Panic(false) => tracing::info!(pool, "enough endpoints pass their checks again"),
            Effect::Degraded { endpoint, why: Some(why) } => {
                tracing::warn!(pool, endpoint = url(*endpoint), why = why.as_str(), "load signal degraded");
            }
            Effect::Degraded { endpoint, why: None } => {
                tracing::info!(pool, endpoint = url(*endpoint), "load signal is back");
            }
        }
    }
}

impl EndpointHandle {
    fn new(url: &tidegate_config::EndpointUrl) -> Self {
        let text = url.to_string();
        let header = http::HeaderValue::try_from(text.as_str()).unwrap_or(http::HeaderValue::from_static("endpoint"));
        Self {
            url: text.into(),
            authority: url.authority(),
            address: url.host().parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, url.port())),
            header,
            tokens: AtomicU64::new(0),
        }
    }
}
