//! What an engine has seen, for tests of a gateway in front of it.

use std::collections::VecDeque;

use serde::Serialize;

/// Cancellations that are kept, the newest.
const KEPT: usize = 1000;

/// Counts since start; `GET /stats` at the control address.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    /// The engine's name.
    pub server_name: String,
    /// Inference requests seen, whatever became of them.
    pub requests: u64,
    /// Inference requests not yet ended.
    pub in_flight: u64,
    /// Answered to the end.
    pub completed: u64,
    /// Refused with an error status.
    pub rejected: u64,
    /// Given up by a fault: cut, reset or refused.
    pub aborted: u64,
    /// Given up because the client left.
    pub cancelled: u64,
    /// Requests of any kind to `/health`.
    pub health_checks: u64,
    /// TCP connections accepted.
    pub connections: u64,
    /// Tokens written to clients (for answers in one piece: all, when done).
    pub tokens: u64,
    /// Prompt tokens that were found in the prefix cache.
    pub cached_tokens: u64,
    /// The newest cancellations, oldest first, at most 1000.
    pub cancellations: VecDeque<Cancellation>,
}

/// A request whose client left.
#[derive(Clone, Debug, Serialize)]
pub struct Cancellation {
    /// Its `x-request-id`, if it had one.
    pub request_id: Option<String>,
    /// When it was noticed, seconds since the engine started.
    pub at_s: f64,
    /// When it was noticed, wall time in seconds since 1970.
    pub unix_s: f64,
    /// How long after the request came, seconds.
    pub after_s: f64,
    /// Tokens written until then.
    pub tokens: u32,
}

impl Stats {
    /// Records that a client left.
    pub fn on_cancel(&mut self, cancellation: Cancellation) {
        self.cancelled += 1;
        if self.cancellations.len() >= KEPT {
            self.cancellations.pop_front();
        }
        self.cancellations.push_back(cancellation);
    }
}
