//! Reads requests in the shapes of the OpenAI API, and answers errors in its shape.

use http::{Response, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_core::hash::{hash_bytes, mix};

use super::body::EngineBody;

/// Fields of chat and text completions that matter to an engine; others are accepted and ignored.
#[derive(Debug, Deserialize)]
pub(super) struct CompletionRequest {
    #[serde(default)]
    pub(super) model: Option<String>,
    #[serde(default)]
    messages: Option<Vec<Message>>,
    #[serde(default)]
    prompt: Option<Value>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    max_tokens: Option<i64>,
    #[serde(default)]
    max_completion_tokens: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    content: Value,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

impl CompletionRequest {
    /// The text of the prompt; `Err` says what is missing.
    pub(super) fn prompt_text(&self, chat: bool) -> Result<String, &'static str> {
        if chat {
            let messages = self.messages.as_ref().filter(|m| !m.is_empty());
            let messages = messages.ok_or("messages: expected a list with at least one message")?;
            let mut text = String::new();
            for m in messages {
                push_text(&m.content, &mut text);
            }
            return Ok(text);
        }
        let prompt = self.prompt.as_ref().ok_or("prompt: missing")?;
        let mut text = String::new();
        push_text(prompt, &mut text);
        Ok(text)
    }

    /// The asked-for limit of the answer, tokens.
    pub(super) fn max_tokens(&self) -> Result<Option<u32>, &'static str> {
        match self.max_completion_tokens.or(self.max_tokens) {
            None => Ok(None),
            Some(n) => match u32::try_from(n) {
                Ok(n) if n > 0 => Ok(Some(n)),
                _ => Err("max_tokens: expected a whole number of at least 1"),
            },
        }
    }

    /// Whether the stream ends with a usage event.
    pub(super) fn include_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|o| o.include_usage).unwrap_or(false)
    }
}

/// Text in strings, lists of strings and content parts; numbers are token ids and count as four bytes each.
fn push_text(value: &Value, out: &mut String) {
    match value {
        Value::String(s) => out.push_str(s),
        Value::Array(parts) => parts.iter().for_each(|p| push_text(p, out)),
        Value::Object(part) => push_text(part.get("text").unwrap_or(&Value::Null), out),
        Value::Number(_) => out.push_str("    "),
        _ => {}
    }
}

/// Tokens of a text: a quarter of its bytes, rounded up, at least one. Good to a factor of two for English, which is all that an
/// engine with a simulated model needs.
pub(super) fn estimate_tokens(text: &str) -> u32 {
    u32::try_from(text.len().div_ceil(4)).unwrap_or(u32::MAX).max(1)
}

/// Tokens of a block of a prompt that is kept or not: vLLM's.
pub(super) const BLOCK_TOKENS: u32 = 16;

/// The whole blocks of a prompt, each with all that stands before it.
pub(super) fn blocks(text: &str) -> Vec<u64> {
    let mut before = 0;
    let whole = text.as_bytes().chunks_exact(4 * BLOCK_TOKENS as usize);
    whole
        .map(|block| {
            before = mix(before ^ hash_bytes(block));
            before
        })
        .collect()
}

/// A JSON response.
pub(super) fn respond(status: StatusCode, body: &Value) -> Response<EngineBody> {
    respond_bytes(status, "application/json", body.to_string().into())
}

/// A response in one piece.
pub(super) fn respond_bytes(status: StatusCode, media: &'static str, body: bytes::Bytes) -> Response<EngineBody> {
    let mut response = Response::new(EngineBody::Whole(Some(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
    response
}

/// An error in the API's shape.
pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Response<EngineBody> {
    let kind = match status.as_u16() {
        400..=404 | 405 | 413 | 415 | 422 => "invalid_request_error",
        429 => "rate_limit_error",
        _ => "server_error",
    };
    respond(status, &json!({"error": {"message": message, "type": kind, "param": null, "code": code}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> CompletionRequest {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn text_of_all_kinds_of_prompts() {
        let chat = parse(
            r#"{"messages":[{"role":"system","content":"ab"},
                {"role":"user","content":[{"type":"text","text":"cd"},{"type":"image_url","image_url":{}}]}]}"#,
        );
        assert_eq!(chat.prompt_text(true).unwrap(), "abcd");
        assert_eq!(parse(r#"{"prompt":["x","yz"]}"#).prompt_text(false).unwrap(), "xyz");
        assert_eq!(estimate_tokens(&parse(r#"{"prompt":[[1,2,3]]}"#).prompt_text(false).unwrap()), 3);
        assert_eq!((blocks(&"a".repeat(63)).len(), blocks(&"a".repeat(64 * 3 + 5)).len()), (0, 3));
        let (one, other) = (blocks(&"a".repeat(128)), blocks(&format!("b{}", "a".repeat(127))));
        assert!(one[0] != one[1] && one[1] != other[1], "a block is what it is behind what stands before it");
        assert!(parse("{}").prompt_text(true).is_err() && parse("{}").prompt_text(false).is_err());
    }

    #[test]
    fn limits() {
        assert_eq!(parse(r#"{"max_tokens":5}"#).max_tokens(), Ok(Some(5)));
        assert_eq!(parse(r#"{"max_tokens":5,"max_completion_tokens":7}"#).max_tokens(), Ok(Some(7)));
        assert!(parse(r#"{"max_tokens":-1}"#).max_tokens().is_err());
        assert!(!parse("{}").include_usage());
        assert!(parse(r#"{"stream_options":{"include_usage":true}}"#).include_usage());
    }
}
