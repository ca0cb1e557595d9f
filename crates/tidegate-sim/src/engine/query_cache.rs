//! Answers to queries that an index has at hand: the most recently asked ones, as many as there are places. O(log entries) a look.

use std::collections::BTreeMap;

use tidegate_core::hash::FixedMap;

/// The cache.
#[derive(Debug, Default)]
pub(super) struct QueryCache {
    places: usize,
    /// The turn in which each query was last asked for, and the other way round.
    asked: FixedMap<u64, u64>,
    oldest: BTreeMap<u64, u64>,
    looks: u64,
    hits: u64,
}

impl QueryCache {
    /// An empty one.
    pub(super) fn new(places: u32) -> Self {
        Self { places: places as usize, ..Self::default() }
    }

    /// Whether the answer to `query` is there.
    pub(super) fn look_up(&mut self, query: u64) -> bool {
        self.looks += 1;
        let hit = self.asked.contains_key(&query);
        if hit {
            self.hits += 1;
            self.put(query);
        }
        hit
    }

    /// The answer to `query` is there from now on; what was not asked for longest makes place for it.
    pub(super) fn put(&mut self, query: u64) {
        if self.places == 0 {
            return;
        }
        let now = self.oldest.last_key_value().map_or(0, |(last, _)| last + 1);
        if let Some(before) = self.asked.insert(query, now) {
            self.oldest.remove(&before);
        }
        self.oldest.insert(now, query);
        while self.asked.len() > self.places {
            let Some((_, gone)) = self.oldest.pop_first() else { break };
            self.asked.remove(&gone);
        }
    }

    /// Looks so far, and those that found what they looked for.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.looks, self.hits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_not_asked_for_longest_goes() {
        let mut cache = QueryCache::new(2);
        for query in [1, 2] {
            assert!(!cache.look_up(query));
            cache.put(query);
        }
        assert!(cache.look_up(1));
        cache.put(3);
        assert!(cache.look_up(1) && !cache.look_up(2) && cache.look_up(3));
        assert_eq!(cache.counts(), (6, 3));
        let mut none = QueryCache::new(0);
        none.put(1);
        assert!(!none.look_up(1));
    }
}
