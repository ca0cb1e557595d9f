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
    /// Whether the endpoint said to have answered from its cache; `None` if it did not say.
    pub cache_hit: Option<bool>,
    /// Prompt tokens as the engine told, and those of them it had in its cache; `None` if it did not say how many.
    pub cached_of: Option<(u64, u64)>,
    /// Seconds spent in the pool's queue.
    pub queued_s: f64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// From the request's head to the answer's first byte; 0 if none came.
    pub ttft_s: f64,
    /// Longest time to the first byte that was of use to who asked, seconds; 0: any.
    pub ttft_goal_s: f64,
    /// Longest mean time between two tokens that was of use, seconds; 0: any.
    pub tpot_goal_s: f64,
    /// From the request's head to the end.
    pub total_s: f64,
}

impl Record {
    /// Whether its goal was met; `None` if it had none, or if it is the client's doing how it ended.
    pub fn met_goal(&self) -> Option<bool> {
        let (ttft, tpot) = (self.ttft_goal_s, self.tpot_goal_s);
        if (ttft <= 0.0 && tpot <= 0.0) || matches!(self.outcome, "client_error" | "cancelled") {
            return None;
        }
        let gaps = self.output_tokens.saturating_sub(1);
        let pace_s = if self.stream && gaps > 0 { (self.total_s - self.ttft_s) / gaps as f64 } else { 0.0 };
        let in_time = (ttft <= 0.0 || self.ttft_s <= ttft) && (tpot <= 0.0 || pace_s <= tpot);
        Some(self.outcome == "success" && in_time)
    }
}

/// Where records go.
pub trait Sink: Send + Sync {
    /// A request ended.
    fn on_record(&self, record: &Record);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_by_whole_answers_that_begin_and_go_on_in_time() {
        let good = Record {
            outcome: "success",
            stream: true,
            output_tokens: 11,
            ttft_s: 1.0,
            total_s: 2.0,
            ttft_goal_s: 1.5,
            tpot_goal_s: 0.15,
            ..Record::default()
        };
        assert_eq!(good.met_goal(), Some(true));
        for (record, met) in [
            (Record { ttft_s: 1.6, ..good.clone() }, Some(false)),
            (Record { total_s: 3.0, ..good.clone() }, Some(false)),
            (Record { total_s: 3.0, stream: false, ..good.clone() }, Some(true)),
            (Record { output_tokens: 1, total_s: 9.0, ..good.clone() }, Some(true)),
            (Record { outcome: "truncated", ..good.clone() }, Some(false)),
            (Record { outcome: "ttft_goal_unreachable", ttft_s: 0.0, ..good.clone() }, Some(false)),
            (Record { outcome: "cancelled", ..good.clone() }, None),
            (Record { ttft_goal_s: 0.0, tpot_goal_s: 0.0, ..good.clone() }, None),
            (Record { ttft_goal_s: 0.0, ttft_s: 1.9, ..good.clone() }, Some(true)),
        ] {
            assert_eq!(record.met_goal(), met, "{record:?}");
        }
    }
}
