//! An embedding server: requests are collected for a moment and computed together.
//!
//! A batch begins when the oldest request that waits has waited for `window`, or as soon as `max_batch` are there, and never while another is
//! computed. It takes `per_batch + per_item n + per_token (its tokens)`, and all of its answers come at its end. A client that leaves while its
//! batch is computed shortens nothing.

use tidegate_core::time::{Instant, duration_from_secs};

use super::account::Account;
use super::line::Line;
use super::{Admission, Detail, Emission, Emitted, EngineModel, EngineRequest, RequestId, Status};

/// Parameters of [`Embedding`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbeddingParams {
    /// How long a batch is collected, seconds.
    pub window_s: f64,
    /// Most requests of a batch, at least 1.
    pub max_batch: u32,
    /// Time of a batch however small, seconds.
    pub per_batch_s: f64,
    /// Time per request of a batch, seconds.
    pub per_item_s: f64,
    /// Time per prompt token of a batch, seconds.
    pub per_token_s: f64,
    /// Requests that may wait beyond the batch that is collected before 503 `overloaded`.
    pub max_waiting: u32,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    request: EngineRequest,
    arrived: Instant,
}

/// The embedding server.
#[derive(Debug)]
pub struct Embedding {
    params: EmbeddingParams,
    detail: Detail,
    collected: Line<Item>,
    batch: Vec<(RequestId, Item)>,
    batch_ends: Option<Instant>,
    account: Account,
}

impl Embedding {
    /// An idle server.
    pub fn new(params: EmbeddingParams, detail: Detail) -> Self {
        Self {
            params,
            detail,
            collected: Line::default(),
            batch: Vec::new(),
            batch_ends: None,
            account: Account::new(params.window_s + params.per_batch_s + params.per_item_s),
        }
    }

    fn most(&self) -> usize {
        self.params.max_batch.max(1) as usize
    }

    /// When the next batch is to begin, if none is computed.
    fn begins_at(&self, now: Instant) -> Option<Instant> {
        let oldest = self.collected.first()?;
        let full = self.collected.len() >= self.most();
        Some(if full { now } else { oldest.arrived + duration_from_secs(self.params.window_s) })
    }

    fn begin(&mut self, now: Instant) {
        let n = self.collected.len().min(self.most());
        self.batch.extend(self.collected.pop_many(n));
        let tokens: u64 = self.batch.iter().map(|(_, i)| u64::from(i.request.prompt_tokens)).sum();
        let p = &self.params;
        let takes_s = p.per_batch_s + p.per_item_s * n as f64 + p.per_token_s * tokens as f64;
        self.account.on_prompt(tokens);
        self.batch_ends = Some(now + duration_from_secs(takes_s));
    }

    fn end(&mut self, at: Instant, out: &mut Vec<Emission>) {
        self.batch_ends = None;
        for (id, item) in self.batch.drain(..) {
            let tokens = item.request.output_tokens.max(1);
            let every = self.detail == Detail::EveryToken;
            let told = (1..=tokens).filter(|k| item.request.stream && (every || *k == 1 || *k == tokens));
            out.extend(told.map(|k| Emission { id, at, what: Emitted::Token(k) }));
            out.push(Emission { id, at, what: Emitted::Done { tokens } });
            self.account.on_done(at.secs_since(item.arrived), tokens);
        }
    }
}

impl EngineModel for Embedding {
    fn arrive(&mut self, now: Instant, request: &EngineRequest) -> Admission {
        if self.collected.len() >= self.most() + self.params.max_waiting as usize {
            return self.account.overloaded();
        }
        let id = self.account.take();
        self.collected.push(id, Item { request: *request, arrived: now });
        if self.batch_ends.is_none() && self.collected.len() >= self.most() {
            self.begin(now);
        }
        Admission::Accepted(id)
    }

    fn cancel(&mut self, _now: Instant, id: RequestId) -> bool {
        if let Some(at) = self.batch.iter().position(|(other, _)| *other == id) {
            self.batch.remove(at);
            return true;
        }
        self.collected.remove(id)
    }

    fn next_event_at(&self) -> Option<Instant> {
        // A full batch begins on the spot, so without one under way only the window is left.
        self.batch_ends.or_else(|| self.begins_at(Instant::ORIGIN))
    }

    fn advance(&mut self, now: Instant, out: &mut Vec<Emission>) {
        loop {
            let at = match self.batch_ends {
                Some(ends) if ends <= now => {
                    self.end(ends, out);
                    ends
                }
                Some(_) => return,
                None => Instant::ORIGIN,
            };
            match self.begins_at(at) {
                Some(begins) if begins.max(at) <= now => self.begin(begins.max(at)),
                _ => return,
            }
        }
    }

    fn status_at(&self, _now: Instant) -> Status {
        let next = self.collected.len().min(self.most());
        self.account.status(self.batch.len() + next, self.collected.len() - next, 2.0 * self.most() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rejection;
    use super::*;

    const PARAMS: EmbeddingParams = EmbeddingParams {
        window_s: 0.005,
        max_batch: 4,
        per_batch_s: 0.010,
        per_item_s: 0.001,
        per_token_s: 0.0001,
        max_waiting: 2,
    };

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn request() -> EngineRequest {
        EngineRequest { prompt_tokens: 10, cached_tokens: 0, query: None, output_tokens: 1, stream: false }
    }

    /// When the answers come, milliseconds, driven from event to event.
    fn ends(server: &mut Embedding) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        while let Some(next) = server.next_event_at() {
            server.advance(next, &mut out);
        }
        out.iter().map(|e| (e.id.0, e.at.as_nanos() / 1_000_000)).collect()
    }

    #[test]
    fn a_batch_is_collected_for_the_window_and_answered_together() {
        let mut server = Embedding::new(PARAMS, Detail::EveryToken);
        let mut out = Vec::new();
        server.arrive(at(0), &request());
        server.advance(at(3), &mut out);
        server.arrive(at(3), &request());
        // 5 ms of window, 10 for the batch, 1 for each of the two and 1 for the tokens of each.
        assert_eq!((out.len(), ends(&mut server)), (0, vec![(0, 19), (1, 19)]));
        assert_eq!(server.next_event_at(), None);
    }

    #[test]
    fn a_full_batch_begins_at_once_and_the_rest_waits_for_its_end() {
        let mut server = Embedding::new(PARAMS, Detail::EveryToken);
        for _ in 0..10 {
            assert!(matches!(server.arrive(at(0), &request()), Admission::Accepted(_)));
        }
        assert!(matches!(server.arrive(at(0), &request()), Admission::Rejected(Rejection { status: 503, .. })));
        assert_eq!((server.status_at(at(0)).waiting, server.status_at(at(0)).load), (2, 1.0));
        let ends = ends(&mut server);
        // 18 ms for four, twice; then two whose window is long over: 14 ms.
        assert_eq!(ends.iter().map(|e| e.1).collect::<Vec<_>>(), [18, 18, 18, 18, 36, 36, 36, 36, 50, 50]);
    }

    #[test]
    fn who_leaves_gets_no_answer_and_the_batch_goes_on() {
        let mut server = Embedding::new(PARAMS, Detail::EveryToken);
        for _ in 0..5 {
            server.arrive(at(0), &request());
        }
        assert!(
            server.cancel(at(1), RequestId(1))
                && server.cancel(at(1), RequestId(4))
                && !server.cancel(at(1), RequestId(4))
        );
        assert_eq!(ends(&mut server), [(0, 18), (2, 18), (3, 18)]);
    }
}
