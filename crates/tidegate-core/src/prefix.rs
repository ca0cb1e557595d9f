//! What each endpoint is expected to hold in its prefix cache.
//!
//! An engine that computed a prompt keeps its KV blocks for a while; a prompt that begins alike skips them. Nobody outside sees those
//! caches, so the index remembers the blocks *this replica sent*, per endpoint the last used first, as many as the engine has memory for.
//! How far it is to be believed is learned from the cached tokens that answers tell (`trust`). What is known of an endpoint goes when its
//! process does: an engine that starts anew is cold. Engines that tell what their cache stores and removes bound it (`resident`): their blocks
//! are of tokens and ours of text, so what they tell is how much there is, not what.
//!
//! One entry of 24 bytes and one of a map per block and endpoint; their number is bounded whatever the prompts are. A block known at more
//! than [`MOST_HOLDERS`] endpoints is not noted at further ones: it is everywhere already.
//! Source: notes, adaptive, section 3; algorithms, 2.3 and 2.5.

mod resident;
mod shared;

pub use resident::{CacheBatch, CacheTold, Hearing, MOST_RANKS, Resident};

use crate::hash::FixedMap;
use crate::id::EndpointId;
use crate::time::Instant;
use alloc::vec::Vec;
use resident::Consequence;
use shared::Shared;

/// Endpoints at which one block is noted.
const MOST_HOLDERS: usize = 64;
/// Bytes that one entry takes at most, its place in the map and the room both keep for growth included.
const ENTRY_BYTES: usize = 96;
/// Weight of the newest answer in the trust.
const TRUST_WEIGHT: f64 = 0.1;
/// No entry.
const NONE: u32 = u32::MAX;

/// How much is remembered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixConfig {
    /// KV memory of an endpoint, tokens; more than this is not expected to be in its cache.
    pub tokens: u64,
    /// Bound on the index, bytes.
    pub memory: usize,
}

impl Default for PrefixConfig {
    /// 430,000 tokens, what an 8B model leaves free on 80 GB; 64 MiB.
    fn default() -> Self {
        Self { tokens: 430_000, memory: 64 << 20 }
    }
}

/// A block at an endpoint.
#[derive(Clone, Copy, Debug)]
struct Entry {
    block: u64,
    endpoint: EndpointId,
    /// The same block at another endpoint.
    next: u32,
    newer: u32,
    older: u32,
}

/// What is known of one endpoint.
#[derive(Clone, Copy, Debug)]
struct Cache {
    newest: u32,
    oldest: u32,
    blocks: u32,
    /// Tokens of a block of the prompt sent last.
    block_tokens: u32,
    trust: f64,
}

impl Default for Cache {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, blocks: 0, block_tokens: 0, trust: 1.0 }
    }
}

/// What came of the prompts that were sent, since the pool began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrefixCounts {
    /// Prompts of which something was noted at the endpoint they were sent to.
    pub hits: u64,
    /// Those of which nothing was.
    pub misses: u64,
    /// Tokens that were expected to be in the cache there.
    pub matched_tokens: f64,
}

/// The index of one pool.
#[derive(Clone, Debug)]
pub struct PrefixIndex {
    cfg: PrefixConfig,
    replicas: f64,
    heads: FixedMap<u64, u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    caches: Vec<Cache>,
    /// By endpoint, where events are heard.
    residents: Vec<Resident>,
    counts: PrefixCounts,
    shared: Shared,
}

impl PrefixIndex {
    /// An empty index; `replicas` gateways share the endpoints' memory.
    pub fn new(cfg: PrefixConfig, replicas: f64) -> Self {
        Self {
            cfg,
            replicas: replicas.max(1.0),
            heads: FixedMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            caches: Vec::new(),
            residents: Vec::new(),
            counts: PrefixCounts::default(),
            shared: Shared::default(),
        }
    }

    /// Takes new bounds; what is beyond them goes with the next insertions.
    pub fn set(&mut self, cfg: PrefixConfig, replicas: f64) {
        (self.cfg, self.replicas) = (cfg, replicas.max(1.0));
    }

