//! Bounds on what a client may send. Every buffer the data plane fills from outside is named here.

use crate::http2::Http2;
use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section, Switch};
use std::time::Duration;

/// Bounds on what a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a request's line and headers together.
    pub max_header_bytes: usize,
    /// Most headers of a request.
    pub max_headers: usize,
    /// Most bytes of a body that are buffered to read `model`, `stream`, `max_tokens` and keys; 0 reads nothing.
    pub sniff_bytes: usize,
    /// Most bytes of a request's body.
    pub max_body_bytes: u64,
    /// Longest time until a request's headers are complete; also the longest pause in a body while it is buffered.
    pub header_timeout: Duration,
    /// Longest time a connection may wait for its next request.
    pub idle_timeout: Duration,
    /// Most connections per listener.
    pub max_connections: usize,
    /// Most connections from one address, over all listeners; `None` has no bound.
    pub max_connections_per_address: Option<usize>,
    /// Longest time in which a client of HTTP/1.1 takes nothing of an answer that waits for it; `None` has no bound.
    pub send_timeout: Option<Duration>,
    /// Longest time until a TLS handshake is complete.
    pub handshake_timeout: Duration,
    /// Bounds on HTTP/2 connections; `None` speaks HTTP/1.1 only.
    pub http2: Option<Http2>,
}

impl Section for Limits {
    const TABLE: &'static Table = &Table {
        place: "limits",
        summary: "Bounds on what a client may send.",
        keys: &[
            Key {
                name: "max_header_bytes",
                kind: Kind::Size { min: 8 << 10, max: 16 << 20 },
                absent: Absent::Default("64KiB"),
                summary: "Most bytes of a request's line and headers together.",
                example: "64KiB",
            },
            Key {
                name: "max_headers",
                kind: Kind::Integer { min: 8, max: 10_000, word: None },
                absent: Absent::Default("128"),
                summary: "Most headers of a request.",
                example: "128",
            },
            Key {
                name: "sniff_bytes",
                kind: Kind::Size { min: 0, max: 1 << 30 },
                absent: Absent::Default("1MiB"),
                summary: "Most bytes of a body that are buffered to read model, stream, max_tokens and keys.",
                example: "1MiB",
            },
            Key {
                name: "max_body_bytes",
                kind: Kind::Size { min: 0, max: 1 << 40 },
                absent: Absent::Default("64MiB"),
                summary: "Most bytes of a request's body; a longer one is refused with 413.",
                example: "64MiB",
            },
            Key {
                name: "header_timeout",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("10s"),
                summary: "Longest time until a request's headers are complete, and longest pause in a body while it is buffered (sniff_bytes).",
                example: "10s",
            },
            Key {
                name: "idle_timeout",
                kind: Kind::Duration { min: 0.001, max: 86_400.0, word: None },
                absent: Absent::Default("75s"),
                summary: "Longest time a client's connection may wait for its next request.",
                example: "75s",
            },
            Key {
                name: "max_connections",
                kind: Kind::Integer { min: 1, max: 10_000_000, word: None },
                absent: Absent::Default("10_000"),
                summary: "Most client connections per listener.",
                example: "10_000",
            },
            Key {
                name: "max_connections_per_address",
                kind: Kind::Integer { min: 1, max: 10_000_000, word: Some("none") },
                absent: Absent::Default("none"),
                summary: "Most client connections from one IP address, over all listeners; a load balancer in front is one address.",
                example: "100",
            },
            Key {
                name: "send_timeout",
                kind: Kind::Duration { min: 0.001, max: 86_400.0, word: Some("none") },
                absent: Absent::Default("60s"),
                summary: "Longest time in which a client takes nothing of an answer that waits for it (HTTP/1.1; with HTTP/2 pings find it out).",
                example: "60s",
            },
            Key {
                name: "handshake_timeout",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("10s"),
                summary: "Longest time until a TLS handshake is complete.",
                example: "10s",
            },
            Key {
                name: "http2",
                kind: Kind::TableOr(Http2::TABLE, "off"),
                absent: Absent::Default("{}"),
                summary: "Bounds on HTTP/2 connections of clients; off speaks HTTP/1.1 only.",
                example: "{ max_concurrent_streams: 128 }",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let as_len = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let limits = Self {
            max_header_bytes: as_len(r.size("max_header_bytes")),
            max_headers: r.count("max_headers"),
            sniff_bytes: as_len(r.size("sniff_bytes")),
            max_body_bytes: r.size("max_body_bytes"),
            header_timeout: r.duration("header_timeout"),
            idle_timeout: r.duration("idle_timeout"),
            max_connections: r.count("max_connections"),
            max_connections_per_address: r
                .integer_or_none("max_connections_per_address")
                .and_then(|n| usize::try_from(n).ok()),
            send_timeout: r.duration_or_none("send_timeout"),
            handshake_timeout: r.duration("handshake_timeout"),
            http2: match r.switch("http2") {
                Switch::On(http2) => Some(http2),
                Switch::Off | Switch::Absent => None,
            },
        };
        // A default gives way to what is set: only two explicit values can contradict each other.
        let body = as_len(limits.max_body_bytes);
        let exceeds = limits.sniff_bytes > body && r.all_good(&["sniff_bytes", "max_body_bytes"]);
        if exceeds && r.is_set("sniff_bytes") && r.is_set("max_body_bytes") {
            r.contradiction(
                "sniff_bytes",
                format!("{} bytes, more than max_body_bytes allows ({body})", limits.sniff_bytes),
                "at most max_body_bytes",
                "lower sniff_bytes or raise max_body_bytes".to_owned(),
            );
        }
        let sniff_bytes = if r.is_set("sniff_bytes") { limits.sniff_bytes } else { limits.sniff_bytes.min(body) };
        Self { sniff_bytes, max_body_bytes: limits.max_body_bytes.max(sniff_bytes as u64), ..limits }
    }
}
