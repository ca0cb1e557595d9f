//! One error for everything that ends a request early, mapped to status and body in one place.

use bytes::Bytes;
use http::StatusCode;
use std::time::Duration;
use tidegate_core::outcome::Failure;
use tidegate_core::pool::Shed;

/// Why a request got no answer from an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum ProxyError {
    /// Downstream: the request itself is at fault.
    BadRequest {
        /// Stable code.
        code: &'static str,
        /// What is wrong, for the person who sent it.
        message: &'static str,
        /// 400, 413, 414, 431, 501, 505.
        status: u16,
    },
    /// No route takes the request.
    NoRoute,
    /// The gateway refused.
    Shed {
        /// Why.
        why: Shed,
        /// The pool.
        pool: String,
        /// When trying again makes sense.
        retry_after: Option<Duration>,
    },
    /// Upstream: the last attempt failed and no other was possible.
    Upstream {
        /// What failed.
        failure: Failure,
        /// The endpoint.
        endpoint: String,
    },
    /// The time for the whole request ran out.
    TotalTimeout,
}

impl ProxyError {
    /// The status a client gets.
    pub fn status(&self) -> StatusCode {
        let code = match self {
            Self::BadRequest { status, .. } => *status,
            Self::NoRoute => 404,
            Self::Shed { .. } => 503,
            Self::Upstream { failure: Failure::FirstByteTimeout | Failure::Stalled, .. } | Self::TotalTimeout => 504,
            Self::Upstream { .. } => 502,
        };
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The stable code a program can act on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadRequest { code, .. } => code,
            Self::NoRoute => "no_route",
            Self::Shed { why, .. } => why.code(),
            Self::Upstream { failure, .. } => match failure {
                Failure::Connect => "endpoint_unreachable",
                Failure::Reset => "endpoint_reset",
                Failure::Malformed => "endpoint_malformed",
                Failure::FirstByteTimeout => "endpoint_timeout",
                Failure::Stalled => "endpoint_stalled",
                Failure::Status | Failure::Truncated => "endpoint_failed",
            },
            Self::TotalTimeout => "request_timeout",
        }
    }

    /// When trying again makes sense.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Shed { retry_after, .. } = self { *retry_after } else { None }
    }

    fn message(&self) -> String {
        match self {
            Self::BadRequest { message, .. } => (*message).to_owned(),
            Self::NoRoute => "no route takes this request: see `routes` in the gateway's config".to_owned(),
            Self::Shed { why, pool, .. } => format!("pool {pool}: {}", why.message()),
            Self::Upstream { failure, endpoint } => match failure {
                Failure::Connect => format!("{endpoint} could not be reached"),
                Failure::Reset => format!("{endpoint} closed the connection before it answered"),
                Failure::Malformed => format!("{endpoint} answered something that is not proper HTTP"),
                Failure::FirstByteTimeout => {
                    format!("{endpoint} did not begin to answer within the first_byte timeout")
                }
                _ => format!("{endpoint} failed ({})", failure.as_str()),
            },
            Self::TotalTimeout => "the request took longer than the total timeout of its pool".to_owned(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::BadRequest { .. } | Self::NoRoute => "invalid_request_error",
            Self::Shed { .. } => "overloaded_error",
            _ => "upstream_error",
        }
    }

    /// The body, in the shape OpenAI's clients read.
    pub fn body(&self) -> Bytes {
        let error = serde_json::json!({
            "error": { "message": self.message(), "type": self.kind(), "param": null, "code": self.code() }
        });
        Bytes::from(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_openai_shaped() {
        let e = ProxyError::Shed { why: Shed::EndpointLimit, pool: "chat".into(), retry_after: None };
        let v: serde_json::Value = serde_json::from_slice(&e.body()).unwrap();
        assert_eq!((e.status().as_u16(), v["error"]["code"].as_str()), (503, Some("endpoint_limit_exceeded")));
        assert!(v["error"]["message"].as_str().unwrap().contains("max_in_flight"));
    }
}
