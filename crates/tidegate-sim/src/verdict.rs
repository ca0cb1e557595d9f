//! How an engine's refusal is classified: the proxy's table (its `verdict`), with one addition.
//!
//! The article's engines say 503 `overloaded` without `Retry-After`. That is a load signal, not a fault, so it counts as throttling: the
//! endpoint is left alone for a moment and not ejected.

use tidegate_core::outcome::{Failure, Verdict};

use crate::engine::Rejection;

/// What a refusal says.
pub fn verdict(rejection: &Rejection) -> Verdict {
    let retry_after = rejection.retry_after;
    match (rejection.status, retry_after) {
        (408 | 499, _) => Verdict::Cancelled,
        (503, None) if rejection.code == "overloaded" => Verdict::Throttled { retry_after },
        (429, _) | (503 | 529, Some(_)) => Verdict::Throttled { retry_after },
        (501 | 505, _) | (400..=499, _) => Verdict::ClientError,
        _ => Verdict::Failed(Failure::Status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::time::Duration;

    #[test]
    fn as_the_proxy_does() {
        let r = |status, code, retry_after| verdict(&Rejection { status, code, retry_after });
        assert_eq!(r(503, "overloaded", None), Verdict::Throttled { retry_after: None });
        assert_eq!(r(503, "broken", None), Verdict::Failed(Failure::Status));
        let after = Some(Duration::from_secs(2));
        assert_eq!(r(503, "", after), Verdict::Throttled { retry_after: after });
        assert_eq!(r(429, "", None), Verdict::Throttled { retry_after: None });
        assert_eq!(r(400, "context_length_exceeded", None), Verdict::ClientError);
        assert_eq!(r(500, "", None), Verdict::Failed(Failure::Status));
    }
}
