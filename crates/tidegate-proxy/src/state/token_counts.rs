//! Tokens relayed, by core and endpoint. Each core counts into a counter that only it writes, so that cores share no cache line while
//! streams run; the pool's tick reads them all at the moment for which it also knows how long streams ran. Tokens per stream-second would be
//! wrong in both directions if cores handed theirs on at ticks of their own: with few streams one reading would hold none and the next two.

use crate::upstream::endpoint_handle::EndpointHandle;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What one core has relayed from one endpoint. Written by that core only.
#[derive(Debug, Default)]
pub(crate) struct TokenCount(AtomicU64);

impl TokenCount {
    /// Counts `n` more.
    pub(crate) fn add(&self, n: u64) {
        // One writer: a load and a store are enough, and lock no bus.
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }
}

/// The counters of one endpoint, of all cores.
#[derive(Debug, Default)]
pub(crate) struct TokenMeter {
    counts: Mutex<Vec<Arc<TokenCount>>>,
    taken: AtomicU64,
}

impl TokenMeter {
    /// A counter for one more core.
    fn join(&self) -> Arc<TokenCount> {
        let count = Arc::default();
        self.counts.lock().push(Arc::clone(&count));
        count
    }

    /// Tokens since the last call. One caller at a time: the tick of the pool.
    pub(crate) fn take(&self) -> u64 {
        let all = self.counts.lock().iter().fold(0u64, |sum, c| sum.wrapping_add(c.0.load(Relaxed)));
        all.wrapping_sub(self.taken.swap(all, Relaxed))
    }
}

/// The counters of one core; an endpoint that has left has one as long as a relay needs it.
#[derive(Default)]
pub(crate) struct TokenCounts {
    endpoints: HashMap<u64, (Arc<EndpointHandle>, Arc<TokenCount>)>,
}

impl TokenCounts {
    /// The counter of `endpoint` on this core. A relay holds it, so that counting looks nothing up.
    pub(crate) fn of(&mut self, endpoint: &Arc<EndpointHandle>) -> Arc<TokenCount> {
        let entry =
            self.endpoints.entry(endpoint.number).or_insert_with(|| (Arc::clone(endpoint), endpoint.tokens.join()));
        Arc::clone(&entry.1)
    }

    /// Forgets endpoints that have left and are read from by nobody.
    pub(crate) fn sweep(&mut self) {
        // Held here, by the endpoint, and by each relay.
        self.endpoints.retain(|_, (endpoint, count)| !endpoint.is_retired() || Arc::strong_count(count) > 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_taken_once_whichever_core_relayed_it() {
        let meter = TokenMeter::default();
        let (one, other) = (meter.join(), meter.join());
        one.add(3);
        other.add(4);
        assert_eq!((meter.take(), meter.take()), (7, 0));
        let mut taken = 0;
        std::thread::scope(|s| {
            for count in [&one, &other] {
                s.spawn(move || (0..10_000).for_each(|_| count.add(1)));
            }
            taken = (0..100).map(|_| meter.take()).sum();
        });
        assert!(taken <= 20_000);
        assert_eq!(taken + meter.take(), 20_000);
    }
}
