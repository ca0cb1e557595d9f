//! The breakers that studies compare.

use tidegate_core::balance::registry::{self, default_policy};
use tidegate_core::breaker::registry as breakers;
use tidegate_core::descriptor::{Params, Value};
use tidegate_core::pool::config::{PoolConfig, RetryConfig, WarmUpStep};
use tidegate_core::time::Duration;

/// One row, or column, of a study.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    breaker: &'static str,
    set: &'static [(&'static str, Value)],
}

/// The default, then what everybody else has.
pub(super) static BREAKERS: [Row; 4] = [
    Row { name: "adaptive", breaker: "adaptive", set: &[] },
    Row { name: "5 in a row", breaker: "classic", set: &[] },
    Row {
        name: "50 % of 10",
        breaker: "classic",
        set: &[
            ("consecutive_errors", Value::Integer(0)),
            ("error_rate", Value::Float(0.5)),
            ("min_requests", Value::Integer(10)),
        ],
    },
    Row {
        name: "50 % of 20",
        breaker: "classic",
        set: &[
            ("consecutive_errors", Value::Integer(0)),
            ("error_rate", Value::Float(0.5)),
            ("min_requests", Value::Integer(20)),
        ],
    },
];

/// A pool with that breaker.
pub(super) fn pool(policy: &str, breaker: usize, attempts: u32) -> PoolConfig {
    let row = &BREAKERS[breaker];
    let descriptor = breakers::find(row.breaker).unwrap_or(breakers::default_breaker());
    let mut params = Params::defaults(descriptor);
    for &(name, value) in row.set {
        // In range, as a test that runs every row shows.
        let _ = params.set(name, value);
    }
    let mut cfg = PoolConfig::new(Params::defaults(registry::find(policy).unwrap_or(default_policy())));
    cfg.breaker = params;
    cfg.warm_up = Some(vec![WarmUpStep { at: Duration::ZERO, share: 1.0 }]);
    cfg.retry = RetryConfig { max_attempts: attempts, ..RetryConfig::default() };
    cfg
}
