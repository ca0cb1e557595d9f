//! One engine in the run: the model, who is in it, and when it next wants to be woken.

use std::collections::VecDeque;

use tidegate_core::rng::Rng;
use tidegate_core::time::Instant;

use super::setup::Site;
use crate::engine::{Detail, Engine, EngineModel as _, PromptCache, RequestId, Status};
use crate::fault::Fault;

/// No request.
const NOBODY: u32 = u32::MAX;

/// An engine and its bookkeeping.
pub(super) struct Endpoint {
    pub(super) engine: Engine,
    /// The instant for which a wake-up is in the queue.
    pub(super) wake_at: Option<Instant>,
    /// Slot of each request by engine id from `first` on: ids are consecutive, so a ring replaces a map.
    slots: VecDeque<u32>,
    first: u64,
    /// The fault that is on.
    pub(super) fault: Fault,
    pub(super) rng: Rng,
    /// Prompts it has in memory, as far as it keeps any.
    cache: Option<PromptCache>,
    /// What its page says for ever, once it stands still.
    pub(super) frozen: Option<Status>,
    /// Tokens since the last progress sample, per gateway.
    pub(super) tokens: Vec<u64>,
}

impl Endpoint {
    pub(super) fn new(site: &Site, seed: u64, detail: Detail, gateways: usize) -> Self {
        Self {
            engine: site.spec.build(seed, 1.0, detail),
            wake_at: None,
            slots: VecDeque::new(),
            first: 0,
            fault: Fault::default(),
            rng: Rng::stream(seed, 5),
            cache: PromptCache::of(&site.spec),
            frozen: None,
            tokens: vec![0; gateways],
        }
    }

    /// Prompt tokens of these blocks that are in its cache; from now on all of them are.
    pub(super) fn find_cached(&mut self, blocks: &[u64], block_tokens: u32) -> u32 {
        self.cache.as_mut().map_or(0, |cache| cache.find(blocks, block_tokens))
    }

    /// The engine took the request in `slot` as `id`.
    pub(super) fn on_accepted(&mut self, id: RequestId, slot: u32) {
        debug_assert_eq!(id.0, self.first + self.slots.len() as u64, "ids are consecutive");
        self.slots.push_back(slot);
    }

    /// The slot of request `id`, if it is still wanted.
    pub(super) fn slot(&self, id: RequestId) -> Option<u32> {
        let place = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        self.slots.get(place).copied().filter(|&s| s != NOBODY)
    }

    /// Request `id` is over.
    pub(super) fn forget(&mut self, id: RequestId) {
        let place = id.0.wrapping_sub(self.first) as usize;
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = NOBODY;
        }
        while self.slots.front() == Some(&NOBODY) {
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// Requests inside, with their ids.
    pub(super) fn inside(&self) -> impl Iterator<Item = (RequestId, u32)> {
        let ids = (self.first..).map(RequestId);
        ids.zip(self.slots.iter().copied()).filter(|&(_, s)| s != NOBODY)
    }

    /// When the engine next has something to do.
    pub(super) fn next_event_at(&self) -> Option<Instant> {
        self.engine.next_event_at()
    }
}
