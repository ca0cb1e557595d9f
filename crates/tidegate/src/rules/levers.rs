//! What rules change, by its handle: read as it is now, set without a restart.

use std::sync::Arc;

use tidegate_config::Target;
use tidegate_core::event::Event;
use tidegate_proxy::{Current, Governor, PoolHandle};

/// The handles.
pub(crate) struct Levers {
    pub(crate) governor: Arc<Governor>,
    pub(crate) current: Current,
}

impl Levers {
    /// The value of `target` now, in the unit of the config. `None` if there is no such thing.
    pub(crate) fn present(&self, target: &Target) -> Option<f64> {
        match target {
            Target::Rate { limit, path, period_s } => {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                self.governor.with(|limits, _| limits.rate(limit, &path)).map(|per_second| per_second * period_s)
            }
            Target::Total { limit } => self.governor.with(|limits, _| limits.total(limit)).map(f64::from),
            Target::Pool { pool } => self.pool(*pool)?.with(|p, _| p.config().max_in_flight).map(f64::from),
            Target::Weight { pool, endpoint } => {
                let pool = self.pool(*pool)?;
                let id = *pool.ids().get(*endpoint)?;
                Some(pool.with(|p, _| p.endpoints().get(id).weight))
            }
        }
    }

    /// Sets `target` to `value`, in the unit of the config; `false` if there is no such thing.
    pub(crate) fn set(&self, target: &Target, value: f64) -> bool {
        match target {
            Target::Rate { limit, path, period_s } => {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                self.governor.with(|limits, now| limits.set_rate(now, limit, &path, value / period_s))
            }
            // Core keeps it whole and at least 1.
            Target::Total { limit } => self.governor.with(|limits, _| limits.set_total(limit, value as u32)),
            Target::Pool { pool } => self.pool(*pool).is_some_and(|p| {
                p.on_event(Event::MaxInFlight(value as u32));
                true
            }),
            Target::Weight { pool, endpoint } => {
                let found = self.pool(*pool).and_then(|p| Some((*p.ids().get(*endpoint)?, p)));
                found.is_some_and(|(endpoint, p)| {
                    p.on_event(Event::Weight { endpoint, weight: value });
                    true
                })
            }
        }
    }

    /// The `place`-th pool of the config in force, which the rules are of, too.
    fn pool(&self, place: usize) -> Option<Arc<PoolHandle>> {
        self.current.load().pools.get(place).map(Arc::clone)
    }
}
