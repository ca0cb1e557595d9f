//! The answers of a pool.

use super::Ticket;
use crate::time::Duration;

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes to the ticket's endpoint.
    Send {
        /// The right, and the duty, to settle it.
        ticket: Ticket,
        /// The rule that decided: a policy's name, `affinity`, `probe` or `panic`.
        rule: &'static str,
        /// What in the rule decided, a stable word; may be empty.
        detail: &'static str,
    },
    /// It is refused; nothing was taken anywhere.
    Shed {
        /// Why.
        why: Shed,
        /// When trying again makes sense, where that is known.
        retry_after: Option<Duration>,
    },
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// The pool has no endpoint, or all are draining.
    NoEndpoint,
    /// Every endpoint has weight 0.
    AllWeightsZero,
    /// No endpoint is healthy, or too few for a pool that fails closed.
    NoHealthyEndpoint,
    /// Every endpoint that is healthy has `max_in_flight` requests.
    EndpointLimit,
    /// Every endpoint that is healthy reports a load over `max_load`.
    Overloaded,
    /// A retry, and no attempt or budget is left for it.
    RetryBudget,
    /// A retry, and every usable endpoint was tried.
    Exhausted,
}

impl Shed {
    /// The stable `code` of the error a client reads.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NoEndpoint => "no_endpoint",
            Self::AllWeightsZero => "all_weights_zero",
            Self::NoHealthyEndpoint => "no_healthy_endpoint",
            Self::EndpointLimit => "endpoint_limit_exceeded",
            Self::Overloaded => "pool_overloaded",
            Self::RetryBudget => "retry_budget_exhausted",
            Self::Exhausted => "all_endpoints_failed",
        }
    }

    /// The sentence a client reads.
    pub const fn message(self) -> &'static str {
        match self {
            Self::NoEndpoint => "this pool has no endpoint that takes requests",
            Self::AllWeightsZero => "every endpoint of this pool has weight 0, which drains it",
            Self::NoHealthyEndpoint => "no endpoint of this pool is healthy, or too few are",
            Self::EndpointLimit => "every healthy endpoint of this pool is at its max_in_flight",
            Self::Overloaded => "every healthy endpoint of this pool reports a load over max_load",
            Self::RetryBudget => "the attempt failed and no retry is left",
            Self::Exhausted => "every endpoint of this pool that could be tried has failed this request",
        }
    }
}
