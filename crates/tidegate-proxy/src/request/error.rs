//! One error for everything that ends a request early, mapped to status and body in one place.

use crate::state::governor::Left;
use crate::state::phase::STOPPING;
use bytes::Bytes;
use http::{HeaderName, StatusCode};
use std::time::Duration;
use tidegate_core::limit::{Limited, Scope};
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
    /// A header by which the request speaks to the gateway says nothing that can be understood.
    InvalidHeader {
        /// Which.
        name: HeaderName,
        /// What it may say, and what it says.
        message: String,
    },
    /// No route takes the request.
    NoRoute,
    /// Nobody the gateway knows asks.
    Unauthorized {
        /// Stable code.
        code: &'static str,
        /// What is wrong.
        message: &'static str,
    },
    /// The tenant may not ask for this.
    Forbidden {
        /// Stable code.
        code: &'static str,
        /// What is wrong.
        message: &'static str,
    },
    /// A limit refused.
    Limited(Limit),
    /// Nobody serves the model that was asked for.
    ModelNotFound {
        /// Which it is, and which there are.
        message: String,
    },
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
    /// The gateway ends and does not wait for the request any longer.
    Stopping,
}

/// A refusal by a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// What core said.
    pub limited: Limited,
    pub(crate) left: Option<Left>,
}

impl Limit {
    pub(crate) fn of(limited: Limited, left: Option<Left>) -> Self {
        Self { limited, left }
    }

    fn message(&self) -> String {
        let Limited { scope, rule, quantity, terminal, .. } = &self.limited;
        let of = match scope {
            Scope::Global => "of this gateway".to_owned(),
            other => format!("of this {}", other.name()),
        };
        match quantity {
            Some(q) if *terminal => {
                format!("the request asks for more {} than the limit `{rule}` {of} ever holds", q.name())
            }
            Some(q) => format!("the limit `{rule}` {of} on {} is used up", q.name()),
            None => format!("as many requests {of} are in flight as the limit `{rule}` allows"),
        }
    }
}

impl ProxyError {
    /// The status a client gets.
    pub fn status(&self) -> StatusCode {
        let code = match self {
            Self::BadRequest { status, .. } => *status,
            Self::InvalidHeader { .. } => 400,
            Self::NoRoute | Self::ModelNotFound { .. } | Self::Shed { why: Shed::ModelNotServed, .. } => 404,
            Self::Unauthorized { .. } => 401,
            Self::Forbidden { .. } => 403,
            Self::Limited(limit) if limit.limited.terminal => 413,
            Self::Limited(_) => 429,
            Self::Shed { why, .. } if why.is_of_tenant() => 429,
            Self::Shed { .. } | Self::Stopping => 503,
            Self::Upstream { failure: Failure::FirstByteTimeout | Failure::Stalled, .. } | Self::TotalTimeout => 504,
            Self::Upstream { .. } => 502,
        };
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The stable code a program can act on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadRequest { code, .. } | Self::Unauthorized { code, .. } | Self::Forbidden { code, .. } => code,
            Self::Limited(limit) if limit.limited.terminal => "request_exceeds_limit",
            Self::Limited(limit) => limit.limited.by,
            Self::InvalidHeader { .. } => "invalid_header",
            Self::NoRoute => "no_route",
            Self::ModelNotFound { .. } => Shed::ModelNotServed.code(),
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
            Self::Stopping => STOPPING,
        }
    }

    /// When trying again makes sense.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Shed { retry_after, .. } => *retry_after,
            Self::Stopping => Some(Duration::from_secs(1)),
            // Nobody can know when a request in flight ends; soon is as good a guess as any, and never is a lie.
            Self::Limited(limit) if !limit.limited.terminal => {
                Some(limit.limited.retry_after.unwrap_or(Duration::from_secs(1)))
            }
            _ => None,
        }
    }

    /// Whether the same request could be admitted later.
    pub(crate) fn may_be_retried(&self) -> bool {
        match self {
            Self::BadRequest { status, .. } => *status == 408,
            Self::Limited(limit) => !limit.limited.terminal,
            Self::NoRoute
            | Self::InvalidHeader { .. }
            | Self::ModelNotFound { .. }
            | Self::Unauthorized { .. }
            | Self::Forbidden { .. }
            | Self::Shed { why: Shed::ModelNotServed, .. } => false,
            Self::Shed { .. } | Self::Upstream { .. } | Self::TotalTimeout | Self::Stopping => true,
        }
    }

    /// What is left of the tightest limit.
    pub(crate) fn left(&self) -> Option<&Left> {
        if let Self::Limited(limit) = self { limit.left.as_ref() } else { None }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            Self::BadRequest { message, .. } | Self::Unauthorized { message, .. } | Self::Forbidden { message, .. } => {
                (*message).to_owned()
            }
            Self::InvalidHeader { message, .. } | Self::ModelNotFound { message } => message.clone(),
            Self::Limited(limit) => limit.message(),
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
            Self::Stopping => {
                "the gateway stops and this request did not end in time (shutdown.drain_timeout)".to_owned()
            }
            Self::TotalTimeout => "the request took longer than the total timeout of its pool".to_owned(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::BadRequest { .. }
            | Self::InvalidHeader { .. }
            | Self::NoRoute
            | Self::ModelNotFound { .. }
            | Self::Shed { why: Shed::ModelNotServed, .. } => "invalid_request_error",
            Self::Unauthorized { .. } => "authentication_error",
            Self::Forbidden { .. } => "permission_error",
            Self::Limited(limit) if limit.limited.terminal => "invalid_request_error",
            Self::Limited(_) => "rate_limit_error",
            Self::Shed { why, .. } if why.is_of_tenant() => "rate_limit_error",
            Self::Shed { .. } | Self::Stopping => "overloaded_error",
            _ => "upstream_error",
        }
    }

    /// The parameter at fault, where there is one.
    fn param(&self) -> Option<&str> {
        match self {
            Self::InvalidHeader { name, .. } => Some(name.as_str()),
            Self::ModelNotFound { .. } => Some("model"),
            _ => None,
        }
    }

    /// The body, in the shape OpenAI's clients read.
    pub fn body(&self) -> Bytes {
        let error = serde_json::json!({
            "error": { "message": self.message(), "type": self.kind(), "param": self.param(), "code": self.code() }
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
