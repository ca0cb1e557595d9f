//! What breakers did in a replayed run: read from the pool that takes the decisions again, so it is exactly what happened.

use tidegate_core::breaker::Level;
use tidegate_core::event::Effect;
use tidegate_core::id::EndpointId;
use tidegate_core::pool::Pool;
use tidegate_core::time::Instant;

/// Changes that are kept of one journal.
const MAX_CHANGES: usize = 100_000;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Seconds from the journal's first input.
    pub at_s: f64,
    /// The endpoint's name.
    pub endpoint: String,
    /// What changed.
    pub what: What,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A breaker went from one level to another.
    Level {
        /// Until now.
        from: Level,
        /// From now on.
        to: Level,
        /// Which test or verdict decided.
        why: &'static str,
    },
    /// The endpoint may take its full share again.
    FullShare,
}

/// Follows a pool.
#[derive(Debug, Default)]
pub(super) struct Watch {
    effects: Vec<Effect>,
    /// Endpoints that do not have their full share yet.
    held: Vec<EndpointId>,
}

impl Watch {
    /// Adds what changed with the last input.
    pub(super) fn look(&mut self, at_s: f64, now: Instant, pool: &mut Pool, into: &mut Vec<Change>) {
        pool.drain_effects(&mut self.effects);
        let name = |pool: &Pool, id: EndpointId| pool.endpoints().names.get(id.index()).cloned().unwrap_or_default();
        for effect in self.effects.drain(..) {
            let Effect::Breaker { endpoint, from, to, why, .. } = effect else { continue };
            if to == Level::HalfOpen && !self.held.contains(&endpoint) {
                self.held.push(endpoint);
            }
            into.push(Change { at_s, endpoint: name(pool, endpoint), what: What::Level { from, to, why } });
        }
        self.held.retain(|&id| {
            let held = pool.level(id, 0) == Level::Open || pool.share_at(id, now) < 1.0;
            if !held {
                into.push(Change { at_s, endpoint: name(pool, id), what: What::FullShare });
            }
            held
        });
        into.truncate(MAX_CHANGES);
    }
}
