//! Requests whose whole course is known when they start: tokens at equal distances, the end at a given time.
//!
//! Shared by the `fixed` and the article's model. One heap entry per live request, so a token costs O(log live).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::hash::FixedMap;
use tidegate_core::time::{Duration, Instant};

use super::{Detail, Emission, Emitted, EngineRequest, RequestId};

#[derive(Debug)]
struct Course {
    start: Instant,
    total: Duration,
    tokens: u32,
    stream: bool,
    next: u32,
}

impl Course {
    /// When token `k` of `tokens` is due: the last one at the end.
    fn due(&self, k: u32) -> Instant {
        let nanos = self.total.as_nanos() * u128::from(k) / u128::from(self.tokens);
        self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The token of the next emission after `k`.
    fn following(&self, k: u32, detail: Detail) -> u32 {
        if detail == Detail::EveryToken { k + 1 } else { self.tokens }
    }
}

/// A request that came to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    pub(super) at: Instant,
    pub(super) took: Duration,
    pub(super) tokens: u32,
}

/// Running requests with a known course.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    heap: BinaryHeap<Reverse<(Instant, RequestId)>>,
    live: FixedMap<RequestId, Course>,
    detail: Detail,
}

impl Timeline {
    pub(super) fn new(detail: Detail) -> Self {
        Self { detail, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// Starts a request that takes `total`; a stream's tokens are spread evenly over it.
    pub(super) fn start(&mut self, at: Instant, id: RequestId, request: &EngineRequest, total: Duration) {
        let tokens = request.output_tokens.max(1);
        let next = if request.stream { 1 } else { tokens };
        let course = Course { start: at, total, tokens, stream: request.stream, next };
        self.heap.push(Reverse((course.due(next), id)));
        self.live.insert(id, course);
    }

    /// Forgets a request; whether it was there.
    pub(super) fn cancel(&mut self, id: RequestId) -> bool {
        let there = self.live.remove(&id).is_some();
        self.drop_stale();
        there
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// The earliest emission if it is due by `now`; the request's end if this was it.
    pub(super) fn pop(&mut self, now: Instant, out: &mut Vec<Emission>) -> Option<Option<Finished>> {
        let Reverse((at, id)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        let mut finished = None;
        if let Some(course) = self.live.get_mut(&id) {
            let k = course.next;
            if course.stream {
                out.push(Emission { id, at, what: Emitted::Token(k) });
            }
            if k >= course.tokens {
                out.push(Emission { id, at, what: Emitted::Done { tokens: course.tokens } });
                finished = Some(Finished { at, took: course.total, tokens: course.tokens });
                self.live.remove(&id);
            } else {
                course.next = course.following(k, self.detail);
                self.heap.push(Reverse((course.due(course.next), id)));
            }
        }
        self.drop_stale();
        Some(finished)
    }

    /// Keeps a live request on top, so that `next_at` never wakes the driver for nothing.
    fn drop_stale(&mut self) {
        while let Some(Reverse((_, id))) = self.heap.peek() {
            if self.live.contains_key(id) {
                break;
            }
            self.heap.pop();
        }
    }
}
