//! What an inference engine does with a request, as a state machine.
//!
//! A driver owns the clock. It calls [`EngineModel::advance`] when [`EngineModel::next_event_at`] is due and before every arrival,
//! and passes on what comes out. Models: [`fixed`] (a delay), [`article`] (service time and rejects follow a drifting load), [`llm`]
//! (continuous batching), [`embedding`] (batches in a window), [`vector`] (a search with a cache), [`cpu`] (shared cores). [`Engine`] adds a speed that may change at any time, which is how demos shrink time and how the
//! faults `slow`, `hang` and `no_progress` work: a hung engine is one whose own time stands still.

use tidegate_core::time::{Duration, Instant};

mod account;
pub mod article;
pub mod background;
pub mod cpu;
pub mod embedding;
pub mod fixed;
mod line;
pub mod llm;
pub mod pace;
mod prompt_cache;
mod query_cache;
mod slots;
pub mod spec;
mod timeline;
pub mod vector;

pub use pace::Engine;
pub use prompt_cache::PromptCache;
pub use spec::EngineSpec;

/// A request inside one engine; never reused by that engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What an engine needs to know about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineRequest {
    /// Tokens of the prompt, at least 1 (0 counts as 1).
    pub prompt_tokens: u32,
    /// Of these, tokens found in the prefix cache, `0..prompt_tokens`: they need no compute but do occupy KV memory.
    pub cached_tokens: u32,
    /// The hash of what is searched for, by which an index knows it again; `None` where nothing is said of it.
    pub query: Option<u64>,
    /// Tokens that the answer will have, at least 1 (0 counts as 1). An oracle for the engine only; a policy never sees it.
    pub output_tokens: u32,
    /// Whether each token is emitted on its own; otherwise only the end is.
    pub stream: bool,
}

/// What became of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Taken; emissions will carry this id.
    Accepted(RequestId),
    /// Refused at once.
    Rejected(Rejection),
}

/// A refusal, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// HTTP status, 400..=599.
    pub status: u16,
    /// The error's `code` in the body, such as `overloaded`.
    pub code: &'static str,
    /// When to come back, if the engine can tell.
    pub retry_after: Option<Duration>,
}

/// Something an engine put out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emission {
    /// Of which request.
    pub id: RequestId,
    /// When, in the driver's time; never later than the `now` given to `advance`.
    pub at: Instant,
    /// What.
    pub what: Emitted,
}

/// The content of an [`Emission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emitted {
    /// Token number `1..=output_tokens` of a stream.
    Token(u32),
    /// The answer is complete; the engine has forgotten the request.
    Done {
        /// Tokens of the answer.
        tokens: u32,
    },
}

/// How many emissions a stream gives. The simulator rarely needs each token, and leaving them out makes long streams cheap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Every token and the end.
    #[default]
    EveryToken,
    /// The first token and the end.
    FirstAndDone,
}

/// What an engine says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Utilisation, `0..=1`.
    pub load: f64,
    /// Recent (or, for the article's engine, next) response time of a whole request, seconds.
    pub response_time_s: f64,
    /// Requests being computed.
    pub running: u32,
    /// Requests waiting to be computed.
    pub waiting: u32,
    /// Prompt tokens still to be computed, of those waiting and those begun.
    pub queued_tokens: u64,
    /// Used share of KV memory, `0..=1`; 0 where a model has none.
    pub kv_usage: f64,
    /// Prompt tokens computed since start.
    pub prompt_tokens: u64,
    /// Tokens generated since start.
    pub generation_tokens: u64,
    /// Requests put back into the waiting queue for want of KV memory, since start.
    pub preemptions: u64,
    /// Queries looked up in a cache of answers since start, and those of them that were found.
    pub queries: u64,
    /// See `queries`.
    pub query_hits: u64,
}

/// An inference engine as a state machine. The driver calls `advance(now)` before `arrive(now)` and `cancel(now)`, and never with
/// an earlier `now` than before.
pub trait EngineModel: Send {
    /// A request arrives.
    fn arrive(&mut self, now: Instant, request: &EngineRequest) -> Admission;
    /// The client left; whether the request was still there. No emission follows.
    fn cancel(&mut self, now: Instant, id: RequestId) -> bool;
    /// When `advance` next has something to do; `None` while idle.
    fn next_event_at(&self) -> Option<Instant>;
    /// Everything up to and including `now`, appended in order of time.
    fn advance(&mut self, now: Instant, out: &mut Vec<Emission>);
    /// How the engine stands; changes nothing.
    fn status_at(&self, now: Instant) -> Status;
}

/// Weight of the newest sample in a [`Status::response_time_s`] made of completed requests.
const RESPONSE_TIME_WEIGHT: f64 = 0.3;

/// Moving average of completed response times, seconds; starts at `first`.
#[derive(Clone, Copy, Debug)]
struct ResponseTime(f64);

impl ResponseTime {
    fn on_done(&mut self, took_s: f64) {
        self.0 += RESPONSE_TIME_WEIGHT * (took_s - self.0);
    }
}
