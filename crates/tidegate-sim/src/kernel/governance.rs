//! What stands in front of a pool: limits, and the baselines they are compared with.

use tidegate_core::limit::limits::config::LimitsConfig;
use tidegate_core::time::Duration;

/// The governance of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Governance {
    /// Its name.
    pub name: String,
    /// Limits, as a gateway has them; every gateway its own.
    pub limits: LimitsConfig,
    /// Limits with shares whose requests wait instead of being refused: how long.
    pub waits: Vec<(String, Duration)>,
    /// Names of the queue's priority classes, the highest first.
    pub classes: Vec<String>,
    /// Whether limits and queue know who asks; a baseline does not.
    pub told_apart: bool,
    /// Baseline: plain rates are windows that begin anew every period, instead of buckets.
    pub windows: bool,
    /// Baseline: the length of every answer is known before it begins; a gateway learns it by tenant.
    pub known_lengths: bool,
    /// Baseline: failed requests are sent again, up to so many dispatches in all, with no budget asked.
    pub naive_attempts: Option<u32>,
}
