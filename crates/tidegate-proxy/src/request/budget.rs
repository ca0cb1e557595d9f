//! What a request reserved of the limits, as a value: dropping it settles what was used, wherever the request ends.

use crate::request::usage::Usage;
use crate::state::governor::{Governor, Left, Need};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::limit::Reservation;
use tidegate_core::time::Instant;

/// What became of the work that was reserved for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Used {
    /// No engine did any of it.
    Nothing,
    /// An engine has begun; so many tokens of the answer are known to have come.
    Begun { output_tokens: f64 },
    /// The engine said what it used.
    Told(Usage),
    /// It is whole, and nobody said what it used: the estimate stands.
    AsExpected,
}

/// What a request reserved. Settled when dropped.
pub(crate) struct Budget {
    governor: Arc<Governor>,
    need: Need,
    held: Option<Reservation>,
    used: Used,
    /// The answer ended by itself: its length is one to learn from.
    whole: bool,
}

impl Budget {
    pub(crate) fn new(governor: &Arc<Governor>, need: Need, held: Option<Reservation>) -> Self {
        Self { governor: Arc::clone(governor), need, held, used: Used::Nothing, whole: false }
    }

    /// When the request may go, at the earliest.
    pub(crate) fn not_before(&self) -> Option<Instant> {
        self.held.as_ref().map(Reservation::not_before)
    }

    /// What is left of the tightest limit.
    pub(crate) fn left(&self) -> Option<Left> {
        self.held.as_ref().and_then(|_| self.governor.left(&self.need))
    }

    /// Whether the answer has to be read for what it used.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.held.is_some() && self.governor.counts_tokens()
    }

    /// An engine began to answer, this long after the request came.
    pub(crate) fn on_begun(&mut self, ttft: Duration) {
        self.governor.on_begun(ttft);
        self.used = Used::Begun { output_tokens: 0.0 };
    }

    /// The answer is over, whole or not. `events`: pieces of a stream that came, 0 if it was none.
    pub(crate) fn on_end(&mut self, usage: Option<Usage>, events: u64, whole: bool) {
        self.whole = whole;
        self.used = match (usage, events, whole) {
            (Some(usage), ..) => Used::Told(usage),
            (None, 0, true) => Used::AsExpected,
            (None, events, _) => Used::Begun { output_tokens: events as f64 },
        };
    }

    fn actual(&self) -> Option<(f64, f64)> {
        match self.used {
            Used::Nothing => None,
            Used::Begun { output_tokens } => Some((self.need.prompt_tokens, output_tokens)),
            Used::Told(usage) => {
                let prompt = if usage.prompt_tokens > 0 { usage.prompt_tokens as f64 } else { self.need.prompt_tokens };
                Some((prompt, usage.output_tokens as f64))
            }
            Used::AsExpected => Some((self.need.prompt_tokens, self.need.output_tokens)),
        }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let actual = self.actual();
        let learned = match (self.used, actual) {
            (Used::Told(_) | Used::Begun { .. }, Some((_, output))) if output > 0.0 && self.whole => Some(output),
            _ => None,
        };
        self.governor.settle(&self.need, self.held.take(), actual, learned);
    }
}
