//! Session affinity: the same key keeps its endpoint while it can.
//!
//! A short outage does not move a key: while its endpoint cannot be used, the policy serves the request, and the key goes home when
//! the endpoint is back within `hold`. Only a longer outage binds it anew. Bounded: the least recently used key goes first, found by
//! a clock hand instead of a linked list, so that a million distinct keys cost a sweep and not memory.

use crate::hash::FixedMap;
use crate::id::EndpointId;
use crate::pool::config::AffinityConfig;
use crate::time::Instant;
use alloc::vec::Vec;

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// To this endpoint, which can be used.
    To(EndpointId),
    /// To an endpoint that is out for less than `hold`: serve elsewhere, do not bind.
    Away,
    /// To none: bind what the policy picks.
    Free,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    endpoint: EndpointId,
    away_since: Option<Instant>,
    recent: bool,
}

/// The table of keys of one pool.
#[derive(Clone, Debug)]
pub struct Affinity {
    cfg: AffinityConfig,
    places: FixedMap<u64, u32>,
    entries: Vec<Entry>,
    hand: usize,
}

impl Affinity {
    /// An empty table.
    pub fn new(cfg: AffinityConfig) -> Self {
        Self { cfg, places: FixedMap::default(), entries: Vec::new(), hand: 0 }
    }

    /// Keys remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where `key` goes at `now`; `usable` tells whether an endpoint can take it.
    pub fn look_up(&mut self, now: Instant, key: u64, usable: impl Fn(EndpointId) -> bool) -> Bound {
        let Some(entry) = self.places.get(&key).map(|&p| &mut self.entries[p as usize]) else { return Bound::Free };
        entry.recent = true;
        if usable(entry.endpoint) {
            entry.away_since = None;
            return Bound::To(entry.endpoint);
        }
        let since = *entry.away_since.get_or_insert(now);
        if now.since(since) <= self.cfg.hold { Bound::Away } else { Bound::Free }
    }

    /// Binds `key` to `endpoint`.
    pub fn bind(&mut self, key: u64, endpoint: EndpointId) {
        // Not `recent` yet: a key earns its second chance by coming back, so a flood of new keys cannot push out a used one.
        let entry = Entry { key, endpoint, away_since: None, recent: false };
        if let Some(&place) = self.places.get(&key) {
            self.entries[place as usize] = entry;
        } else if self.entries.len() < self.cfg.max_keys {
            self.places.insert(key, self.entries.len() as u32);
            self.entries.push(entry);
        } else if !self.entries.is_empty() {
            let place = self.sweep();
            self.places.remove(&self.entries[place].key);
            self.places.insert(key, place as u32);
            self.entries[place] = entry;
        }
    }

    /// Every key and its endpoint.
    pub fn bound(&self) -> impl Iterator<Item = (u64, EndpointId)> {
        self.entries.iter().map(|e| (e.key, e.endpoint))
    }

    /// Takes new settings. Keys beyond a smaller bound go, in no order that means anything.
    pub fn set(&mut self, cfg: AffinityConfig) {
        self.cfg = cfg;
        if self.entries.len() > cfg.max_keys {
            self.entries.truncate(cfg.max_keys);
            self.index();
        }
    }

    /// Forgets every key of an endpoint that left for good.
    pub fn on_removed(&mut self, endpoint: EndpointId) {
        self.entries.retain(|e| e.endpoint != endpoint);
        self.index();
    }

    /// Finds the places of all entries anew.
    fn index(&mut self) {
        self.places.clear();
        self.places.extend(self.entries.iter().enumerate().map(|(i, e)| (e.key, i as u32)));
        self.hand = 0;
    }

    /// The place of an entry nobody used since the hand last passed.
    fn sweep(&mut self) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.entries.len();
            if !core::mem::take(&mut self.entries[self.hand].recent) {
                return self.hand;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    fn at(s: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(s)
    }

    #[test]
    fn a_key_returns_after_a_short_outage_and_moves_after_a_long_one() {
        let mut a = Affinity::new(AffinityConfig { hold: Duration::from_secs(60), max_keys: 10 });
        let home = EndpointId(3);
        assert_eq!(a.look_up(at(0), 7, |_| true), Bound::Free);
        a.bind(7, home);
        assert_eq!(a.look_up(at(1), 7, |_| false), Bound::Away);
        assert_eq!(a.look_up(at(50), 7, |_| true), Bound::To(home));
        assert_eq!(a.look_up(at(51), 7, |_| false), Bound::Away, "the outage before does not count");
        assert_eq!(a.look_up(at(112), 7, |_| false), Bound::Free);
    }

    #[test]
    fn memory_is_bounded_and_the_used_key_stays() {
        let mut a = Affinity::new(AffinityConfig { hold: Duration::from_secs(60), max_keys: 100 });
        a.bind(0, EndpointId(0));
        for key in 1..10_000 {
            a.look_up(at(0), 0, |_| true);
            a.bind(key, EndpointId(1));
            assert!(a.len() <= 100);
        }
        assert_eq!(a.look_up(at(0), 0, |_| true), Bound::To(EndpointId(0)));
    }
}
