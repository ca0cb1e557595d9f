//! Starting and stopping the tasks of one pool.

use crate::accelerator::AcceleratorPage;
use crate::cache_events::{CacheListener, RankBoard};
use crate::check::Checker;
use crate::client::Client;
use crate::dial::{Dial, Tcp};
use crate::merge::Merged;
use crate::models::{ModelsPoller, Serving};
use crate::node::NodePage;
use crate::poll::{LoadPage, Poller};
use crate::status::StatusPage;
use crate::work::MetricsPage;
use std::sync::Arc;
use tidegate_config::{CacheEvents, Endpoint, EndpointTls, Health, ListedModel, Load, Models, Polled, Pool, Protocol};
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::placement::Serves;
use tidegate_core::rng::Rng;
use tidegate_core::time::Instant;
use tidegate_telemetry::SignalFacts;
use tokio::task::JoinSet;

/// Where events go; called on the runtime of the tasks, so it must not block for long.
pub type Tell = Arc<dyn Fn(Event) + Send + Sync>;
/// The clock of the pool that is told: reports carry the time at which they were asked for.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// Where goes what was found on a page of the endpoint with this URL, when it differs from the last time; it must not block for long.
pub type TellFacts = Arc<dyn Fn(&str, SignalFacts) + Send + Sync>;

/// Where goes what an endpoint says that it serves, when it differs from the last time; it must not block for long.
pub type TellServes = Arc<dyn Fn(EndpointId, &Serves) + Send + Sync>;

/// Where goes the list of models that an endpoint gives, each time it was read; it must not block for long.
pub type TellModels = Arc<dyn Fn(EndpointId, &[ListedModel]) + Send + Sync>;

/// What the tasks of a pool are given.
#[derive(Clone)]
pub struct Told {
    /// Where events go.
    pub events: Tell,
    /// Where goes what pages expose.
    pub facts: TellFacts,
    /// Where goes what endpoints serve.
    pub serves: TellServes,
    /// Where lists of models go.
    pub models: TellModels,
    /// The clock of the pool.
    pub clock: Clock,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Told").finish_non_exhaustive()
    }
}

/// The running tasks of one pool. Dropping it stops them and closes their connections.
#[derive(Debug, Default)]
#[must_use = "dropping it stops the checks and polls"]
pub struct Watch {
    endpoints: Vec<Watched>,
}

/// The tasks of one endpoint, and what they were started with.
#[derive(Debug)]
struct Watched {
    endpoint: Endpoint,
    health: Option<Health>,
    load: Option<Load>,
    models: Option<Models>,
    events: Option<CacheEvents>,
    /// How it is spoken to.
    spoken: (Protocol, EndpointTls),
    tasks: JoinSet<()>,
}

impl Watched {
    fn fits(&self, pool: &Pool) -> bool {
        self.health == pool.health
            && self.spoken == (pool.protocol, pool.tls.clone())
            && self.load == pool.load
            && self.models == pool.models
            && self.events.as_ref() == cache_events(pool)
            && pool.endpoints.iter().any(|e| {
                e.url == self.endpoint.url
                    && e.gpus == self.endpoint.gpus
                    && e.cache_events == self.endpoint.cache_events
            })
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
    pub fn start(&mut self, pool: &Pool, ids: &[EndpointId], told: &Told, seed: u64) {
        self.start_through(&Arc::new(Tcp::to(pool)), pool, ids, told, seed);
    }

    pub(crate) fn start_through<D: Dial>(
        &mut self,
        dial: &Arc<D>,
        pool: &Pool,
        ids: &[EndpointId],
        told: &Told,
        seed: u64,
    ) {
        let name: Arc<str> = pool.name.as_str().into();
        for (place, (endpoint, &id)) in pool.endpoints.iter().zip(ids).enumerate() {
            if self.endpoints.iter().any(|e| e.endpoint.url == endpoint.url) {
                continue;
            }
            let mut tasks = JoinSet::new();
            let rng = |source: u64| Rng::stream(seed, SOURCES * place as u64 + source);
            if let Some(health) = &pool.health {
                let (health, pool, tell) = (health.clone(), Arc::clone(&name), Arc::clone(&told.events));
                let client = Client::new(Arc::clone(dial), endpoint.url.clone());
                tasks.spawn(Checker { pool, id, client, health, tell, rng: rng(0) }.run());
            }
            let serving = Arc::new(Serving::new(id, pool.models.is_some(), Arc::clone(&told.serves)));
            let polls = Polls { pool: &name, dial, endpoint, told, serving: &serving };
            if let Some(load) = &pool.load {
                polls.start(load, id, rng, &mut tasks);
            }
            if let Some(Models(polled)) = &pool.models {
                tasks.spawn(polls.models(polled, id, rng(6)).run());
            }
            let events = cache_events(pool);
            if let Some(events) = events {
                polls.listen(events, id, &rng, &mut tasks);
            }
            self.endpoints.push(Watched {
                endpoint: endpoint.clone(),
                health: pool.health.clone(),
                load: pool.load.clone(),
                models: pool.models.clone(),
                events: events.cloned(),
                spoken: (pool.protocol, pool.tls.clone()),
                tasks,
            });
        }
    }
}

/// Kinds of tasks an endpoint may have.
const SOURCES: u64 = 7;

/// Where the engines of `pool` tell of their caches, if anybody listens.
fn cache_events(pool: &Pool) -> Option<&CacheEvents> {
    pool.prefix_cache.as_ref()?.events.as_ref()
}

/// What the polls of one endpoint share.
struct Polls<'a, D> {
    pool: &'a Arc<str>,
    dial: &'a Arc<D>,
    endpoint: &'a Endpoint,
    told: &'a Told,
    serving: &'a Arc<Serving>,
}

