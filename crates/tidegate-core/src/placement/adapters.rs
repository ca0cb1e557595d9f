//! Where LoRA adapters are loaded, so that requests for one go where it is.
//!
//! An engine holds a few adapters at a time and fetches another when one is asked for: that takes a while, and where all places are taken by
//! adapters in use the request waits for one of them. Both are seconds before the first token, so both are part of the price:
//!
//! ```text
//! start_i = 0                              it is in use there, or was among the last that fit there
//!         = load                           a place is free, or held by an adapter nobody uses now
//!         = load + half a response time    every place is held by an adapter in use
//! ```
//!
//! In use: by own requests in flight, which is exact and fresh, and by what the engine tells.

use super::Serves;
use crate::endpoint::Endpoints;
use crate::id::EndpointId;
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

/// Adapters remembered of one endpoint, whatever it holds.
const MAX_REMEMBERED: usize = 256;

/// One adapter at one endpoint.
#[derive(Clone, Copy, Debug)]
struct Held {
    model: u64,
    in_flight: u32,
}

/// What own requests say of adapters, in one pool.
#[derive(Debug, Default)]
pub(crate) struct Adapters {
    /// By endpoint, the adapter used last behind.
    held: Vec<Vec<Held>>,
}

impl Adapters {
    /// A request for an adapter went to `id`, which holds at most `places`.
    pub(crate) fn on_dispatch(&mut self, id: EndpointId, model: u64, places: u32) {
        if self.held.len() <= id.index() {
            self.held.resize_with(id.index() + 1, Vec::new);
        }
        let held = &mut self.held[id.index()];
        let was = held.iter().position(|h| h.model == model).map(|place| held.remove(place));
        held.push(Held { model, in_flight: was.map_or(0, |h| h.in_flight) + 1 });
        // The engine drops the one that was used longest ago and is not in use.
        let places = (places as usize).clamp(1, MAX_REMEMBERED);
        while held.len() > places
            && let Some(place) = held.iter().position(|h| h.in_flight == 0)
        {
            held.remove(place);
        }
    }

    /// Such a request ended.
    pub(crate) fn on_end(&mut self, id: EndpointId, model: u64) {
        let held = self.held.get_mut(id.index()).and_then(|held| held.iter_mut().find(|h| h.model == model));
        if let Some(held) = held {
            held.in_flight = held.in_flight.saturating_sub(1);
        }
    }

    /// The engine at `id` is gone or was started anew. Those in flight still end.
    pub(crate) fn forget(&mut self, id: EndpointId) {
        if let Some(held) = self.held.get_mut(id.index()) {
            held.retain(|h| h.in_flight > 0);
        }
    }

    /// Seconds that a request for `model` waits at `id` until its adapter can be used, where loading one takes `load`.
    pub(crate) fn start_s(
        &self,
        now: Instant,
        id: EndpointId,
        model: u64,
        serves: &Serves,
        load: Duration,
        endpoints: &Endpoints,
    ) -> f64 {
        let own = self.held.get(id.index()).map_or(&[][..], Vec::as_slice);
        let told = serves.adapters_in_use.as_deref().unwrap_or(&[]);
        if own.iter().any(|h| h.model == model) || told.contains(&model) {
            return 0.0;
        }
        let own_in_use = own.iter().filter(|h| h.in_flight > 0 && !told.contains(&h.model)).count();
        let load_s = load.as_secs_f64();
        if own_in_use + told.len() < serves.max_adapters.unwrap_or(1) as usize {
            return load_s;
        }
        let answer_s = endpoints.stats[id.index()].response_time_at(now, false).unwrap_or(load_s);
        load_s + answer_s / 2.0
    }
}
