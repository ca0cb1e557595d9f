//! A pool as the data plane holds it: core's pool behind its lock, and where its endpoints are.

use crate::clock::Clock;
use crate::gateway::StartError;
use crate::hang::Hangs;
use crate::probe;
use crate::turn::Turns;
use crate::wire::{Secure, Wire};
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_config::{EndpointUrl, Journal, KeySource, Protocol};
use tidegate_core::event::{Effect, Event};
use tidegate_core::id::EndpointId;
use tidegate_core::pool::Pool;
use tidegate_core::time::Instant;
use tidegate_telemetry::{JournalSettings, JournalWriter};
use tidegate_tls::{Fault, Reloaded};
use tokio::sync::{Notify, mpsc};
use tokio_rustls::rustls::ClientConfig;

/// How often token progress is sampled.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Bounds on how long the pool's timer sleeps.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

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
    pub(crate) turns: Turns,
    pub(crate) hangs: Hangs,
    /// Probes to make, and where they are read until the gateway's first core takes it.
    probes: mpsc::Sender<probe::Asked>,
    probes_asked: Mutex<Option<mpsc::Receiver<probe::Asked>>>,
    pool: Mutex<Pool>,
    clock: Clock,
    /// Nanoseconds of the clock at which the pool's timer goes off, and the way to tell it of an earlier instant.
    wakes_at: AtomicU64,
    sooner: Notify,
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
    /// How it is spoken to by TLS; `None` in clear.
    pub(crate) secure: Option<Secure>,
    protocol: Protocol,
    /// Whether HTTP/2 may come of a connection.
    pub(crate) may_speak_http2: bool,
    /// Its URL as the value of `x-tidegate-endpoint`.
    pub(crate) header: http::HeaderValue,
    /// Tokens relayed since the last progress event, from all cores.
    pub(crate) tokens: AtomicU64,
}

impl PoolHandle {
    /// Builds core's pool from the settings. Every draw follows from `seed`.
    ///
    /// # Errors
    /// If its journal cannot be written, or an endpoint cannot be spoken to by TLS.
    pub(crate) fn new(
        index: usize,
        settings: &tidegate_config::Pool,
        journal: Option<&Journal>,
        clock: Clock,
        seed: u64,
        secure: Option<&Arc<Reloaded<ClientConfig>>>,
    ) -> Result<Self, StartError> {
        let (core, checked) = (settings.core(), settings.health.is_some());
        let told = JournalSettings::of(&settings.name, &core, checked, seed);
        let mut pool = Pool::new(core, checked, seed);
        if let Some(journal) = journal {
            let writer = JournalWriter::create(&journal.folder, &told, journal.max_bytes);
            pool.record_into(Box::new(writer.map_err(StartError::Journal)?));
        }
        let now = clock.now();
        for endpoint in settings.core_endpoints() {
            let _ = pool.add(now, endpoint);
        }
        let (probes, probes_asked) = mpsc::channel(probe::MAX_ASKED);
        let endpoints = settings.endpoints.iter().map(|e| EndpointHandle::new(&e.url, settings, secure));
        let endpoints = endpoints.collect::<Result<_, _>>().map_err(StartError::Tls)?;
        Ok(Self {
            name: settings.name.as_str().into(),
            endpoints,
            index,
            settings: settings.clone(),
            hash_key: settings.policy.key.clone(),
            affinity_key: settings.affinity.as_ref().map(|a| a.key.clone()),
            turns: Turns::default(),
            hangs: Hangs::default(),
            probes,
            probes_asked: Mutex::new(Some(probes_asked)),
            pool: Mutex::new(pool),
            clock,
            wakes_at: AtomicU64::new(u64::MAX),
            sooner: Notify::new(),
        })
    }

    /// Runs `f` under the pool's lock with the time of now. Never await in it. What the pool then wants done is done before it returns.
    pub fn with<T>(&self, f: impl FnOnce(&mut Pool, Instant) -> T) -> T {
        let mut effects = Vec::new();
        let mut pool = self.pool.lock();
        // The time is taken under the lock, so that the pool's inputs are in the order of their times.
        let now = self.clock.now();
        let result = f(&mut pool, now);
        pool.drain_effects(&mut effects);
        let next = pool.next_deadline().map_or(u64::MAX, Instant::as_nanos);
        drop(pool);
        if next < self.wakes_at.load(Relaxed) {
            self.sooner.notify_one();
        }
        effects.iter().for_each(|e| self.carry_out(e));
        result
    }

