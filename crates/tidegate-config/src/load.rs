//! Where an endpoint's load comes from.

use crate::health::timeout_within;
use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use crate::scalar;
use crate::units::show_seconds;
use std::time::Duration;
use tidegate_core::pool::config::LoadConfig;

/// The source of reported loads of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The page that is polled.
    pub status: StatusSource,
    /// Age from which a report counts for nothing.
    pub max_age: Duration,
    /// Load (0..1) that one request adds, for own credit between reports; `None` learns it.
    pub per_request: Option<f64>,
}

/// A page that answers `{"response_time": s, "current_load": 0..1}`, and `cpu`, `gpu` and `memory` (0..1) if it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSource {
    /// Path of the page.
    pub path: String,
    /// Time between two polls of an endpoint.
    pub interval: Duration,
    /// Longest time until an answer; at most the interval.
    pub timeout: Duration,
}

impl Load {
    /// What core is told.
    pub fn core(&self) -> LoadConfig {
        LoadConfig { max_age: self.max_age, per_request: self.per_request }
    }
}

impl Section for StatusSource {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.load.status",
        summary: "A page that answers `{\"response_time\": seconds, \"current_load\": 0..1}`; it may carry `cpu`, `gpu` and `memory` (0..1) too, \
                  which `weights: auto` of weighted_round_robin goes by. Each of them may be absent.",
        keys: &[
            Key {
                name: "path",
                kind: Kind::Path,
                absent: Absent::Default("/status"),
                summary: "Path of the page.",
                example: "/status",
            },
            Key {
                name: "interval",
                kind: Kind::Duration { min: 0.01, max: 3600.0, word: None },
                absent: Absent::Default("1s"),
                summary: "Time between two polls of an endpoint.",
                example: "1s",
            },
            Key {
                name: "timeout",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("500ms"),
                summary: "Longest time until an answer; at most the interval.",
                example: "500ms",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let path = r.value("path", scalar::path).unwrap_or_default();
        let interval = r.duration("interval");
        Self { path, interval, timeout: timeout_within(r, interval, &["interval"]) }
    }
}

impl Section for Load {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.load",
        summary: "Where an endpoint's load (0..1) comes from.",
        keys: &[
            Key {
                name: "status",
                kind: Kind::Table(StatusSource::TABLE),
                absent: Absent::Required,
                summary: "Poll a status page.",
                example: "{ path: /status, interval: 1s }",
            },
            Key {
                name: "max_age",
                kind: Kind::Duration { min: 0.01, max: 86_400.0, word: None },
                absent: Absent::Means("three polling intervals"),
                summary: "Age from which a report counts for nothing.",
                example: "3s",
            },
            Key {
                name: "per_request",
                kind: Kind::Fraction { min: 0.000_001, max: 1.0, word: None },
                absent: Absent::Means("learned from the reports, beginning at 1/max_in_flight, else 0.01"),
                summary: "Load that one request adds, counted until the next report.",
                example: "0.02",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let problems = r.walk.problems.len();
        let status: StatusSource = r.table_or_default("status");
        let is_whole = r.walk.problems.len() == problems;
        let max_age = r.duration_or_none("max_age").unwrap_or(status.interval * 3);
        if max_age < status.interval && is_whole && r.all_good(&["max_age"]) {
            let interval = show_seconds(status.interval.as_secs_f64());
            r.contradiction(
                "max_age",
                format!("{}, shorter than the polling interval of {interval}", show_seconds(max_age.as_secs_f64())),
                "at least the polling interval: otherwise no report ever counts",
                format!("for example: `max_age: {}`", show_seconds(status.interval.as_secs_f64() * 3.0)),
            );
        }
        Self { status, max_age, per_request: r.number_or_none("per_request") }
    }
}
