//! Patience with an upstream: timeouts, retries and the connections that are kept.

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use crate::units::show_seconds;
use std::time::Duration;
use tidegate_core::pool::config::RetryConfig;

/// How long each part of a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a connection to the endpoint is open.
    pub connect: Duration,
    /// From sending until the first byte of the answer; `None` has no bound.
    pub first_byte: Option<Duration>,
    /// Between two pieces of the answer's body; `None` has no bound.
    pub between_tokens: Option<Duration>,
    /// From the request's arrival until the end of the answer; `None` has no bound.
    pub total: Option<Duration>,
    /// Longest time in which an upgraded connection moves no byte; `None` has no bound.
    pub upgrade_idle: Option<Duration>,
}

impl Section for Timeouts {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.timeouts",
        summary: "How long each part of a request may take.",
        keys: &[
            Key {
                name: "connect",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("1s"),
                summary: "Until a connection to the endpoint is open.",
                example: "1s",
            },
            Key {
                name: "first_byte",
                kind: Kind::Duration { min: 0.001, max: 86_400.0, word: Some("none") },
                absent: Absent::Default("60s"),
                summary: "From sending until the first byte of the answer; where a long body goes up, from its last piece.",
                example: "60s",
            },
            Key {
                name: "between_tokens",
                kind: Kind::Duration { min: 0.001, max: 86_400.0, word: Some("none") },
                absent: Absent::Default("30s"),
                summary: "Between two pieces of the answer's body.",
                example: "30s",
            },
            Key {
                name: "total",
                kind: Kind::Duration { min: 0.001, max: 604_800.0, word: Some("none") },
                absent: Absent::Default("none"),
                summary: "From the request's arrival until the end of the answer; for an upgraded connection (WebSocket) until it is upgraded.",
                example: "10m",
            },
            Key {
                name: "upgrade_idle",
                kind: Kind::Duration { min: 0.001, max: 604_800.0, word: Some("none") },
                absent: Absent::Default("5m"),
                summary: "Longest time in which an upgraded connection (WebSocket) moves no byte in either direction.",
                example: "5m",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let connect = r.duration("connect");
        let (first_byte, between_tokens) = (r.duration_or_none("first_byte"), r.duration_or_none("between_tokens"));
        let total = r.duration_or_none("total");
        let mut within = |name: &str, part: Option<Duration>| match (part, total) {
            (Some(part), Some(total)) if part > total && !r.is_set(name) => Some(total),
            (Some(part), Some(total)) if part > total => {
                if r.all_good(&[name, "total"]) {
                    let (part, total) = (show_seconds(part.as_secs_f64()), show_seconds(total.as_secs_f64()));
                    let found = format!("{part}, longer than total ({total})");
                    r.contradiction(
                        name,
                        found,
                        "at most total",
                        format!("lower {name} or raise total; `total: none` has no bound"),
                    );
                }
                Some(part)
            }
            (part, _) => part,
        };
        Self {
            connect: within("connect", Some(connect)).unwrap_or(connect),
            first_byte: within("first_byte", first_byte),
            between_tokens: within("between_tokens", between_tokens),
            total,
            upgrade_idle: r.duration_or_none("upgrade_idle"),
        }
    }
}

/// Retries before the first byte, onto another endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// Dispatches of one request, the first included (at least 1).
    pub max_attempts: u32,
    /// Retries the pool may make per request it admits (0..1).
    pub budget: f64,
    /// Whether an answer of 429, 500, 502, 503, 504 or 529 sends the request elsewhere.
    pub on_status: bool,
    /// The quantile of times to first byte after which a second attempt is made beside the first; `None` makes none.
    pub hedge: Option<f64>,
}

impl Retry {
    /// What core is told.
    pub fn core(&self) -> RetryConfig {
        RetryConfig { max_attempts: self.max_attempts, budget: self.budget, hedge: self.hedge }
    }
}

impl Section for Retry {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.retry",
        summary: "Retries before the first byte, onto another endpoint.",
        keys: &[
            Key {
                name: "max_attempts",
                kind: Kind::Integer { min: 1, max: 16, word: None },
                absent: Absent::Default("3"),
                summary: "Dispatches of one request, the first included; 1 never retries.",
                example: "3",
            },
            Key {
                name: "budget",
                kind: Kind::Fraction { min: 0.0, max: 1.0, word: None },
                absent: Absent::Default("0.2"),
                summary: "Retries the pool may make per request it admits.",
                example: "20%",
            },
            Key {
                name: "on_status",
                kind: Kind::Bool,
                absent: Absent::Default("true"),
                summary: "Whether an answer of 429, 500, 502, 503, 504 or 529 sends the request to another endpoint.",
                example: "false",
            },
            Key {
                name: "hedge_after",
                kind: Kind::Fraction { min: 0.5, max: 0.999, word: Some("off") },
                absent: Absent::Default("off"),
                summary: "After this quantile of times to first byte a second attempt is made beside the first, within the budget.",
                example: "95%",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let max_attempts = u32::try_from(r.integer("max_attempts")).unwrap_or(1);
        Self {
            max_attempts,
            budget: r.number("budget"),
            on_status: r.bool("on_status"),
            hedge: r.number_or_none("hedge_after"),
        }
    }
}

/// Connections to endpoints that are kept for the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Most idle connections per endpoint on each core; 0 keeps none.
    pub max_idle_per_endpoint: usize,
    /// Longest time a connection is kept idle.
    pub idle_timeout: Duration,
    /// Most requests at once on one HTTP/2 connection; more open another. The engine may allow fewer.
    pub max_streams: usize,
}

impl Section for Connections {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.connections",
        summary: "Connections to endpoints that are kept for the next request.",
        keys: &[
            Key {
                name: "max_idle_per_endpoint",
                kind: Kind::Integer { min: 0, max: 65_536, word: None },
                absent: Absent::Default("256"),
                summary: "Most idle connections per endpoint on each core; 0 keeps none.",
                example: "256",
            },
            Key {
                name: "idle_timeout",
                kind: Kind::Duration { min: 0.001, max: 86_400.0, word: None },
                absent: Absent::Default("60s"),
                summary: "Longest time a connection is kept idle.",
                example: "60s",
            },
            Key {
                name: "max_streams",
                kind: Kind::Integer { min: 1, max: 100_000, word: None },
                absent: Absent::Default("100"),
                summary: "Most requests at once on one HTTP/2 connection; more open another. An engine that allows fewer is heeded.",
                example: "100",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self {
            max_idle_per_endpoint: r.count("max_idle_per_endpoint"),
            idle_timeout: r.duration("idle_timeout"),
            max_streams: r.count("max_streams"),
        }
    }
}
