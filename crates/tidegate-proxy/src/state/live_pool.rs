//! A pool that runs: core's pool behind its lock, where its endpoints are, and who waits for it. It outlives the generations of the config.

use crate::request::hang::Hangs;
use crate::request::turn::Turns;
use crate::state::catalogue::Catalogue;
use crate::state::clock::Clock;
use crate::upstream::endpoint_handle::EndpointHandle;
use crate::upstream::probe;
use crate::upstream::wire::Spoken;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidegate_config::Journal;
use tidegate_core::event::{Effect, Event};
use tidegate_core::id::EndpointId;
use tidegate_core::pool::Pool;
use tidegate_core::time::Instant;
use tidegate_telemetry::{JournalError, JournalSettings, JournalWriter};
use tokio::sync::{Notify, mpsc};

/// How often token progress is sampled.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Bounds on how long the pool's timer sleeps.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// The endpoints of a pool; the place is the [`EndpointId`]. One that left stays at its place until another takes it.
pub(crate) type Endpoints = Vec<Arc<EndpointHandle>>;

/// One pool, shared by all cores and by every generation of the config that has it.
#[derive(Debug)]
pub(crate) struct LivePool {
    name: Arc<str>,
    pub(crate) turns: Turns,
    pub(crate) hangs: Hangs,
    /// What its endpoints call what they serve.
    pub(crate) catalogue: Catalogue,
    /// Probes to make, and where they are read until the gateway's first core takes it.
    probes: mpsc::Sender<probe::Asked>,
    probes_asked: Mutex<Option<mpsc::Receiver<probe::Asked>>>,
    /// Where the breaker's probes go at an endpoint; `None`: a connection is enough.
    probe_path: Mutex<Option<String>>,
    spoken: Mutex<Spoken>,
    inner: Mutex<Inner>,
    clock: Clock,
    /// Nanoseconds of the clock at which the pool's timer goes off, and the way to tell it of an earlier instant.
    wakes_at: AtomicU64,
    sooner: Notify,
    /// No config has it any more: it ends with its last request.
    retired: AtomicBool,
    /// When it began to be, in seconds since 1970.
    since_unix_s: u64,
}

#[derive(Debug)]
struct Inner {
    pool: Pool,
    /// Replaced, never changed, so that it can be read outside of the lock.
    endpoints: Arc<Endpoints>,
}

impl LivePool {
    /// Builds core's pool from the settings. Every draw follows from `seed`.
    ///
    /// # Errors
    /// If its journal cannot be written.
    pub(crate) fn new(
        settings: &tidegate_config::Pool,
        spoken: Spoken,
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
        let (probes, probes_asked) = mpsc::channel(probe::MAX_ASKED);
        Ok(Self {
            name: settings.name.as_str().into(),
            turns: Turns::default(),
            hangs: Hangs::default(),
            catalogue: Catalogue::default(),
            probes,
            probes_asked: Mutex::new(Some(probes_asked)),
            probe_path: Mutex::default(),
            spoken: Mutex::new(spoken),
            inner: Mutex::new(Inner { pool, endpoints: Arc::default() }),
            clock,
            wakes_at: AtomicU64::new(u64::MAX),
            sooner: Notify::new(),
            retired: AtomicBool::new(false),
            since_unix_s: unix_s(),
        })
    }

    /// Its name in the config.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// When it began to be, in seconds since 1970; to show, not to compute with.
    pub(crate) fn since_unix_s(&self) -> u64 {
        self.since_unix_s
    }

    /// How its endpoints are spoken to.
    pub(crate) fn spoken(&self) -> Spoken {
        self.spoken.lock().clone()
    }

    /// Takes the settings of a new generation and answers with the ids of its endpoints, in the order of the config. Endpoints that are in
    /// both, and are spoken to as before, keep what is known of them; those that are in neither leave when their last request ends.
    pub(crate) fn configure(&self, settings: &tidegate_config::Pool, spoken: Spoken, first: bool) -> Vec<EndpointId> {
        let path = settings.breaker.probe_path(settings.health.as_ref()).map(str::to_owned);
        *self.probe_path.lock() = path;
        self.with_table(|pool, now, table| {
            if !first {
                pool.reconfigure(now, settings.core(), settings.health.is_some());
            }
            let mut endpoints = (**table).clone();
            let present = table.iter().enumerate().filter(|(_, e)| !e.is_retired());
            // What is left of it at the end has to go.
            let mut known: HashMap<&str, EndpointId> =
                present.map(|(place, e)| (&*e.url, EndpointId(place as u32))).collect();
            let mut ids = Vec::with_capacity(settings.endpoints.len());
            for (endpoint, core) in settings.endpoints.iter().zip(settings.core_endpoints()) {
                let url = endpoint.url.to_string();
                let fitting = known.get(url.as_str()).filter(|id| table[id.index()].is_spoken_to(&spoken)).copied();
                if let Some(id) = fitting {
                    known.remove(url.as_str());
                    pool.change(now, id, &core);
                    ids.push(id);
                    continue;
                }
                let (id, handle) = (pool.add(now, core), Arc::new(EndpointHandle::new(&endpoint.url, &spoken)));
                self.catalogue.forget(id);
                match endpoints.get_mut(id.index()) {
                    Some(place) => *place = handle,
                    None => endpoints.push(handle),
                }
                ids.push(id);
            }
            let mut gone: Vec<EndpointId> = known.into_values().collect();
            gone.sort_unstable();
            for id in gone {
                endpoints[id.index()].retire();
                pool.remove(now, id);
            }
            *table = Arc::new(endpoints);
            *self.spoken.lock() = spoken;
            ids
        })
    }

