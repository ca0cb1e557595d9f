//! How a request ended, in the words every policy and breaker shares.

use crate::time::Duration;

/// The end of one dispatch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Whose doing it was.
    pub verdict: Verdict,
    /// Output tokens the engine told, or events the relay counted; 0 if unknown.
    pub output_tokens: u32,
    /// Prompt tokens the engine says it found in its cache; `None` where it does not say.
    pub cached_tokens: Option<u32>,
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
        Self { verdict, output_tokens: 0, cached_tokens: None }
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
    /// What a status says (notes: breaker, section 2). `overloaded`: the answer's body says so, which makes a bare 503 throttling.
    pub const fn of_status(status: u16, retry_after: Option<Duration>, overloaded: bool) -> Self {
        match (status, retry_after.is_some() || overloaded) {
            (408 | 499, _) => Self::Cancelled,
            (429, _) | (503 | 529, true) => Self::Throttled { retry_after },
            (501 | 505, _) | (400..=499, _) => Self::ClientError,
            (500..=599, _) => Self::Failed(Failure::Status),
            _ => Self::Success,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_mean_what_the_table_says() {
        let bare = |status| Verdict::of_status(status, None, false);
        assert_eq!([bare(200), bare(101), bare(304)], [Verdict::Success; 3]);
        assert_eq!([bare(400), bare(404), bare(501), bare(505)], [Verdict::ClientError; 4]);
        assert_eq!([bare(408), bare(499)], [Verdict::Cancelled; 2]);
        assert_eq!([bare(500), bare(502), bare(503), bare(504)], [Verdict::Failed(Failure::Status); 4]);
        let retry_after = Some(Duration::from_secs(7));
        let asked = |status| Verdict::of_status(status, retry_after, false);
        assert_eq!([asked(429), asked(503), asked(529)], [Verdict::Throttled { retry_after }; 3]);
        assert_eq!(asked(500), Verdict::Failed(Failure::Status));
        assert_eq!(Verdict::of_status(503, None, true), Verdict::Throttled { retry_after: None });
        assert_eq!(bare(429), Verdict::Throttled { retry_after: None });
    }
}
