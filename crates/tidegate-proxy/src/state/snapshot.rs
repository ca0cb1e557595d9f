//! One generation of the config, as requests meet it: replaced as a whole, and kept by every request that began under it.

use crate::state::pool::PoolHandle;
use crate::state::tenant::Directory;
use arc_swap::ArcSwap;
use std::sync::Arc;
use tidegate_config::{Config, Limits, Match};

/// One generation.
pub struct Snapshot {
    /// How many there were before it.
    pub generation: u64,
    /// Its pools, in the order of the config.
    pub pools: Vec<Arc<PoolHandle>>,
    routes: Vec<Routed>,
    pub(crate) tenants: Directory,
    pub(crate) limits: Limits,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(crate) fn new(config: &Config, generation: u64, pools: Vec<Arc<PoolHandle>>, tenants: Directory) -> Self {
        let routed = |r: &tidegate_config::Route| {
            let pool = pools.iter().find(|p| *p.name == *r.pool).map(Arc::clone)?;
            let class = |name: &String| pool.settings().queue.as_ref()?.class(name);
            let priority = r.priority.as_ref().and_then(class);
            Some(Routed { name: Arc::clone(&pool.name), matches: r.matches.clone(), class: r.class, priority, pool })
        };
        let routes = config.routes.iter().filter_map(routed).collect();
        Self { generation, pools, routes, tenants, limits: config.limits }
    }

    /// All routes, in the order in which they are tried.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &Routed> {
        self.routes.iter()
    }

    /// The first route that takes the request.
    pub(crate) fn route<'h>(
        &self,
        path: &str,
        model: Option<&str>,
        tenant: &str,
        header: impl Fn(&str) -> Option<&'h str>,
    ) -> Option<&Routed> {
        self.routes.iter().find(|r| r.matches.accepts(path, model, tenant, &header))
    }
}

/// One route, and where it leads.
pub(crate) struct Routed {
    /// What limits per route call it: the name of its pool.
    pub(crate) name: Arc<str>,
    matches: Match,
    pub(crate) class: u8,
    /// Place of its priority class in the pool's queue; `None`: that of the tenant.
    pub(crate) priority: Option<u8>,
    pub(crate) pool: Arc<PoolHandle>,
}

impl Routed {
    /// What the path of a request has to begin with.
    pub(crate) fn path(&self) -> Option<&str> {
        self.matches.path.as_deref()
    }

    /// Whether it takes requests for `model`.
    pub(crate) fn takes(&self, model: &str) -> bool {
        self.matches.takes(Some(model))
    }

    /// Whether it takes some request of `tenant` below the path `base`, with these headers.
    pub(crate) fn is_open_to<'h>(&self, base: &str, tenant: &str, header: impl Fn(&str) -> Option<&'h str>) -> bool {
        let is_below = self.path().is_none_or(|path| path.starts_with(base) || base.starts_with(path));
        is_below && self.matches.is_open_to(tenant, header)
    }
}

/// The generation in force, for whoever has to follow reloads.
#[derive(Clone, Debug)]
pub struct Current(Arc<ArcSwap<Snapshot>>);

impl Current {
    pub(crate) fn new(snapshot: Snapshot) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(snapshot)))
    }

    /// The generation in force now.
    pub fn load(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }

    pub(crate) fn replace(&self, snapshot: Snapshot) {
        self.0.store(Arc::new(snapshot));
    }

    /// The bounds on what a client may send.
    pub(crate) fn limits(&self) -> Limits {
        self.0.load().limits
    }
}