    /// Runs `f` under the pool's lock with the time of now and the endpoints. Never await in it. What the pool then wants done is done before
    /// it returns.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Pool, Instant, &Endpoints) -> T) -> T {
        self.with_table(|pool, now, table| f(pool, now, table))
    }

    fn with_table<T>(&self, f: impl FnOnce(&mut Pool, Instant, &mut Arc<Endpoints>) -> T) -> T {
        let mut effects = Vec::new();
        let mut inner = self.inner.lock();
        let Inner { pool, endpoints } = &mut *inner;
        // The time is taken under the lock, so that the pool's inputs are in the order of their times.
        let now = self.clock.now();
        let result = f(pool, now, endpoints);
        pool.drain_effects(&mut effects);
        let next = pool.next_deadline().map_or(u64::MAX, Instant::as_nanos);
        let endpoints = (!effects.is_empty()).then(|| Arc::clone(endpoints));
        drop(inner);
        if next < self.wakes_at.load(Relaxed) {
            self.sooner.notify_one();
        }
        if let Some(endpoints) = endpoints {
            effects.iter().for_each(|e| self.carry_out(e, &endpoints));
        }
        result
    }

    /// Its endpoints as they are now.
    pub(crate) fn endpoints(&self) -> Arc<Endpoints> {
        Arc::clone(&self.inner.lock().endpoints)
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

    /// Where probes go at an endpoint.
    pub(crate) fn probe_path(&self) -> Option<String> {
        self.probe_path.lock().clone()
    }

    /// No config has the pool any more. Its requests end as they would have, whoever waits is served still, and then its tasks end.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Relaxed);
        self.with(|pool, _, _| pool.stop_recording());
        self.sooner.notify_one();
    }

    fn is_over(&self) -> bool {
        let is_idle = || self.with(|pool, _, _| pool.in_flight() == 0 && pool.waiting() == 0);
        self.retired.load(Relaxed) && is_idle()
    }

    /// Samples token progress and lets the pool's time pass, until the gateway stops or the pool is gone from the config and idle.
    pub(crate) async fn live(&self) {
        let mut every = tokio::time::interval(PROGRESS_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut time = std::pin::pin!(self.keep_time());
        loop {
            tokio::select! {
                () = &mut time => return,
                _ = every.tick() => {
                    self.tick();
                    if self.is_over() {
                        self.endpoints().iter().for_each(|e| e.retire());
                        return;
                    }
                }
            }
        }
    }

    /// Lets the pool's time pass when it wants to.
    async fn keep_time(&self) {
        loop {
            self.wakes_at.store(u64::MAX, Relaxed);
            let next = self.inner.lock().pool.next_deadline().unwrap_or(Instant::FAR_FUTURE);
            self.wakes_at.store(next.as_nanos(), Relaxed);
            let wait = next.since(self.clock.now()).min(LONGEST_SLEEP);
            // At least a moment, so that a deadline that does not move cannot keep a core busy.
            let _ = tokio::time::timeout(wait.max(SHORTEST_SLEEP), self.sooner.notified()).await;
            self.with(|pool, now, _| pool.on_deadline(now));
        }
    }

    /// Samples token progress into one event per endpoint and lets time pass.
    fn tick(&self) {
        self.with(|pool, now, endpoints| {
            for (place, endpoint) in endpoints.iter().enumerate() {
                let tokens = endpoint.tokens.take();
                pool.on_event(now, Event::Progress { endpoint: EndpointId(place as u32), tokens });
            }
            pool.on_deadline(now);
        });
    }

    fn carry_out(&self, effect: &Effect, endpoints: &Endpoints) {
        let (pool, url) = (&*self.name, |id: EndpointId| &*endpoints[id.index()].url);
        match effect {
            Effect::Breaker { endpoint, class, from, to, why } => {
                let (from, to) = (from.as_str(), to.as_str());
                tracing::warn!(pool, endpoint = url(*endpoint), class, from, to, why, "breaker");
            }
            Effect::PoolFailing(true) => tracing::error!(pool, "every endpoint fails alike: no breaker opens"),
            Effect::PoolFailing(false) => tracing::info!(pool, "the endpoints no longer fail alike"),
            Effect::Probe { endpoint, probe, timeout } => {
                let (id, probe, timeout) = (*endpoint, *probe, *timeout);
                let asked = probe::Asked { id, endpoint: Arc::clone(&endpoints[id.index()]), probe, timeout };
                if self.probes.try_send(asked).is_err() {
                    tracing::warn!(pool, endpoint = url(id), "too many probes are under way: one is left out");
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

#[allow(clippy::disallowed_methods, reason = "wall time, only shown")]
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
