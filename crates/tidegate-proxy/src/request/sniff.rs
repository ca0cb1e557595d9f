//! Reading a request's body up to a limit, and what it says about the work it asks for.
//!
//! A body within `limits.sniff_bytes` is buffered whole: it can be understood, and sent again. A larger one is routed by what its head
//! says and streamed; nothing of it is parsed. OpenAI-shaped bodies must be JSON of bounded depth, else they are refused here: what we
//! cannot read unambiguously is never forwarded as if we had.

use crate::request::error::ProxyError;
use crate::request::grpc;
use crate::request::headers::strip_trailers;
use crate::upstream::upload::{Moved, Upload, patience, too_slow};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;
use tidegate_config::Limits;

/// Deepest nesting of JSON that is taken.
const MAX_DEPTH: usize = 128;
/// Bytes of prompt per token, where no tokenizer is configured: the usual estimate for English text.
pub(crate) const BYTES_PER_TOKEN: usize = 4;

/// A body, read as far as it is wanted.
pub(crate) enum Sniffed {
    /// All of it, and what stood behind it.
    Whole(Bytes, Option<HeaderMap>),
    /// The beginning of a body that goes on; can be sent once. Knows how much of it went up.
    Streamed { first: Bytes, rest: Incoming, left: u64, moved: Rc<Moved> },
    /// A streamed body that was sent.
    Sent,
}

impl Sniffed {
    /// The body to send, for one attempt; `None` if it was streamed and cannot be had again.
    pub(crate) fn upload(&mut self) -> Option<Upload> {
        match self {
            Self::Whole(bytes, None) if bytes.is_empty() => return Some(Upload::Empty),
            Self::Whole(bytes, None) => return Some(Upload::Whole(Some(bytes.clone()))),
            Self::Whole(bytes, trailers) => return Some(Upload::Trailed(Some(bytes.clone()), trailers.clone())),
            Self::Streamed { .. } | Self::Sent => {}
        }
        match std::mem::replace(self, Self::Sent) {
            Self::Streamed { first, rest, left, moved } => {
                Some(Upload::Streamed { first: Some(first), rest, left, moved })
            }
            _ => None,
        }
    }

    /// Bytes buffered.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Whole(bytes, _) => bytes.len(),
            Self::Streamed { first, .. } => first.len(),
            Self::Sent => 0,
        }
    }

    /// How far a streamed body is.
    pub(crate) fn moved(&self) -> Option<Rc<Moved>> {
        if let Self::Streamed { moved, .. } = self { Some(Rc::clone(moved)) } else { None }
    }

    /// Whether it is sent with its length before it.
    pub(crate) fn has_length(&self) -> bool {
        matches!(self, Self::Whole(_, None))
    }

    /// Whether another attempt could send it.
    pub(crate) fn is_replayable(&self) -> bool {
        !matches!(self, Self::Sent)
    }
}

/// Reads the body of a request.
pub(crate) async fn read(headers: &HeaderMap, mut body: Incoming, limits: &Limits) -> Result<Sniffed, ProxyError> {
    let declared = headers.get(http::header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|n| n > limits.max_body_bytes) {
        return Err(too_large());
    }
    if body.is_end_stream() {
        return Ok(Sniffed::Whole(Bytes::new(), None));
    }
    // A call of gRPC may answer before it has been asked all.
    if declared.is_some_and(|n| n > limits.sniff_bytes as u64) || grpc::is_call(headers) {
        return Ok(Sniffed::Streamed {
            first: Bytes::new(),
            rest: body,
            left: limits.max_body_bytes,
            moved: Rc::default(),
        });
    }
    let mut first: Option<Bytes> = None;
    let mut more = BytesMut::new();
    let mut trailers = None;
    let began = tokio::time::Instant::now();
    let mut size = 0;
    while let Some(frame) =
        next_frame(&mut body, limits.header_timeout, began + patience(limits.header_timeout, size)).await?
    {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(mut frame) => {
                strip_trailers(&mut frame);
                trailers = frame.into_trailers().ok().filter(|t| !t.is_empty());
                continue;
            }
        };
        match (&first, more.is_empty()) {
            (None, _) => first = Some(data),
            (Some(begin), true) => {
                more.extend_from_slice(begin);
                more.extend_from_slice(&data);
            }
            (Some(_), false) => more.extend_from_slice(&data),
        }
        size = more.len().max(first.as_ref().map_or(0, Bytes::len));
        if size as u64 > limits.max_body_bytes {
            return Err(too_large());
        }
        if size > limits.sniff_bytes {
            let first = if more.is_empty() { first.unwrap_or_default() } else { more.freeze() };
            return Ok(Sniffed::Streamed {
                left: limits.max_body_bytes - size as u64,
                first,
                rest: body,
                moved: Rc::default(),
            });
        }
        if body.is_end_stream() {
            break;
        }
    }
    Ok(Sniffed::Whole(if more.is_empty() { first.unwrap_or_default() } else { more.freeze() }, trailers))
}

/// The next piece, within `timeout` and before `at`.
async fn next_frame(
    body: &mut Incoming,
    timeout: Duration,
    at: tokio::time::Instant,
) -> Result<Option<hyper::body::Frame<Bytes>>, ProxyError> {
    let at = at.min(tokio::time::Instant::now() + timeout);
    match tokio::time::timeout_at(at, body.frame()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame)),
        Ok(Some(Err(_))) => Err(ProxyError::BadRequest {
            code: "bad_body",
            message: "the body broke off or is not framed as announced",
            status: 400,
        }),
        Err(_) => Err(too_slow()),
    }
}

