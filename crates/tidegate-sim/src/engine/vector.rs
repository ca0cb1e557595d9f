//! A vector index: a search descends a graph whose depth grows with the logarithm of its size, unless its answer is cached.
//!
//! A search takes `base + per_level log2(vectors)` (hierarchical navigable small worlds: Malkov and Yashunin 2016, section 4.1), one that is
//! found in the cache `hit`. Of requests that say what they search for, the answers to the last `cache` different queries are there, each from
//! the end of its first search on. Where nothing is said, or there is no such cache, it is drawn by `hit_rate`. `threads` searches run at a time.

use tidegate_core::hash::FixedMap;
use tidegate_core::rng::Rng;
use tidegate_core::time::{Instant, duration_from_secs};

use super::query_cache::QueryCache;
use super::slots::Slots;
use super::{Admission, Detail, Emission, Emitted, EngineModel, EngineRequest, RequestId, Status};

/// Parameters of [`Vector`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VectorParams {
    /// Vectors in the index, at least 1.
    pub vectors: u64,
    /// Time of a search besides its descent, seconds.
    pub base_s: f64,
    /// Time per doubling of the index, seconds.
    pub per_level_s: f64,
    /// Share of the searches whose answer is cached, 0..1.
    pub hit_rate: f64,
    /// Time of a search whose answer is cached, seconds.
    pub hit_s: f64,
    /// Queries whose answers are kept.
    pub cache: u32,
    /// Searches at a time, at least 1.
    pub threads: u32,
    /// Searches that may wait before 503 `overloaded`.
    pub max_waiting: u32,
}

impl VectorParams {
    /// Time of a search that finds nothing in the cache, seconds.
    pub fn miss_s(&self) -> f64 {
        self.base_s + self.per_level_s * libm::log2(self.vectors.max(1) as f64)
    }
}

/// The index.
#[derive(Debug)]
pub struct Vector {
    params: VectorParams,
    slots: Slots,
    draws: Rng,
    cache: QueryCache,
    /// Searches under way whose answers will be kept, by what they search for.
    searched: FixedMap<RequestId, u64>,
}

impl Vector {
    /// An idle index; `draws` decides what is cached.
    pub fn new(params: VectorParams, detail: Detail, draws: Rng) -> Self {
        let expected_s = params.hit_rate * params.hit_s + (1.0 - params.hit_rate) * params.miss_s();
        let slots = Slots::new(Some(params.threads), params.max_waiting, expected_s, detail);
        Self { params, slots, draws, cache: QueryCache::new(params.cache), searched: FixedMap::default() }
    }
}

impl EngineModel for Vector {
    fn arrive(&mut self, now: Instant, request: &EngineRequest) -> Admission {
        let query = request.query.filter(|_| self.params.cache > 0);
        let hit = match query {
            Some(query) => self.cache.look_up(query),
            None => self.draws.unit() < self.params.hit_rate,
        };
        let takes_s = if hit { self.params.hit_s } else { self.params.miss_s() };
        let admission = self.slots.arrive(now, request, duration_from_secs(takes_s));
        if let (Some(query), false, Admission::Accepted(id)) = (query, hit, admission) {
            self.searched.insert(id, query);
        }
        admission
    }

    fn cancel(&mut self, now: Instant, id: RequestId) -> bool {
        self.searched.remove(&id);
        self.slots.cancel(now, id)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.slots.next_event_at()
    }

    fn advance(&mut self, now: Instant, out: &mut Vec<Emission>) {
        let first = out.len();
        self.slots.advance(now, out);
        for emission in out.iter().skip(first).filter(|e| matches!(e.what, Emitted::Done { .. })) {
            if let Some(query) = self.searched.remove(&emission.id) {
                self.cache.put(query);
            }
        }
    }

    fn status_at(&self, _now: Instant) -> Status {
        let (queries, query_hits) = self.cache.counts();
        Status { queries, query_hits, ..self.slots.status(self.params.threads) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: VectorParams = VectorParams {
        vectors: 1 << 20,
        base_s: 0.002,
        per_level_s: 0.001,
        hit_rate: 0.25,
        hit_s: 0.001,
        cache: 0,
        threads: 1_000_000,
        max_waiting: 10,
    };

    /// When searches that all begin at 0 end, milliseconds.
    fn ends(params: VectorParams, searches: usize) -> Vec<u64> {
        let mut index = Vector::new(params, Detail::FirstAndDone, Rng::new(7));
        let request =
            EngineRequest { prompt_tokens: 1, cached_tokens: 0, query: None, output_tokens: 1, stream: false };
        for _ in 0..searches {
            assert!(matches!(index.arrive(Instant::ORIGIN, &request), Admission::Accepted(_)));
        }
        let mut out = Vec::new();
        index.advance(Instant::from_nanos(u64::MAX / 2), &mut out);
        out.iter().map(|e| e.at.as_nanos() / 1_000_000).collect()
    }

    #[test]
    fn a_quarter_is_cached_and_the_rest_takes_a_millisecond_per_doubling() {
        let ends = ends(PARAMS, 4000);
        let hits = ends.iter().filter(|ms| **ms == 1).count();
        assert!((900..1100).contains(&hits) && ends.iter().all(|ms| *ms == 1 || *ms == 22), "{hits}");
        let doubled = VectorParams { vectors: 1 << 21, ..PARAMS };
        assert!((doubled.miss_s() - PARAMS.miss_s() - 0.001).abs() < 1e-12);
    }

    #[test]
    fn a_query_is_found_once_its_first_search_has_ended() {
        let mut index =
            Vector::new(VectorParams { cache: 10, hit_rate: 0.0, ..PARAMS }, Detail::FirstAndDone, Rng::new(7));
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut out = Vec::new();
        for (ms, query) in [(0, 5), (10, 5), (30, 5), (30, 6)] {
            index.advance(at(ms), &mut out);
            let request = EngineRequest {
                prompt_tokens: 1,
                cached_tokens: 0,
                query: Some(query),
                output_tokens: 1,
                stream: false,
            };
            index.arrive(at(ms), &request);
        }
        index.advance(at(1000), &mut out);
        let ends: Vec<u64> = out.iter().map(|e| e.at.as_nanos() / 1_000_000).collect();
        assert_eq!(ends, [22, 31, 32, 52], "the second was under way when the first had not ended");
        let status = index.status_at(at(1000));
        assert_eq!((status.queries, status.query_hits), (4, 1));
    }

    #[test]
    fn searches_beyond_the_threads_wait() {
        let one = VectorParams { threads: 1, hit_rate: 0.0, ..PARAMS };
        assert_eq!(ends(one, 3), [22, 44, 66]);
    }
}
