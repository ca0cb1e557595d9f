//! When a stream of events counts as whole.

/// The words of [`StreamEnd`], with what each means.
pub(crate) const STREAM_ENDS: &[&str] = &["marker", "any"];

/// When a stream of events counts as whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamEnd {
    /// It has said so: `data: [DONE]` on `../completions`, `event: response.completed` on `../responses`, `event: message_stop` on
    /// `../messages`. Streams of other paths need not.
    #[default]
    Marker,
    /// Its framing ends.
    Any,
}

impl StreamEnd {
    /// The one called `word`.
    pub(crate) fn named(word: &str) -> Self {
        if word == "any" { Self::Any } else { Self::Marker }
    }
}
