//! Tokens relayed on one core since the last tick, by endpoint. A relay holds its endpoint's counter, so that counting looks nothing up.

use crate::upstream::endpoint_handle::EndpointHandle;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Counters of one core; an endpoint that has left has one as long as a relay needs it.
#[derive(Default)]
pub(crate) struct TokenCounts {
    endpoints: HashMap<u64, (Arc<EndpointHandle>, Rc<Cell<u64>>)>,
}

impl TokenCounts {
    /// The counter of `endpoint` on this core.
    pub(crate) fn of(&mut self, endpoint: &Arc<EndpointHandle>) -> Rc<Cell<u64>> {
        let entry = self.endpoints.entry(endpoint.number).or_insert_with(|| (Arc::clone(endpoint), Rc::default()));
        Rc::clone(&entry.1)
    }

    /// Hands on what was counted.
    pub(crate) fn flush(&mut self) {
        self.endpoints.retain(|_, (endpoint, count)| {
            let tokens = count.take();
            if tokens > 0 {
                endpoint.tokens.fetch_add(tokens, Relaxed);
            }
            !endpoint.is_retired() || Rc::strong_count(count) > 1
        });
    }
}
