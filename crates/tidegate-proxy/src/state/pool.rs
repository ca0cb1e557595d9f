//! A pool as one generation of the config has it. A request holds on to the handle it started with, so its time-outs stay what they were;
//! endpoints, queue and everything learned are those of the pool that runs, which all generations share.

use crate::state::catalogue::Kept;
use crate::state::live_pool::LivePool;
use crate::upstream::endpoint_handle::EndpointHandle;
use crate::upstream::wire::Spoken;
use std::sync::Arc;
use tidegate_config::KeySource;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::pool::Pool;
use tidegate_core::time::Instant;

/// One pool of one generation.
#[derive(Debug)]
pub struct PoolHandle {
    /// Its name in the config.
    pub name: Arc<str>,
    /// Ids of its endpoints, in the order of the config.
    ids: Vec<EndpointId>,
    settings: tidegate_config::Pool,
    pub(crate) hash_key: Option<KeySource>,
    pub(crate) affinity_key: Option<KeySource>,
    pub(crate) live: Arc<LivePool>,
    /// What all endpoints serve, and those in use.
    pub(super) everything: Kept,
    pub(super) usable: Kept,
}

impl PoolHandle {
    /// Brings `live` to the settings. `first`: it was made from them and has no endpoints yet.
    pub(crate) fn new(settings: &tidegate_config::Pool, live: Arc<LivePool>, spoken: Spoken, first: bool) -> Self {
        Self {
            name: Arc::clone(live.name()),
            ids: live.configure(settings, spoken, first),
            settings: settings.clone(),
            hash_key: settings.policy.key.clone(),
            affinity_key: settings.affinity.as_ref().map(|a| a.key.clone()),
            live,
            everything: Kept::default(),
            usable: Kept::default(),
        }
    }

    /// Runs `f` under the pool's lock with the time of now. Never await in it. What the pool then wants done is done before it returns.
    pub fn with<T>(&self, f: impl FnOnce(&mut Pool, Instant) -> T) -> T {
        self.live.with(|pool, now, _| f(pool, now))
    }

    /// [`PoolHandle::with`], and where the endpoints are: the place is the [`EndpointId`], and holds the last that had it.
    pub fn with_endpoints<T>(&self, f: impl FnOnce(&mut Pool, Instant, &[Arc<EndpointHandle>]) -> T) -> T {
        self.live.with(|pool, now, endpoints| f(pool, now, endpoints))
    }

    /// Tells the pool what happened.
    pub fn on_event(&self, event: Event) {
        self.with(|pool, now| pool.on_event(now, event));
    }

    /// The settings of this generation.
    pub fn settings(&self) -> &tidegate_config::Pool {
        &self.settings
    }

    /// Whether its engines are asked to tell their load with each answer.
    pub(crate) fn tells_load(&self) -> bool {
        self.settings.load.as_ref().is_some_and(|l| l.orca)
    }

    /// Ids of the endpoints, in the order of the config.
    pub fn ids(&self) -> &[EndpointId] {
        &self.ids
    }

    /// The endpoint whose URL, or `host:port`, is `name`.
    pub fn find(&self, name: &str) -> Option<EndpointId> {
        let endpoints = self.live.endpoints();
        let place = endpoints.iter().position(|e| !e.is_retired() && e.is_called(name))?;
        Some(EndpointId(u32::try_from(place).ok()?))
    }
}
