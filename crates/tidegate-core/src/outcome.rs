//! How a request ended, in the words every policy and breaker shares.

use crate::time::Duration;

/// The end of one dispatch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Whose doing it was.
    pub verdict: Verdict,
    /// Output tokens the engine told, or events the relay counted; 0 if unknown.
    pub output_tokens: u32,
}

/// Whose doing the end was. Three kinds teach nothing about an endpoint: the client's faults, the client's leaving, and throttling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// A whole answer.
    Success,
    /// A 4xx other than 408, 429 and 499, a 501 or a 505: the client's fault, and the endpoint is alive.
    ClientError,
    /// The client left, or a 408 or 499 says so.
    Cancelled,
    /// 429, or 503 or 529 with `Retry-After`: the endpoint is well and has enough to do.
    Throttled {
        /// The time the endpoint asked for.
        retry_after: Option<Duration>,
    },
    /// The endpoint's fault.
    Failed(Failure),
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Refused, unreachable, or the connect timed out: nothing was sent.
    Connect,
    /// The connection was reset or closed before the first byte of the answer.
    Reset,
    /// An answer that is not HTTP, or whose framing is ambiguous.
    Malformed,
    /// No first byte in time.
    FirstByteTimeout,
    /// 500, 502, 503 without `Retry-After`, 504.
    Status,
    /// The answer broke off, or its framing was wrong.
    Truncated,
    /// No byte for `between_tokens`, or `total` ran out after the first byte.
    Stalled,
}

/// Shortest response time a failure counts as: a failure must never look like a fast answer.
pub const FAILURE_PENALTY_S: f64 = 5.0;
/// Longest `Retry-After` that is believed.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

impl Outcome {
    /// An outcome of `verdict` with no tokens counted.
    pub const fn new(verdict: Verdict) -> Self {
        Self { verdict, output_tokens: 0 }
    }

    /// The response time in seconds this outcome counts as, given how long it took: the time itself for a success, a penalty of at least
    /// [`FAILURE_PENALTY_S`] for a failure or throttling, nothing for what was not the endpoint's doing.
    pub fn response_time_s(&self, took_s: f64) -> Option<f64> {
        match self.verdict {
            Verdict::Success => Some(took_s),
            Verdict::ClientError | Verdict::Cancelled => None,
            Verdict::Throttled { retry_after } => {
                Some(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER).as_secs_f64().max(FAILURE_PENALTY_S))
            }
            Verdict::Failed(_) => Some(took_s.max(FAILURE_PENALTY_S)),
        }
    }
}

impl Failure {
    /// A short stable word for reasons, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Reset => "reset",
            Self::Malformed => "malformed",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::Status => "status",
            Self::Truncated => "truncated",
            Self::Stalled => "stalled",
        }
    }
}

impl Verdict {
    /// A short stable word for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ClientError => "client_error",
            Self::Cancelled => "cancelled",
            Self::Throttled { .. } => "throttled",
            Self::Failed(f) => f.as_str(),
        }
    }
}
