//! Starting and stopping the tasks of one pool.

use crate::check::Checker;
use crate::client::Client;
use crate::dial::{Dial, Tcp};
use crate::status::Poller;
use std::sync::Arc;
use tidegate_config::Pool;
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
#[derive(Debug)]
#[must_use = "dropping it stops the checks and polls"]
pub struct Watch {
    tasks: JoinSet<()>,
}

impl Watch {
    /// Stops all tasks and waits until they are gone: afterwards nothing is told any more.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    /// Tasks that run: one per endpoint and source.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }
}

/// Starts the health checks and polls that `pool` asks for, on the current tokio runtime; the first of each at once. `EndpointId(k)` is
/// the k-th endpoint of `pool`. All waits follow from `seed`.
///
/// # Panics
/// Outside of a tokio runtime with time and I/O.
pub fn watch(pool: &Pool, tell: &Tell, clock: &Clock, seed: u64) -> Watch {
    watch_through(&Arc::new(Tcp::to(pool)), pool, tell, clock, seed)
}

pub(crate) fn watch_through<D: Dial>(dial: &Arc<D>, pool: &Pool, tell: &Tell, clock: &Clock, seed: u64) -> Watch {
    let mut tasks = JoinSet::new();
    let name: Arc<str> = pool.name.as_str().into();
    for (place, endpoint) in pool.endpoints.iter().enumerate() {
        let id = EndpointId(u32::try_from(place).unwrap_or(u32::MAX));
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
    }
    Watch { tasks }
}
