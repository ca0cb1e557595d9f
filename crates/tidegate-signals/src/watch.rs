//! Starting and stopping the tasks of one pool.

use crate::check::Checker;
use crate::client::Client;
use crate::dial::{Dial, Tcp};
use crate::status::Poller;
use std::sync::Arc;
use tidegate_config::{EndpointTls, EndpointUrl, Health, Pool, Protocol, StatusSource};
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::rng::Rng;
use tidegate_core::time::Instant;
use tokio::task::JoinSet;

/// Where events go; called on the runtime of the tasks, so it must not block for long.
pub type Tell = Arc<dyn Fn(Event) + Send + Sync>;
/// The clock of the pool that is told: reports carry the time at which they were asked for.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// The running tasks of one pool. Dropping it stops them and closes their connections.
#[derive(Debug, Default)]
#[must_use = "dropping it stops the checks and polls"]
pub struct Watch {
    endpoints: Vec<Watched>,
}

/// The tasks of one endpoint, and what they were started with.
#[derive(Debug)]
struct Watched {
    url: EndpointUrl,
    health: Option<Health>,
    load: Option<StatusSource>,
    /// How it is spoken to.
    spoken: (Protocol, EndpointTls),
    tasks: JoinSet<()>,
}

impl Watched {
    fn fits(&self, pool: &Pool) -> bool {
        self.health == pool.health
            && self.spoken == (pool.protocol, pool.tls.clone())
            && self.load.as_ref() == pool.load.as_ref().map(|l| &l.status)
            && pool.endpoints.iter().any(|e| e.url == self.url)
    }
}

impl Watch {
    /// Stops all tasks and waits until they are gone: afterwards nothing is told any more.
    pub async fn stop(mut self) {
        for mut endpoint in self.endpoints.drain(..) {
            endpoint.tasks.shutdown().await;
        }
    }

    /// Tasks that run: one per endpoint and source.
    pub fn tasks(&self) -> usize {
        self.endpoints.iter().map(|e| e.tasks.len()).sum()
    }

    /// Before `pool` takes the place of the pool that is watched: stops what does not go on, and waits until it is gone, so that nothing is
    /// told of an endpoint whose place another takes. What goes on is not asked anew.
    pub async fn keep(&mut self, pool: &Pool) {
        let (kept, gone) = std::mem::take(&mut self.endpoints).into_iter().partition(|e| e.fits(pool));
        self.endpoints = kept;
        Self { endpoints: gone }.stop().await;
    }

    /// Starts what `pool` asks for and does not run yet, on the current tokio runtime; the first of each at once. `ids` are those of the
    /// endpoints, in the order of the pool. All waits follow from `seed`.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and I/O.
    pub fn start(&mut self, pool: &Pool, ids: &[EndpointId], tell: &Tell, clock: &Clock, seed: u64) {
        self.start_through(&Arc::new(Tcp::to(pool)), pool, ids, tell, clock, seed);
    }

    pub(crate) fn start_through<D: Dial>(
        &mut self,
        dial: &Arc<D>,
        pool: &Pool,
        ids: &[EndpointId],
        tell: &Tell,
        clock: &Clock,
        seed: u64,
    ) {
        let name: Arc<str> = pool.name.as_str().into();
        for (place, (endpoint, &id)) in pool.endpoints.iter().zip(ids).enumerate() {
            if self.endpoints.iter().any(|e| e.url == endpoint.url) {
                continue;
            }
            let mut tasks = JoinSet::new();
            let client = || Client::new(Arc::clone(dial), endpoint.url.clone());
            let rng = |source: u64| Rng::stream(seed, 2 * place as u64 + source);
            if let Some(health) = &pool.health {
                let (health, pool, tell) = (health.clone(), Arc::clone(&name), Arc::clone(tell));
                tasks.spawn(Checker { pool, id, client: client(), health, tell, rng: rng(0) }.run());
            }
            if let Some(load) = &pool.load {
                let (source, pool) = (load.status.clone(), Arc::clone(&name));
                let (tell, clock) = (Arc::clone(tell), Arc::clone(clock));
                tasks.spawn(Poller { pool, id, client: client(), source, tell, clock, rng: rng(1) }.run());
            }
            let load = pool.load.as_ref().map(|l| l.status.clone());
            let (url, health, spoken) = (endpoint.url.clone(), pool.health.clone(), (pool.protocol, pool.tls.clone()));
            self.endpoints.push(Watched { url, health, load, spoken, tasks });
        }
    }
}
