//! A breaker's parameters as numbers, read once per pool.

use crate::descriptor::{Params, Value};
use crate::time::{Duration, duration_from_secs};

/// Which tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Sequential tests.
    Adaptive,
    /// Fixed thresholds.
    Classic,
    /// None.
    Off,
}

/// The parameters of every breaker of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) kind: Kind,
    pub(crate) max_ejected: f64,
    /// A returned endpoint takes the pool's warm-up steps.
    pub(crate) steps: bool,
    pub(crate) stall_after_s: f64,
    pub(crate) probe_cap: Duration,
    pub(crate) probe_timeout: Duration,
    pub(crate) success_threshold: u32,
    pub(crate) consecutive_errors: u32,
    pub(crate) error_rate: f64,
    pub(crate) slow_rate: f64,
    pub(crate) slow_after_s: f64,
    pub(crate) min_requests: u32,
    pub(crate) window: Duration,
    pub(crate) cool_down: Duration,
    pub(crate) max_cool_down: Duration,
    pub(crate) forgive_after: Duration,
}

impl Settings {
    /// Reads `params`; what the breaker does not have is 0 and never looked at.
    pub(crate) fn of(params: &Params) -> Self {
        let duration = |name: &str| duration_from_secs(params.float(name));
        let count = |name: &str| u32::try_from(params.integer(name)).unwrap_or(u32::MAX);
        let cool_down = duration("cool_down");
        Self {
            kind: match params.descriptor().name {
                "classic" => Kind::Classic,
                "off" => Kind::Off,
                _ => Kind::Adaptive,
            },
            max_ejected: params.float("max_ejected"),
            steps: params.get("after_recovery") == Value::Choice("steps"),
            stall_after_s: params.float("stall_after"),
            probe_cap: duration("probe_cap"),
            probe_timeout: duration("probe_timeout"),
            success_threshold: count("success_threshold").max(1),
            consecutive_errors: count("consecutive_errors"),
            error_rate: params.float("error_rate"),
            slow_rate: params.float("slow_rate"),
            slow_after_s: params.float("slow_after"),
            min_requests: count("min_requests"),
            window: duration("window"),
            cool_down,
            max_cool_down: duration("max_cool_down").max(cool_down),
            forgive_after: duration("forgive_after"),
        }
    }
}