    /// The time of now on the pool's clock.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The pool's clock.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// The probes to make; whoever takes it makes them.
    pub(crate) fn take_probes(&self) -> Option<mpsc::Receiver<probe::Asked>> {
        self.probes_asked.lock().take()
    }

    /// Lets the pool's time pass when it wants to, until the gateway stops.
    pub(crate) async fn keep_time(&self) {
        loop {
            self.wakes_at.store(u64::MAX, Relaxed);
            let next = self.pool.lock().next_deadline().unwrap_or(Instant::FAR_FUTURE);
            self.wakes_at.store(next.as_nanos(), Relaxed);
            let wait = next.since(self.clock.now()).min(LONGEST_SLEEP);
            // At least a moment, so that a deadline that does not move cannot keep a core busy.
            let _ = tokio::time::timeout(wait.max(SHORTEST_SLEEP), self.sooner.notified()).await;
            self.with(|pool, now| pool.on_deadline(now));
        }
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
        self.with(|pool, now| {
            for (place, endpoint) in self.endpoints.iter().enumerate() {
                let tokens = endpoint.tokens.swap(0, Relaxed);
                pool.on_event(now, Event::Progress { endpoint: EndpointId(place as u32), tokens });
            }
            pool.on_deadline(now);
        });
    }

    fn carry_out(&self, effect: &Effect) {
        let (pool, url) = (&*self.name, |id: EndpointId| &*self.endpoints[id.index()].url);
        match effect {
            Effect::Breaker { endpoint, class, from, to, why } => {
                let (from, to) = (from.as_str(), to.as_str());
                tracing::warn!(pool, endpoint = url(*endpoint), class, from, to, why, "breaker");
            }
            Effect::PoolFailing(true) => tracing::error!(pool, "every endpoint fails alike: no breaker opens"),
            Effect::PoolFailing(false) => tracing::info!(pool, "the endpoints no longer fail alike"),
            Effect::Probe { endpoint, probe, timeout } => {
                let (endpoint, probe, timeout) = (*endpoint, *probe, *timeout);
                if self.probes.try_send(probe::Asked { endpoint, probe, timeout }).is_err() {
                    tracing::warn!(pool, endpoint = url(endpoint), "too many probes are under way: one is left out");
                }
            }
            Effect::Redispatch(key) => self.hangs.tell(*key),
            Effect::Health { endpoint, healthy: true } => {
                tracing::info!(pool, endpoint = url(*endpoint), "endpoint is healthy");
            }
            Effect::Health { endpoint, healthy: false } => {
                tracing::warn!(pool, endpoint = url(*endpoint), "endpoint is unhealthy");
            }
            Effect::Turn(id) => self.turns.tell(*id),
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
    fn new(
        url: &EndpointUrl,
        pool: &tidegate_config::Pool,
        secure: Option<&Arc<Reloaded<ClientConfig>>>,
    ) -> Result<Self, Fault> {
        let text = url.to_string();
        let header = http::HeaderValue::try_from(text.as_str()).unwrap_or(http::HeaderValue::from_static("endpoint"));
        let secure = match secure.filter(|_| url.is_tls()) {
            Some(settings) => {
                let name = tidegate_tls::server_name(&pool.tls, url.host())?;
                Some(Secure { settings: Arc::clone(settings), name })
            }
            None => None,
        };
        let may_speak_http2 = match pool.protocol {
            Protocol::Auto => secure.is_some(),
            Protocol::Http1 => false,
            Protocol::H2 => true,
        };
        Ok(Self {
            url: text.into(),
            authority: url.authority(),
            address: url.host().parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, url.port())),
            secure,
            protocol: pool.protocol,
            may_speak_http2,
            header,
            tokens: AtomicU64::new(0),
        })
    }

    /// Whether it speaks HTTP/2 whatever a handshake finds.
    pub(crate) fn is_http2_certain(&self) -> bool {
        self.protocol == Protocol::H2
    }

    /// Whether HTTP/2 is spoken on this socket.
    pub(crate) fn speaks_http2(&self, socket: &Wire) -> bool {
        self.may_speak_http2 && (self.is_http2_certain() || socket.agreed_on_http2())
    }
}
