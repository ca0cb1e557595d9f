//! Answers: JSON, errors of one shape, text.

use crate::events::Events;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

pub(crate) type Answer = Response<AdminBody>;

/// A whole body, or events without end.
pub(crate) enum AdminBody {
    Whole(Full<Bytes>),
    Events(Events),
}

impl Body for AdminBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Events(events) => events.poll_event(cx).map(|bytes| Some(Ok(Frame::data(bytes)))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// An error of the admin API.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    allow: Option<&'static str>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), allow: None }
    }

    pub(crate) fn method(method: &http::Method, path: &str, allow: &'static str) -> Self {
        let message = format!("{method} is not allowed on {path}; allowed: {allow}");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message) }
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", what)
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        let error = serde_json::json!({ "error": { "code": refusal.code, "message": refusal.message } });
        let mut answer = json(refusal.status, &error);
        if let Some(allow) = refusal.allow {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        }
        if refusal.status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

/// A value as JSON. It is of the moment, so nobody may keep it.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    // Only maps with keys that are no strings fail, and there are none.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut answer = whole(status, "application/json", text);
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Bytes of a media type.
pub(crate) fn whole(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Answer {
    answer(status, media, AdminBody::Whole(Full::new(body.into())))
}

pub(crate) fn answer(status: StatusCode, media: &'static str, body: AdminBody) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
