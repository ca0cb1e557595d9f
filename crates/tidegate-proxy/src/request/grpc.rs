//! gRPC as far as a gateway has to know it: where a call says how it went, and how it is told that it was refused.
//!
//! A call ends with status 200 whatever happened; how it went stands in `grpc-status`, behind the body or, where there is none, in the
//! head (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).

use crate::request::error::ProxyError;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use tidegate_core::outcome::{Failure, Verdict};

static STATUS: HeaderName = HeaderName::from_static("grpc-status");
static MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Whether a message is a call of gRPC, or an answer to one.
pub(crate) fn is_call(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/grpc"))
}

/// What the headers, or those behind the body, say of how a call went; `None` if they say nothing.
pub(crate) fn verdict(headers: &HeaderMap) -> Option<Verdict> {
    let status: u32 = headers.get(&STATUS)?.to_str().ok()?.trim().parse().ok()?;
    Some(match status {
        0 => Verdict::Success,
        // CANCELLED, DEADLINE_EXCEEDED: the client gave the time, and took it.
        1 | 4 => Verdict::Cancelled,
        // RESOURCE_EXHAUSTED.
        8 => Verdict::Throttled { retry_after: None },
        // UNKNOWN, INTERNAL, UNAVAILABLE, DATA_LOSS.
        2 | 13 | 14 | 15 => Verdict::Failed(Failure::Status),
        _ => Verdict::ClientError,
    })
}

/// Says a refusal as gRPC wants it: status 200, and what is wrong in the head.
pub(crate) fn refuse<B>(response: &mut Response<B>, error: &ProxyError) {
    let status = match error.status() {
        StatusCode::UNAUTHORIZED => 16,
        StatusCode::FORBIDDEN => 7,
        StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => 12,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => 8,
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => 4,
        code if code.is_client_error() => 3,
        _ => 14,
    };
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS.clone(), HeaderValue::from(status));
    let message = percent_encoded(&format!("{}: {}", error.code(), error.message()));
    if let Ok(message) = HeaderValue::try_from(message) {
        headers.insert(MESSAGE.clone(), message);
    }
}

/// Printable ASCII but for `%`; everything else as `%XX`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for b in text.bytes() {
        match b {
            b' '..=b'~' if b != b'%' => encoded.push(b as char),
            _ => encoded.push_str(&format!("%{b:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_says_behind_its_body_how_it_went() {
        let of = |status: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(STATUS.clone(), HeaderValue::try_from(status).unwrap());
            verdict(&headers)
        };
        assert_eq!(verdict(&HeaderMap::new()), None);
        assert_eq!(
            [of("0"), of("14"), of("5")],
            [Some(Verdict::Success), Some(Verdict::Failed(Failure::Status)), Some(Verdict::ClientError)]
        );
        assert_eq!(of("8"), Some(Verdict::Throttled { retry_after: None }));
        assert_eq!(of("x"), None);
    }

    #[test]
    fn a_refusal_is_in_the_head() {
        let mut response = Response::new(());
        refuse(&mut response, &ProxyError::Unauthorized { code: "invalid_api_key", message: "100 % wrong" });
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[&STATUS], "16");
        assert_eq!(response.headers()[&MESSAGE], "invalid_api_key: 100 %25 wrong");
    }
}
