//! The words that may stand in the `outcome` label: a closed list, so that no client can make series.

/// Words a record's `outcome` may be counted as; the last two are for what is not listed.
pub(crate) const OUTCOMES: [&str; 55] = [
    "success",
    "client_error",
    "cancelled",
    "throttled",
    "connect",
    "reset",
    "malformed",
    "first_byte_timeout",
    "status",
    "truncated",
    "stalled",
    "in_band_error",
    "no_route",
    "no_endpoint",
    "all_weights_zero",
    "no_healthy_endpoint",
    "endpoint_limit_exceeded",
    "pool_overloaded",
    "retry_budget_exhausted",
    "all_endpoints_failed",
    "endpoint_unreachable",
    "endpoint_reset",
    "endpoint_malformed",
    "endpoint_timeout",
    "endpoint_stalled",
    "endpoint_failed",
    "queue_full",
    "tenant_queue_full",
    "queue_wait_too_long",
    "queue_timeout",
    "pool_concurrency_limit_exceeded",
    "ttft_goal_unreachable",
    "tpot_goal_unreachable",
    "model_not_found",
    "invalid_header",
    "global_rate_limit_exceeded",
    "tenant_rate_limit_exceeded",
    "model_rate_limit_exceeded",
    "route_rate_limit_exceeded",
    "global_concurrency_limit_exceeded",
    "tenant_concurrency_limit_exceeded",
    "model_concurrency_limit_exceeded",
    "route_concurrency_limit_exceeded",
    "request_exceeds_limit",
    "invalid_api_key",
    "missing_credentials",
    "unknown_tenant",
    "invalid_token",
    "pool_not_allowed",
    "model_not_allowed",
    "request_timeout",
    "gateway_stopping",
    "body_too_large",
    BAD_REQUEST,
    "other",
];

/// Every request that was refused for its own fault and has no word of its own.
const BAD_REQUEST: &str = "bad_request";

/// The place of an outcome in [`OUTCOMES`]; `status` decides about a word that is not there.
pub(crate) fn place(outcome: &str, status: u16) -> usize {
    let find = |word: &str| OUTCOMES.iter().position(|&o| o == word);
    let fallback = || if (400..500).contains(&status) { find(BAD_REQUEST) } else { None };
    find(outcome).or_else(fallback).unwrap_or(OUTCOMES.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::limit::Scope;
    use tidegate_core::outcome::{Failure, Verdict};
    use tidegate_core::pool::Shed;

    #[test]
    fn every_word_of_core_has_its_place() {
        use Shed::{AllWeightsZero, EndpointLimit, Exhausted, NoEndpoint, NoHealthyEndpoint, Overloaded, RetryBudget};
        use Shed::{PoolLimit, QueueFull, QueueTimeout, QueueTooLong, TenantLimit, TenantQueueFull};
        let sheds = [NoEndpoint, AllWeightsZero, NoHealthyEndpoint, EndpointLimit, Overloaded, RetryBudget, Exhausted];
        let sheds = sheds.into_iter();
        let sheds = sheds.chain([PoolLimit, QueueFull, QueueTimeout, QueueTooLong, TenantLimit, TenantQueueFull]);
        let limits = Scope::ALL.into_iter().flat_map(|s| [s.rate_code(), s.concurrency_code()]);
        use Failure::{Connect, FirstByteTimeout, Malformed, Reset, Stalled, Status, Truncated};
        let failures = [Connect, Reset, Malformed, FirstByteTimeout, Status, Truncated, Stalled].map(Verdict::Failed);
        let verdicts =
            [Verdict::Success, Verdict::ClientError, Verdict::Cancelled, Verdict::Throttled { retry_after: None }];
        let words =
            sheds.map(|s| s.code()).chain(limits).chain(failures.into_iter().chain(verdicts).map(|v| v.as_str()));
        for word in words {
            assert_eq!(OUTCOMES[place(word, 503)], word);
        }
    }

    #[test]
    fn an_unknown_word_makes_no_series() {
        assert_eq!(OUTCOMES[place("bad_chunk", 400)], "bad_request");
        assert_eq!(OUTCOMES[place("something new", 502)], "other");
    }
}
