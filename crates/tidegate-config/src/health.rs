//! Active health checks.

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use crate::scalar;
use crate::units::show_seconds;
use std::time::Duration;
use tidegate_core::pool::config::Panic;

/// Active health checks of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// What is asked of an endpoint.
    pub check: Check,
    /// Time between two checks of a healthy endpoint.
    pub interval: Duration,
    /// Time between two checks of an unhealthy endpoint.
    pub unhealthy_interval: Duration,
    /// Longest time until an answer; at most the shorter interval.
    pub timeout: Duration,
    /// Share (0..1) of the interval by which each wait is shortened or lengthened at random.
    pub jitter: f64,
    /// Consecutive failed checks that make a healthy endpoint unhealthy (at least 1).
    pub unhealthy_after: u32,
    /// Consecutive passed checks that make an unhealthy endpoint healthy (at least 1).
    pub healthy_after: u32,
    /// Below this share of endpoints that pass their checks (0..1), `panic` decides.
    pub panic_threshold: f64,
    /// What happens below `panic_threshold`.
    pub panic: Panic,
}

/// What is asked of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// A GET of `path`; passed if the status is in `expect`, both ends included.
    Http {
        /// Path of the request.
        path: String,
        /// Lowest and highest status that pass.
        expect: (u16, u16),
    },
    /// A connection that opens.
    Tcp,
}

/// The `http` table.
struct HttpCheck {
    path: String,
    expect: (u16, u16),
}

impl Section for HttpCheck {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.health.http",
        summary: "A GET request that must be answered with a good status.",
        keys: &[
            Key {
                name: "path",
                kind: Kind::Path,
                absent: Absent::Default("/health"),
                summary: "Path of the request.",
                example: "/health",
            },
            Key {
                name: "expect",
                kind: Kind::Statuses,
                absent: Absent::Default("2xx"),
                summary: "Statuses that pass.",
                example: "200-399",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let path = r.value("path", scalar::path).unwrap_or_default();
        Self { path, expect: r.value("expect", scalar::statuses).unwrap_or((200, 299)) }
    }
}

/// The `tcp` table, which has no keys yet.
struct TcpCheck;

impl Section for TcpCheck {
    const TABLE: &'static Table =
        &Table { place: "pools.NAME.health.tcp", summary: "A connection that must open; it has no keys.", keys: &[] };

    fn read(_: &mut Reader<'_, '_>) -> Self {
        Self
    }
}

const INTERVAL: Kind = Kind::Duration { min: 0.01, max: 86_400.0, word: None };
const AFTER: Kind = Kind::Integer { min: 1, max: 1000, word: None };

impl Section for Health {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.health",
        summary: "Active health checks. A first check decides at once.",
        keys: &[
            Key {
                name: "http",
                kind: Kind::Table(HttpCheck::TABLE),
                absent: Absent::Means("see tcp; one of the two must be given"),
                summary: "Check by an HTTP request.",
                example: "{ path: /health }",
            },
            Key {
                name: "tcp",
                kind: Kind::Table(TcpCheck::TABLE),
                absent: Absent::Means("see http; one of the two must be given"),
                summary: "Check by opening a connection.",
                example: "{}",
            },
            Key {
                name: "interval",
                kind: INTERVAL,
                absent: Absent::Default("5s"),
                summary: "Time between two checks of a healthy endpoint.",
                example: "5s",
            },
            Key {
                name: "unhealthy_interval",
                kind: INTERVAL,
                absent: Absent::Means("the same as interval"),
                summary: "Time between two checks of an unhealthy endpoint.",
                example: "1s",
            },
            Key {
                name: "timeout",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("1s"),
                summary: "Longest time until an answer; at most the interval.",
                example: "1s",
            },
            Key {
                name: "jitter",
                kind: Kind::Fraction { min: 0.0, max: 0.9, word: None },
                absent: Absent::Default("10%"),
                summary: "Share of the interval by which each wait is shortened or lengthened at random.",
                example: "10%",
            },
            Key {
                name: "unhealthy_after",
                kind: AFTER,
                absent: Absent::Default("3"),
                summary: "Consecutive failed checks that make a healthy endpoint unhealthy.",
                example: "3",
            },
            Key {
                name: "healthy_after",
                kind: AFTER,
                absent: Absent::Default("2"),
                summary: "Consecutive passed checks that make an unhealthy endpoint healthy.",
                example: "2",
            },
            Key {
                name: "panic_threshold",
                kind: Kind::Fraction { min: 0.0, max: 1.0, word: None },
                absent: Absent::Default("50%"),
                summary: "When fewer than this share of the endpoints pass, panic decides. Those that joined later and never passed do not count: they start.",
                example: "50%",
            },
            Key {
                name: "panic",
                kind: Kind::Choice(&["use_all", "refuse"]),
                absent: Absent::Default("use_all"),
                summary: "Below panic_threshold: use all endpoints, or refuse with 503.",
                example: "use_all",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let (http, tcp) = (r.table::<HttpCheck>("http"), r.table::<TcpCheck>("tcp"));
        match (http.is_some(), tcp.is_some()) {
            (true, true) => r.contradiction(
                "tcp",
                "tcp beside http".to_owned(),
                "one of http and tcp",
                "an HTTP check opens a connection too: remove `tcp`".to_owned(),
            ),
            (false, false) => r.missing("http"),
            _ => {}
        }
        let interval = r.duration("interval");
        let unhealthy_interval = r.duration_or_none("unhealthy_interval").unwrap_or(interval);
        let timeout = timeout_within(r, interval.min(unhealthy_interval), &["interval", "unhealthy_interval"]);
        let whole = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            check: http.map_or(Check::Tcp, |h| Check::Http { path: h.path, expect: h.expect }),
            interval,
            unhealthy_interval,
            timeout,
            jitter: r.number("jitter"),
            unhealthy_after: whole(r.integer("unhealthy_after")),
            healthy_after: whole(r.integer("healthy_after")),
            panic_threshold: r.number("panic_threshold"),
            panic: if r.choice("panic") == "refuse" { Panic::Refuse } else { Panic::UseAll },
        }
    }
}

/// The key `timeout`, which must fit into `interval` so that two requests to an endpoint never overlap; a default gives way. `others` are
/// the keys that make the interval.
pub(crate) fn timeout_within(r: &mut Reader<'_, '_>, interval: Duration, others: &[&str]) -> Duration {
    let timeout = r.duration("timeout");
    if !r.is_set("timeout") {
        return timeout.min(interval);
    }
    if timeout > interval && r.all_good(&["timeout"]) && r.all_good(others) {
        r.contradiction(
            "timeout",
            format!(
                "{}, longer than the interval of {}",
                show_seconds(timeout.as_secs_f64()),
                show_seconds(interval.as_secs_f64())
            ),
            "at most the interval",
            format!("for example: `timeout: {}`", show_seconds(interval.as_secs_f64() / 2.0)),
        );
    }
    timeout
}
