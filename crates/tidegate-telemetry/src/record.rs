//! The record of one request.

use std::borrow::Cow;
use std::sync::Arc;

/// Everything worth knowing of one request after its end. Times in seconds.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// `x-request-id`: the client's, else one of ours.
    pub request_id: String,
    /// HTTP method.
    pub method: Cow<'static, str>,
    /// Path without the query, which may hold secrets.
    pub path: String,
    /// The pool, empty if no route matched.
    pub pool: Arc<str>,
    /// The tenant's name, empty where nobody is told apart.
    pub tenant: Arc<str>,
    /// The endpoint's URL, empty if none was tried.
    pub endpoint: Arc<str>,
    /// Which rule decided, as in `x-tidegate-reason`.
    pub reason: String,
    /// Model named in the body, empty if none.
    pub model: String,
    /// Whether the answer was a stream of server-sent events.
    pub stream: bool,
    /// Status sent downstream; 499 if the client left before one was.
    pub status: u16,
    /// One word for the end: `success`, `cancelled`, `truncated`, or the code of an error.
    pub outcome: &'static str,
    /// Dispatches made.
    pub attempts: u32,
    /// Prompt tokens, estimated; 0 if opaque.
    pub prompt_tokens: u32,
    /// Events (stream) or 0.
    pub output_events: u64,
    /// Output tokens as the engine told, else events.
    pub output_tokens: u64,
    /// Seconds spent in the pool's queue.
    pub queued_s: f64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// From the request's head to the answer's first byte; 0 if none came.
    pub ttft_s: f64,
    /// From the request's head to the end.
    pub total_s: f64,
}

/// Where records go.
pub trait Sink: Send + Sync {
    /// A request ended.
    fn on_record(&self, record: &Record);
}
