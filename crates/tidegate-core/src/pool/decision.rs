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
    /// It waits for its turn: the decision is [`crate::pool::Pool::claim`]ed when an [`crate::event::Effect::Turn`] names it.
    Wait {
        /// The right to the decision, and the duty to take it or to leave.
        waiter: crate::queue::Waiter,
        /// When it is decided at the latest.
        until: crate::time::Instant,
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
    /// As many requests as the queue may hold wait already.
    QueueFull,
    /// As many requests of the tenant as it may have wait already.
    TenantQueueFull,
    /// At the speed of late its turn would not come in time.
    QueueTooLong,
    /// Its turn did not come in time.
    QueueTimeout,
    /// The pool has as many requests in flight as its concurrency limit allows.
    PoolLimit,
    /// The tenant has as many requests in flight as its share of the pool's concurrency allows.
    TenantLimit,
    /// Its first token would come later than its goal allows, wherever it went.
    GoalUnreachable,
    /// Its tokens would come slower than its goal allows, wherever it went.
    PaceUnreachable,
    /// No endpoint of the pool serves the model it asks for.
    ModelNotServed,
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
            Self::QueueFull => "queue_full",
            Self::TenantQueueFull => "tenant_queue_full",
            Self::QueueTooLong => "queue_wait_too_long",
            Self::QueueTimeout => "queue_timeout",
            Self::PoolLimit => "pool_concurrency_limit_exceeded",
            Self::TenantLimit => "tenant_concurrency_limit_exceeded",
            Self::GoalUnreachable => "ttft_goal_unreachable",
            Self::PaceUnreachable => "tpot_goal_unreachable",
            Self::ModelNotServed => "model_not_found",
            Self::RetryBudget => "retry_budget_exhausted",
            Self::Exhausted => "all_endpoints_failed",
        }
    }

    /// The sentence a client reads.
    pub const fn message(self) -> &'static str {
        match self {
            Self::NoEndpoint => "this pool has no endpoint that takes requests",
            Self::AllWeightsZero => "every endpoint of this pool has weight 0, which drains it",
            Self::NoHealthyEndpoint => "no endpoint that could take this request is healthy, or too few are",
            Self::EndpointLimit => "every healthy endpoint of this pool is at its max_in_flight",
            Self::Overloaded => "every healthy endpoint of this pool reports a load over max_load",
            Self::QueueFull => "as many requests as its queue may hold wait already",
            Self::TenantQueueFull => "as many requests of this tenant as its queue allows one tenant wait already",
            Self::QueueTooLong => "the queue is too long for an answer in time",
            Self::QueueTimeout => "no endpoint had a place within the longest wait",
            Self::PoolLimit => "the pool has as many requests in flight as its concurrency limit allows",
            Self::TenantLimit => "the tenant has as many requests in flight as its share of the pool allows",
            Self::GoalUnreachable => "the first token would come later than the goal for it allows, on every endpoint",
            Self::PaceUnreachable => "tokens would come slower than the goal for it allows, on every endpoint",
            Self::ModelNotServed => "no endpoint of this pool serves the model asked for",
            Self::RetryBudget => "the attempt failed and no retry is left",
            Self::Exhausted => "every endpoint of this pool that could be tried has failed this request",
        }
    }
}

impl Shed {
    /// Whether the tenant itself is over what it may have, which is 429; otherwise the pool is the one that cannot, which is 503.
    pub const fn is_of_tenant(self) -> bool {
        matches!(self, Self::TenantLimit | Self::TenantQueueFull)
    }
}
