//! What every page that is polled has: a path, an interval and a time-out.

use crate::health::timeout_within;
use crate::key::{Absent, Key, Kind};
use crate::reader::Reader;
use crate::scalar;
use std::time::Duration;

/// A page of an endpoint that is asked for again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Path of the page.
    pub path: String,
    /// Time between two polls of an endpoint.
    pub interval: Duration,
    /// Longest time until an answer; at most the interval.
    pub timeout: Duration,
}

/// The key `path` with its default.
pub(super) const fn path(default: &'static str) -> Key {
    Key {
        name: "path",
        kind: Kind::Path,
        absent: Absent::Default(default),
        summary: "Path of the page.",
        example: default,
    }
}

pub(super) const INTERVAL: Key = Key {
    name: "interval",
    kind: Kind::Duration { min: 0.01, max: 3600.0, word: None },
    absent: Absent::Default("1s"),
    summary: "Time between two polls of an endpoint; never less than ten times what the last answer took.",
    example: "1s",
};

pub(super) const TIMEOUT: Key = Key {
    name: "timeout",
    kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
    absent: Absent::Default("500ms"),
    summary: "Longest time until an answer; at most the interval.",
    example: "500ms",
};

impl Polled {
    /// Reads `path`, `interval` and `timeout`.
    pub(super) fn read(r: &mut Reader<'_, '_>) -> Self {
        let path = r.value("path", scalar::path).unwrap_or_default();
        let interval = r.duration("interval");
        Self { path, interval, timeout: timeout_within(r, interval, &["interval"]) }
    }
}
