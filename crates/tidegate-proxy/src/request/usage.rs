//! What an answer says it used: `"usage": {"prompt_tokens": .., "completion_tokens": ..}` near its end.
//!
//! The last bytes of the body are kept, whatever the pieces they came in, and read once when the answer is over. So a usage event that is
//! split across packets at any byte is read like any other, and no event is parsed on its way.

use serde::Deserialize;

/// Bytes kept of an answer in one piece: OpenAI-shaped answers end with their usage, and engines add little after it.
const OF_ANSWER: usize = 4096;
/// Bytes kept of a stream, whose last events are short; there may be thousands at a time.
const OF_STREAM: usize = 1024;

/// The end of a body.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    kept: usize,
}

/// Tokens an engine says it used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    pub(crate) output_tokens: u64,
    /// Prompt tokens that were in the engine's cache; `None` where it does not say.
    pub(crate) cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Told {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
    cache_read_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Tail {
    /// Of a stream of events, or of an answer in one piece.
    pub(crate) fn new(is_stream: bool) -> Self {
        Self { bytes: Vec::new(), kept: if is_stream { OF_STREAM } else { OF_ANSWER } }
    }

    /// Takes the next piece of the body.
    pub(crate) fn on_bytes(&mut self, piece: &[u8]) {
        let piece = piece.get(piece.len().saturating_sub(self.kept)..).unwrap_or(piece);
        let over = (self.bytes.len() + piece.len()).saturating_sub(2 * self.kept);
        if over > 0 {
            // Rarely: one move per kept length, not one per piece.
            self.bytes.drain(..self.bytes.len().saturating_sub(self.kept.saturating_sub(piece.len())));
        }
        self.bytes.extend_from_slice(piece);
    }

    /// The last usage in what was kept.
    pub(crate) fn usage(&self) -> Option<Usage> {
        const WORD: &[u8] = b"\"usage\"";
        let mut end = self.bytes.len();
        // The last one that is an object counts: streams may carry `"usage": null` in every event.
        while let Some(at) = self.bytes.get(..end)?.windows(WORD.len()).rposition(|w| w == WORD) {
            if let Some(usage) = read(self.bytes.get(at + WORD.len()..)?) {
                return Some(usage);
            }
            end = at + WORD.len() - 1;
        }
        None
    }
}

fn read(after: &[u8]) -> Option<Usage> {
    let after = after.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(after).into_iter::<Told>();
    let told = values.next()?.ok()?;
    let prompt_tokens = told.prompt_tokens.or(told.input_tokens).unwrap_or(0);
    let output = told.completion_tokens.or(told.output_tokens);
    let output_tokens = output.or_else(|| told.total_tokens.map(|t| t.saturating_sub(prompt_tokens))).unwrap_or(0);
    let details = told.prompt_tokens_details.or(told.input_tokens_details).and_then(|d| d.cached_tokens);
    Some(Usage { prompt_tokens, output_tokens, cached_tokens: details.or(told.cache_read_input_tokens) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"usage\"}}],\"usage\":null}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":19,\"completion_tokens\":7,\"x\":{}}}\n\n\
        data: [DONE]\n\n";

    #[test]
    fn usage_is_read_at_whatever_byte_it_is_split() {
        // gateways.md 41: a final usage event split over two packets was lost.
        let wanted = Some(Usage { prompt_tokens: 12, output_tokens: 7, cached_tokens: None });
        for at in 0..STREAM.len() {
            let mut tail = Tail::new(true);
            tail.on_bytes(&STREAM.as_bytes()[..at]);
            tail.on_bytes(&STREAM.as_bytes()[at..]);
            assert_eq!(tail.usage(), wanted, "split at {at}");
        }
        let mut tail = Tail::new(true);
        STREAM.bytes().for_each(|b| tail.on_bytes(&[b]));
        assert_eq!(tail.usage(), wanted);
    }

    #[test]
    fn only_the_end_of_a_long_answer_is_kept() {
        let mut tail = Tail::new(true);
        for _ in 0..10_000 {
            tail.on_bytes(&[b'x'; 100]);
        }
        tail.on_bytes(STREAM.as_bytes());
        assert_eq!(tail.usage(), Some(Usage { prompt_tokens: 12, output_tokens: 7, cached_tokens: None }));
        assert!(tail.bytes.len() <= 2 * OF_STREAM);
        tail.on_bytes(&[b'x'; 100_000]);
        assert_eq!(tail.usage(), None);
    }

    #[test]
    fn embeddings_say_what_they_used_too() {
        let mut tail = Tail::new(true);
        tail.on_bytes(br#"{"data":[],"usage":{"prompt_tokens":9,"total_tokens":9}}"#);
        assert_eq!(tail.usage(), Some(Usage { prompt_tokens: 9, output_tokens: 0, cached_tokens: None }));
    }

    #[test]
    fn what_was_in_the_cache_is_read_as_each_api_tells_it() {
        for (usage, cached) in [
            (r#"{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0}}"#, Some(4)),
            (r#"{"prompt_tokens":9,"prompt_tokens_details":null}"#, None),
            (r#"{"input_tokens":9,"input_tokens_details":{"cached_tokens":0}}"#, Some(0)),
            (r#"{"input_tokens":9,"cache_creation_input_tokens":3,"cache_read_input_tokens":6}"#, Some(6)),
            (r#"{"prompt_tokens":9}"#, None),
        ] {
            let mut tail = Tail::new(false);
            tail.on_bytes(format!("{{\"usage\":{usage}}}").as_bytes());
            assert_eq!(tail.usage().unwrap().cached_tokens, cached, "{usage}");
        }
    }
}
