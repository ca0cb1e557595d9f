//! How far a gateway is on its way to its end. Each phase lasts until the next; all cores follow one word.

use std::time::Duration;

/// A phase; the later, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It takes requests.
    Serving,
    /// Nothing is accepted. A connection gets one more answer, which tells that it is the last.
    Draining,
    /// Connections without a request are closed, too.
    Closing,
    /// Time is up: streams end with an error event, requests that wait are refused.
    Cutting,
}

impl Phase {
    /// Whether an answer is the last of its connection.
    pub(crate) fn is_stopping(self) -> bool {
        self > Self::Serving
    }
}

/// Time that what is cut gets to tell its client.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a stream that is cut ends with: an event that OpenAI's clients raise as an error. The empty lines before it end whatever event was
/// under way.
pub(crate) const LAST_EVENT: &[u8] = b"\n\nevent: error\ndata: {\"error\":{\"message\":\"the gateway stops and this stream did not end in time (shutdown.drain_timeout)\",\"type\":\"overloaded_error\",\"param\":null,\"code\":\"gateway_stopping\"}}\n\n";

/// The outcome of whatever was cut.
pub(crate) const STOPPING: &str = "gateway_stopping";