    /// Blocks noted, over all endpoints.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether nothing is noted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held, as they count against the bound.
    pub fn bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES
    }

    /// How far what is noted of `id` is believed, 0..1.
    pub fn trust(&self, id: EndpointId) -> f64 {
        self.caches.get(id.index()).map_or(1.0, |c| c.trust)
    }

    /// Blocks noted of `id`.
    pub fn blocks(&self, id: EndpointId) -> u32 {
        self.caches.get(id.index()).map_or(0, |c| c.blocks)
    }

    /// What came of the prompts sent so far.
    pub fn counts(&self) -> PrefixCounts {
        self.counts
    }

    /// What the events of `id` say it holds; `None` where nobody listens.
    pub fn resident(&self, id: EndpointId) -> Option<&Resident> {
        self.residents.get(id.index()).filter(|r| r.hearing().is_some())
    }

    /// The cache events of rank `rank` of `id` told something. O(blocks that are forgotten).
    pub fn on_cache_told(&mut self, id: EndpointId, rank: u8, told: CacheTold) {
        if self.residents.len() <= id.index() {
            self.residents.resize_with(id.index() + 1, Resident::default);
        }
        match self.residents[id.index()].on_told(rank, told) {
            Consequence::None => {}
            Consequence::Empty => self.forget_blocks(id),
            Consequence::AtMost(tokens) => {
                let of_block = self.caches.get(id.index()).map_or(1, |c| u64::from(c.block_tokens.max(1)));
                while u64::from(self.blocks(id)) > tokens.div_ceil(of_block) {
                    self.forget_oldest(id);
                }
            }
        }
    }

    /// Fills `into` with the tokens of the prompt `blocks` that each endpoint is expected to have computed, sorted by endpoint; those that
    /// have none are left out. O(blocks that match somewhere x endpoints that have them).
    pub fn look_up(&self, blocks: &[u64], block_tokens: u32, into: &mut Vec<(EndpointId, f64)>) {
        into.clear();
        for (depth, block) in blocks.iter().enumerate() {
            let mut went_on = false;
            let mut at = self.heads.get(block).copied().unwrap_or(NONE);
            while let Some(entry) = self.entries.get(at as usize) {
                if depth == 0 {
                    into.push((entry.endpoint, 1.0));
                    went_on = true;
                } else if let Ok(i) = into.binary_search_by_key(&entry.endpoint, |m| m.0)
                    && into[i].1 as usize == depth
                {
                    into[i].1 += 1.0;
                    went_on = true;
                }
                at = entry.next;
            }
            if !went_on {
                break;
            }
            if depth == 0 {
                into.sort_unstable_by_key(|m| m.0);
            }
        }
        for (id, tokens) in into.iter_mut() {
            *tokens *= f64::from(block_tokens) * self.trust(*id);
        }
    }

    /// Tokens of the prompt `blocks` that need not count at any of `endpoints` endpoints, as so many others bring them that what they cost once is
    /// shared by all.
    pub fn shared_tokens(&self, now: Instant, blocks: &[u64], block_tokens: u32, endpoints: usize) -> f64 {
        self.shared.tokens(now, blocks, block_tokens, endpoints)
    }

    /// A prompt of these blocks was sent to some endpoint.
    pub(crate) fn note_use(&mut self, now: Instant, blocks: &[u64]) {
        self.shared.on_sent(now, blocks);
    }

    /// An answer took so long in all.
    pub(crate) fn on_answered(&mut self, seconds: f64) {
        self.shared.on_answered(seconds);
    }

    /// A prompt of these blocks was sent to `id`.
    pub fn on_sent(&mut self, id: EndpointId, blocks: &[u64], block_tokens: u32) {
        let of_engine = (self.cfg.tokens as f64 / f64::from(block_tokens.max(1)) / self.replicas) as usize;
        let most = (self.cfg.memory / ENTRY_BYTES).max(1);
        if self.caches.len() <= id.index() {
            self.caches.resize(id.index() + 1, Cache::default());
        }
        let noted = self.caches[id.index()].blocks;
        self.caches[id.index()].block_tokens = block_tokens;
        // Last block first, so that the end of a prompt is forgotten before its beginning.
        for &block in blocks.iter().take(of_engine.min(most)).rev() {
            match self.find(id, block) {
                Some(at) => {
                    self.unlink(at);
                    self.link_newest(at);
                }
                None => self.add(id, block),
            }
        }
        if self.caches[id.index()].blocks > noted
            && let Some(resident) = self.residents.get_mut(id.index())
        {
            resident.on_sent();
        }
        while self.caches[id.index()].blocks as usize > of_engine {
            self.forget_oldest(id);
        }
        while self.len() > most {
            let fullest = (0..self.caches.len()).max_by_key(|&i| self.caches[i].blocks);
            let victim = if self.caches[id.index()].blocks > blocks.len() as u32 { Some(id.index()) } else { fullest };
            let Some(victim) = victim else { break };
            self.forget_oldest(EndpointId(victim as u32));
        }
    }

    /// An answer of `id` told that it found `cached` tokens in its cache where `matched` were noted, before any trust.
    pub fn on_told(&mut self, id: EndpointId, cached: f64, matched: f64) {
        let Some(cache) = self.caches.get_mut(id.index()).filter(|_| matched > 0.0) else { return };
        let found = (cached / matched).min(1.0);
        // A little is always believed: with none, no more would be learned.
        cache.trust = (cache.trust + TRUST_WEIGHT * (found - cache.trust)).max(0.01);
    }

    /// A prompt was sent where `matched` of its tokens were expected to be cached.
    pub(crate) fn count(&mut self, matched: f64) {
        let of = if matched > 0.0 { &mut self.counts.hits } else { &mut self.counts.misses };
        *of += 1;
        self.counts.matched_tokens += matched;
    }

    /// The process behind `id` started anew.
    pub fn forget(&mut self, id: EndpointId) {
        self.forget_blocks(id);
        if let Some(cache) = self.caches.get_mut(id.index()) {
            *cache = Cache::default();
        }
    }

    /// The endpoint `id` is gone: another may take its place.
    pub fn remove(&mut self, id: EndpointId) {
        self.forget(id);
        if let Some(resident) = self.residents.get_mut(id.index()) {
            *resident = Resident::default();
        }
    }

    fn forget_blocks(&mut self, id: EndpointId) {
        while self.blocks(id) > 0 {
            self.forget_oldest(id);
        }
    }

    fn find(&self, id: EndpointId, block: u64) -> Option<u32> {
        let mut at = self.heads.get(&block).copied()?;
        while let Some(entry) = self.entries.get(at as usize) {
            if entry.endpoint == id {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    fn add(&mut self, id: EndpointId, block: u64) {
        let head = self.heads.get(&block).copied().unwrap_or(NONE);
        let (mut holders, mut at) = (0, head);
        while let Some(entry) = self.entries.get(at as usize) {
            (holders, at) = (holders + 1, entry.next);
        }
        if holders >= MOST_HOLDERS {
            return;
        }
        let entry = Entry { block, endpoint: id, next: head, newer: NONE, older: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.heads.insert(block, at);
        self.caches[id.index()].blocks += 1;
        self.link_newest(at);
    }

    fn link_newest(&mut self, at: u32) {
        let id = self.entries[at as usize].endpoint.index();
        let was = core::mem::replace(&mut self.caches[id].newest, at);
        (self.entries[at as usize].newer, self.entries[at as usize].older) = (NONE, was);
        match self.entries.get_mut(was as usize) {
            Some(entry) => entry.newer = at,
            None => self.caches[id].oldest = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let Entry { endpoint, newer, older, .. } = self.entries[at as usize];
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.caches[endpoint.index()].newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.caches[endpoint.index()].oldest = newer,
        }
    }

    fn forget_oldest(&mut self, id: EndpointId) {
        let at = self.caches[id.index()].oldest;
        let Some(&Entry { block, next, .. }) = self.entries.get(at as usize) else { return };
        self.unlink(at);
        self.caches[id.index()].blocks -= 1;
        let head = self.heads.get(&block).copied().unwrap_or(NONE);
        if head != at {
            let mut before = head;
            while self.entries.get(before as usize).is_some_and(|e| e.next != at) {
                before = self.entries[before as usize].next;
            }
            if let Some(entry) = self.entries.get_mut(before as usize) {
                entry.next = next;
            }
        } else if next == NONE {
            self.heads.remove(&block);
        } else {
            self.heads.insert(block, next);
        }
        self.free.push(at);
    }
}

/// The chained hashes of a prompt given as hashes of its blocks: each stands for the whole prompt up to its block.
pub fn chain(blocks: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    blocks.scan(0x7469_6465_u64, |so_far, block| {
        *so_far = crate::hash::mix(so_far.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ block);
        Some(*so_far)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const A: EndpointId = EndpointId(0);
    const B: EndpointId = EndpointId(7);

    fn prompt(blocks: &[u64]) -> Vec<u64> {
        chain(blocks.iter().copied()).collect()
    }

    fn matched(index: &PrefixIndex, blocks: &[u64]) -> Vec<(EndpointId, f64)> {
        let mut into = Vec::new();
        index.look_up(&prompt(blocks), 100, &mut into);
        into
    }

    #[test]
    fn the_longest_common_beginning_counts_and_nothing_behind_it() {
        let mut index = PrefixIndex::new(PrefixConfig::default(), 1.0);
        index.on_sent(A, &prompt(&[1, 2, 3]), 100);
        index.on_sent(B, &prompt(&[1, 2, 9]), 100);
        assert_eq!(matched(&index, &[1, 2, 3, 4]), [(A, 300.0), (B, 200.0)]);
        assert_eq!(matched(&index, &[1, 2, 9]), [(A, 200.0), (B, 300.0)]);
        assert_eq!(matched(&index, &[2, 3]), [], "a block in another place is another block");
        index.forget(A);
        assert_eq!(matched(&index, &[1, 2, 3]), [(B, 200.0)], "an engine that starts anew is cold");
    }

    #[test]
    fn the_least_recently_used_goes_first_and_ends_before_beginnings() {
        let mut index = PrefixIndex::new(PrefixConfig { tokens: 400, memory: 1 << 20 }, 1.0);
        index.on_sent(A, &prompt(&[1, 2, 3]), 100);
        index.on_sent(A, &prompt(&[5]), 100);
        index.on_sent(A, &prompt(&[6]), 100);
        assert_eq!(matched(&index, &[1, 2, 3]), [(A, 200.0)]);
        assert_eq!(matched(&index, &[5]), [(A, 100.0)]);
        let mut shared = PrefixIndex::new(PrefixConfig { tokens: 400, memory: 1 << 20 }, 2.0);
        shared.on_sent(A, &prompt(&[1, 2, 3]), 100);
        assert_eq!(matched(&shared, &[1, 2, 3]), [(A, 200.0)], "two replicas share the engine's memory");
    }

    #[test]
    fn a_million_distinct_prompts_stay_under_the_bound() {
        // gateways.md 22: an index without a bound takes the gateway with it.
        let memory = 1 << 20;
        let mut index = PrefixIndex::new(PrefixConfig { tokens: u64::MAX, memory }, 1.0);
        for n in 0..1_000_000u64 {
            index.on_sent(EndpointId((n % 8) as u32), &prompt(&[n, 1]), 512);
            assert!(index.len() * ENTRY_BYTES <= memory + 2 * ENTRY_BYTES);
        }
        assert!(index.bytes() <= memory + 4 * ENTRY_BYTES && index.heads.len() <= memory / ENTRY_BYTES + 2);
    }

    #[test]
    fn trust_follows_what_engines_tell() {
        let mut index = PrefixIndex::new(PrefixConfig::default(), 1.0);
        index.on_sent(A, &prompt(&[1, 2]), 100);
        for _ in 0..60 {
            index.on_told(A, 100.0, 200.0);
        }
        assert!((index.trust(A) - 0.5).abs() < 0.01, "half of what matched was there: {}", index.trust(A));
        assert!((matched(&index, &[1, 2])[0].1 - 100.0).abs() < 2.0);
    }

    #[test]
    fn what_an_engine_removed_is_forgotten_from_the_oldest_on() {
        let told = |sequence, cleared, stored_tokens, removed_tokens| {
            CacheTold::Batch(CacheBatch { sequence, batches: 1, cleared, stored_tokens, removed_tokens })
        };
        let mut index = PrefixIndex::new(PrefixConfig::default(), 1.0);
        index.on_sent(A, &prompt(&[1, 2, 3]), 100);
        index.on_sent(B, &prompt(&[1, 2, 3]), 100);
        index.on_sent(A, &prompt(&[7, 8]), 100);
        index.on_cache_told(A, 0, told(0, false, 520, 0));
        assert_eq!(index.blocks(A), 5, "what is sent is computed a little later: storing takes nothing away");
        index.on_cache_told(A, 0, told(1, false, 0, 240));
        assert_eq!(matched(&index, &[7, 8]), [(A, 200.0)]);
        assert_eq!(matched(&index, &[1, 2, 3]), [(A, 100.0), (B, 300.0)], "280 tokens are three blocks at most");
        index.on_cache_told(A, 0, told(9, false, 0, 240));
        assert_eq!(index.blocks(A), 3, "after a gap nobody knows how much there is");
        index.on_cache_told(A, 0, told(10, true, 0, 0));
        assert_eq!((index.blocks(A), index.blocks(B)), (0, 3), "emptied at once");
        assert_eq!(index.resident(A).map(|r| (r.tokens(), r.gaps())), Some((Some(0), 1)));
        index.remove(A);
        assert!(index.resident(A).is_none() && index.resident(B).is_none());
    }

    #[test]
    fn blocks_that_are_everywhere_are_noted_at_some_only() {
        let mut index = PrefixIndex::new(PrefixConfig::default(), 1.0);
        for e in 0..1000 {
            index.on_sent(EndpointId(e), &prompt(&[1]), 100);
        }
        assert_eq!(matched(&index, &[1]).len(), MOST_HOLDERS);
        (0..1000).for_each(|e| index.forget(EndpointId(e)));
        assert!(index.is_empty() && index.heads.is_empty());
        assert_eq!(vec![0; 0], index.heads.values().copied().collect::<Vec<_>>());
    }
}
