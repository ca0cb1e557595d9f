//! Renders an answer's tokens, as server-sent events or in one piece, in the shapes of the OpenAI API.
//!
//! What the events of one stream share is rendered once; an event is then two copies and a word.

use bytes::BytesMut;
use serde_json::{Value, json};

/// Words of the answers. A token is one word, so that counts in tests are easy to check by eye.
const WORDS: [&str; 16] = [
    "tide", "gate", "opens", "and", "closes", "with", "the", "moon", "while", "boats", "wait", "for", "water", "under",
    "the", "bridge",
];

/// Which of the two shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Text,
}

/// What all parts of one answer share.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) shape: Shape,
    /// Number of the request within the engine.
    pub(super) number: u64,
    pub(super) model: String,
    /// Wall time, seconds since 1970.
    pub(super) created: u64,
    pub(super) prompt_tokens: u32,
    /// Those of them that were in memory; `None` for an engine that keeps no prompts.
    pub(super) cached_tokens: Option<u32>,
    /// First word of the answer: equal prompts get equal answers.
    pub(super) first_word: usize,
    /// Why it ends: `stop` or `length`.
    pub(super) finish_reason: &'static str,
}

impl Answered {
    fn word(&self, k: u32) -> &'static str {
        WORDS[(self.first_word + k as usize) % WORDS.len()]
    }

    fn id(&self) -> String {
        match self.shape {
            Shape::Chat => format!("chatcmpl-{:08x}", self.number),
            Shape::Text => format!("cmpl-{:08x}", self.number),
        }
    }

    fn usage(&self, tokens: u32) -> Value {
        let mut usage = json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": self.prompt_tokens + tokens,
        });
        if let Some(cached) = self.cached_tokens {
            usage["prompt_tokens_details"] = json!({ "cached_tokens": cached });
        }
        usage
    }

    /// The answer in one piece.
    pub(super) fn whole(&self, tokens: u32) -> Value {
        let text: Vec<&str> = (1..=tokens).map(|k| self.word(k)).collect();
        let text = text.join(" ");
        let (object, choice) = match self.shape {
            Shape::Chat => (
                "chat.completion",
                json!({"index": 0, "message": {"role": "assistant", "content": text, "refusal": null},
                       "logprobs": null, "finish_reason": self.finish_reason}),
            ),
            Shape::Text => (
                "text_completion",
                json!({"index": 0, "text": text, "logprobs": null, "finish_reason": self.finish_reason}),
            ),
        };
        json!({"id": self.id(), "object": object, "created": self.created, "model": self.model,
               "choices": [choice], "usage": self.usage(tokens)})
    }
}

/// The events of one stream.
pub(super) struct Sse {
    answered: Answered,
    include_usage: bool,
    before: String,
    after: &'static str,
}

impl Sse {
    pub(super) fn new(answered: Answered, include_usage: bool) -> Self {
        let before = match answered.shape {
            Shape::Chat => format!("{}\"delta\":{{\"content\":\"", choice_head(&answered)),
            Shape::Text => format!("{}\"text\":\"", choice_head(&answered)),
        };
        let after = match (answered.shape, include_usage) {
            (Shape::Chat, false) => "\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
            (Shape::Chat, true) => "\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n",
            (Shape::Text, false) => "\",\"logprobs\":null,\"finish_reason\":null}]}\n\n",
            (Shape::Text, true) => "\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n",
        };
        Self { answered, include_usage, before, after }
    }

    /// Token `k`, from 1; before the first, a chat's role.
    pub(super) fn token(&self, k: u32, out: &mut BytesMut) {
        if k == 1 && self.answered.shape == Shape::Chat {
            self.choice("\"delta\":{\"role\":\"assistant\",\"content\":\"\"}", "null", out);
        }
        out.extend_from_slice(self.before.as_bytes());
        if k > 1 {
            out.extend_from_slice(b" ");
        }
        out.extend_from_slice(self.answered.word(k).as_bytes());
        out.extend_from_slice(self.after.as_bytes());
    }

    /// Why it ended, usage if asked for, and `[DONE]`.
    pub(super) fn end(&self, tokens: u32, out: &mut BytesMut) {
        let reason = format!("\"{}\"", self.answered.finish_reason);
        let nothing = if self.answered.shape == Shape::Chat { "\"delta\":{}" } else { "\"text\":\"\"" };
        self.choice(nothing, &reason, out);
        if self.include_usage {
            let head = head(&self.answered);
            let event = format!("data: {head}\"choices\":[],\"usage\":{}}}\n\n", self.answered.usage(tokens));
            out.extend_from_slice(event.as_bytes());
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn choice(&self, content: &str, reason: &str, out: &mut BytesMut) {
        let usage = if self.include_usage { ",\"usage\":null" } else { "" };
        let head = choice_head(&self.answered);
        let event = format!("{head}{content},\"logprobs\":null,\"finish_reason\":{reason}}}]{usage}}}\n\n");
        out.extend_from_slice(event.as_bytes());
    }
}

fn head(a: &Answered) -> String {
    let object = if a.shape == Shape::Chat { "chat.completion.chunk" } else { "text_completion" };
    let model = Value::from(a.model.as_str());
    format!("{{\"id\":\"{}\",\"object\":\"{object}\",\"created\":{},\"model\":{model},", a.id(), a.created)
}

fn choice_head(a: &Answered) -> String {
    format!("data: {}\"choices\":[{{\"index\":0,", head(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(shape: Shape) -> Answered {
        Answered {
            shape,
            number: 7,
            model: "a \"b\"".into(),
            created: 5,
            prompt_tokens: 3,
            cached_tokens: None,
            first_word: 0,
            finish_reason: "stop",
        }
    }

    fn events(shape: Shape, usage: bool) -> Vec<String> {
        let sse = Sse::new(answered(shape), usage);
        let mut out = BytesMut::new();
        sse.token(1, &mut out);
        sse.token(2, &mut out);
        sse.end(2, &mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        text.split_terminator("\n\n").map(|e| e.strip_prefix("data: ").unwrap().to_owned()).collect()
    }

    #[test]
    fn every_event_is_valid_json_and_the_text_is_that_of_the_whole_answer() {
        for (shape, usage) in [(Shape::Chat, true), (Shape::Chat, false), (Shape::Text, true), (Shape::Text, false)] {
            let events = events(shape, usage);
            assert_eq!(events.last().unwrap(), "[DONE]");
            let mut text = String::new();
            for e in &events[..events.len() - 1] {
                let v: Value = serde_json::from_str(e).unwrap();
                assert_eq!((v["model"].as_str(), v["created"].as_u64()), (Some("a \"b\""), Some(5)));
                let choice = &v["choices"][0];
                text += choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or("");
            }
            let whole = answered(shape).whole(2);
            let want = whole["choices"][0]["message"]["content"].as_str().or(whole["choices"][0]["text"].as_str());
            assert_eq!(Some(text.as_str()), want);
            assert_eq!(events.len(), 4 + usize::from(usage) + usize::from(shape == Shape::Chat));
        }
    }

    #[test]
    fn the_usage_event_has_no_choice() {
        let events = events(Shape::Chat, true);
        let v: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
        assert_eq!(v["choices"], json!([]));
        assert_eq!(v["usage"]["total_tokens"], 5);
    }
}