impl<D: Dial> Polls<'_, D> {
    /// Starts a task for every page that `load` names.
    fn start(&self, load: &Load, id: EndpointId, rng: impl Fn(u64) -> Rng, tasks: &mut JoinSet<()>) {
        let leads = [
            (load.metrics.is_some(), MetricsPage::SOURCE),
            (load.status.is_some(), StatusPage::SOURCE),
            (load.accelerator.is_some(), AcceleratorPage::SOURCE),
            (load.node.is_some(), NodePage::SOURCE),
        ];
        let sources: Vec<&'static str> = leads.iter().filter(|(is_there, _)| *is_there).map(|(_, s)| *s).collect();
        let merged = Arc::new(Merged::new(id, load.max_age, Arc::clone(&self.told.events), &sources));
        if let Some(polled) = &load.status {
            tasks.spawn(self.poller(polled, StatusPage::default(), &merged, rng(1)).run());
        }
        if let Some(metrics) = &load.metrics {
            tasks.spawn(
                self.poller(&metrics.page, MetricsPage::new(metrics, Some(Arc::clone(self.serving))), &merged, rng(2))
                    .run(),
            );
        }
        if let Some(accelerator) = &load.accelerator {
            let page = AcceleratorPage::new(accelerator, &self.endpoint.gpus);
            tasks.spawn(self.poller(&accelerator.page, page, &merged, rng(3)).run());
        }
        if let Some(node) = &load.node {
            tasks.spawn(self.poller(&node.page, NodePage::new(node), &merged, rng(4)).run());
        }
    }

    /// Starts a task for every rank that `events` names.
    fn listen(&self, events: &CacheEvents, id: EndpointId, rng: &impl Fn(u64) -> Rng, tasks: &mut JoinSet<()>) {
        let url = &self.endpoint.url;
        let publishers = events.publishers(url, self.endpoint.cache_events.as_ref());
        let replays = events.replays(url);
        let (pool, endpoint) = (Arc::clone(self.pool), url.to_string().into());
        let board = RankBoard::new(pool, endpoint, Arc::clone(&self.told.facts), publishers.len());
        let (board, mut seeds) = (Arc::new(board), rng(5));
        for (rank, url) in (0..).zip(publishers) {
            let listener = CacheListener {
                id,
                replay: replays.get(usize::from(rank)).cloned(),
                rank,
                url,
                topic: events.topic.clone(),
                dial: self.dial.beside(),
                tell: Arc::clone(&self.told.events),
                board: Arc::clone(&board),
                rng: Rng::new(seeds.next_u64()),
            };
            tasks.spawn(listener.run());
        }
    }

    fn models(&self, polled: &Polled, id: EndpointId, rng: Rng) -> ModelsPoller<D> {
        ModelsPoller {
            id,
            tell_models: Arc::clone(&self.told.models),
            pool: Arc::clone(self.pool),
            endpoint: self.endpoint.url.to_string().into(),
            client: Client::new(Arc::clone(self.dial), self.endpoint.url.clone()),
            polled: polled.clone(),
            serving: Arc::clone(self.serving),
            tell_facts: Arc::clone(&self.told.facts),
            clock: Arc::clone(&self.told.clock),
            rng,
        }
    }

    fn poller<P: LoadPage>(&self, polled: &Polled, page: P, merged: &Arc<Merged>, rng: Rng) -> Poller<D, P> {
        let url = &self.endpoint.url;
        let (at, path) = polled.page_of(url);
        let dial = if polled.beside.is_some() { self.dial.beside() } else { Arc::clone(self.dial) };
        Poller {
            pool: Arc::clone(self.pool),
            endpoint: url.to_string().into(),
            client: Client::new(dial, at),
            path,
            polled: polled.clone(),
            page,
            merged: Arc::clone(merged),
            tell_facts: Arc::clone(&self.told.facts),
            clock: Arc::clone(&self.told.clock),
            rng,
        }
    }
}