fn too_large() -> ProxyError {
    ProxyError::BadRequest {
        code: "body_too_large",
        message: "the body is larger than limits.max_body_bytes",
        status: 413,
    }
}

/// What a JSON body says. Borrowed, parsed once.
#[derive(Default)]
pub(crate) struct Fields<'a> {
    /// In the order of the body. Bodies have few: looking through them is cheaper than hashing each.
    fields: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// Reads an object's members.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(8);
        while let Some((Name(name), value)) = map.next_entry()? {
            members.push((name, value));
        }
        Ok(members)
    }
}

/// A member's name, borrowed where nothing in it is escaped.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Fields<'a> {
    /// Parses an object. `Err` if `body` is no JSON object of bounded depth.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, ProxyError> {
        let wrong = |message| ProxyError::BadRequest { code: "invalid_json", message, status: 400 };
        if std::str::from_utf8(body).is_err() {
            return Err(wrong("the body is not UTF-8"));
        }
        if depth(body) > MAX_DEPTH {
            return Err(wrong("the body's JSON is nested more than 128 levels deep"));
        }
        let mut json = serde_json::Deserializer::from_slice(body);
        let fields = json.deserialize_map(Members).and_then(|fields| json.end().map(|()| fields));
        Ok(Self { fields: fields.map_err(|_| wrong("the body is not a JSON object"))? })
    }

    /// A member; of several of one name the last, as engines have it.
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.fields.iter().rev().find(|(n, _)| n == name).map(|(_, value)| *value)
    }

    /// A text field.
    pub(crate) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// A field as it stands in the body.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        self.get(name).map(RawValue::get).filter(|v| *v != "null")
    }

    /// Whether it asks for tokens to be made, and not only read.
    pub(crate) fn generates(&self) -> bool {
        ["messages", "prompt", "inputs", "contents", "prompt_embeds"].iter().any(|n| self.raw(n).is_some())
            || self.max_tokens().is_some()
    }

    /// The most tokens of output that the request lets the engine make, where it says so.
    pub(crate) fn max_tokens(&self) -> Option<u32> {
        let each = ["max_completion_tokens", "max_tokens"].iter().filter_map(|n| self.number(n)).max()?;
        Some(each.saturating_mul(self.number("n").unwrap_or(1).max(1)))
    }

    /// A whole number as engines read it: `5`, `5.0` and `"5"` are the same to them, so they are here.
    fn number(&self, name: &str) -> Option<u32> {
        let number: f64 = self.raw(name)?.trim_matches('"').trim().parse().ok()?;
        (number >= 0.0).then_some(number.ceil() as u32)
    }

    /// Prompt tokens, estimated from the bytes of the prompt. `None` if there is none.
    pub(crate) fn prompt_tokens(&self) -> Option<u32> {
        let bytes: usize = ["messages", "prompt", "input", "inputs", "contents", "prompt_embeds", "query"]
            .iter()
            .filter_map(|n| self.raw(n))
            .map(str::len)
            .sum();
        (bytes > 0).then(|| u32::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX))
    }
}

/// Deepest nesting of brackets outside strings.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0usize, 0, false, false);
    for &b in json {
        match (in_text, b) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_text = false,
            (false, b'"') => in_text = true,
            (false, b'{' | b'[') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_openai_clients_send() {
        let f = Fields::parse(
            br#"{"model":"llama-3","stream":true,"messages":[{"role":"user","content":"hi"}],"max_tokens":5}"#,
        )
        .unwrap();
        assert_eq!(
            (f.text("model").as_deref(), f.raw("stream"), f.prompt_tokens()),
            (Some("llama-3"), Some("true"), Some(8))
        );
        assert_eq!(f.text("stream"), None);
    }

    #[test]
    fn the_most_tokens_are_read_as_engines_read_them() {
        let of = |body: &str| Fields::parse(body.as_bytes()).unwrap().max_tokens();
        assert_eq!([of("{}"), of(r#"{"max_tokens":null}"#), of(r#"{"max_tokens":-1}"#)], [None; 3]);
        for same in
            [r#"{"max_tokens":5}"#, r#"{"max_tokens":5.0}"#, r#"{"max_tokens":" 5"}"#, r#"{"max_tokens":5e0,"n":0}"#]
        {
            assert_eq!(of(same), Some(5), "{same}");
        }
        assert_eq!(of(r#"{"max_completion_tokens":1,"max_tokens":500}"#), Some(500), "whichever the engine reads");
        assert_eq!(of(r#"{"max_tokens":500,"n":4}"#), Some(2000), "four answers");
        assert_eq!(of(r#"{"max_tokens":1e300}"#), Some(u32::MAX));
    }

    #[test]
    fn deep_or_broken_json_is_refused() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        for body in [deep.as_bytes(), b"{\"a\":1", b"[1]", b"{\"a\":\"\xff\"}"] {
            assert!(Fields::parse(body).is_err());
        }
        assert!(Fields::parse(br#"{"a":"[[[[\"[[[["}"#).is_ok());
        assert_eq!(depth(br#"{"a":"[[[[\"[[[["}"#), 1);
    }
}
