//! Bounds on HTTP/2 connections of clients. The size and number of headers is bounded as with HTTP/1.1.

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use std::time::Duration;

/// Bounds on one HTTP/2 connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Requests a client may have open at once.
    pub max_concurrent_streams: u32,
    /// Bytes of a request's body that a client may send ahead.
    pub stream_window: u32,
    /// Bytes of all its requests' bodies that a client may send ahead.
    pub connection_window: u32,
    /// Bytes of an answer that are held for a client that reads slowly, per request.
    pub send_buffer: usize,
    /// Requests that were withdrawn before they were looked at; more end the connection.
    pub max_pending_resets: usize,
    /// Requests that were reset for faults of the client; more end the connection.
    pub max_error_resets: usize,
    /// Silence after which the client is asked whether it is there; `None` never asks.
    pub ping_interval: Option<Duration>,
    /// Longest time until it answers.
    pub ping_timeout: Duration,
}

/// Largest window of RFC 9113 (6.9.1), in bytes.
const MAX_WINDOW: u64 = (1 << 31) - 1;
/// Smallest window that carries a frame of the usual size, in bytes.
const MIN_WINDOW: u64 = 16 << 10;
/// Smallest window of a connection, in bytes: RFC 9113 has it begin with about as much.
const MIN_CONNECTION_WINDOW: u64 = 64 << 10;

impl Section for Http2 {
    const TABLE: &'static Table = &Table {
        place: "limits.http2",
        summary: "Bounds on one HTTP/2 connection; max_header_bytes and max_headers hold for each of its requests.",
        keys: &[
            Key {
                name: "max_concurrent_streams",
                kind: Kind::Integer { min: 1, max: 100_000, word: None },
                absent: Absent::Default("128"),
                summary: "Requests a client may have open at once.",
                example: "128",
            },
            Key {
                name: "stream_window",
                kind: Kind::Size { min: MIN_WINDOW, max: MAX_WINDOW },
                absent: Absent::Default("256KiB"),
                summary: "Bytes of a request's body that a client may send ahead.",
                example: "256KiB",
            },
            Key {
                name: "connection_window",
                kind: Kind::Size { min: MIN_CONNECTION_WINDOW, max: MAX_WINDOW },
                absent: Absent::Default("1MiB"),
                summary: "Bytes of all its requests' bodies that a client may send ahead.",
                example: "1MiB",
            },
            Key {
                name: "send_buffer",
                kind: Kind::Size { min: 1 << 10, max: 1 << 30 },
                absent: Absent::Default("64KiB"),
                summary: "Bytes of an answer that are held for a client that reads slowly, per request.",
                example: "64KiB",
            },
            Key {
                name: "max_pending_resets",
                kind: Kind::Integer { min: 1, max: 100_000, word: None },
                absent: Absent::Default("20"),
                summary: "Requests withdrawn before they were looked at (rapid reset); more end the connection.",
                example: "20",
            },
            Key {
                name: "max_error_resets",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
                absent: Absent::Default("1024"),
                summary: "Requests that had to be reset for faults of the client, over the whole connection; more end it.",
                example: "1024",
            },
            Key {
                name: "ping_interval",
                kind: Kind::Duration { min: 0.001, max: 86_400.0, word: Some("off") },
                absent: Absent::Default("30s"),
                summary: "Silence after which the client is asked whether it is there.",
                example: "30s",
            },
            Key {
                name: "ping_timeout",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("10s"),
                summary: "Longest time until it answers; then the connection is closed.",
                example: "10s",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let mut window = |name| u32::try_from(r.size(name)).unwrap_or(u32::MAX);
        Self {
            stream_window: window("stream_window"),
            connection_window: window("connection_window"),
            max_concurrent_streams: u32::try_from(r.integer("max_concurrent_streams")).unwrap_or(u32::MAX),
            send_buffer: usize::try_from(r.size("send_buffer")).unwrap_or(usize::MAX),
            max_pending_resets: r.count("max_pending_resets"),
            max_error_resets: r.count("max_error_resets"),
            ping_interval: r.duration_or_none("ping_interval"),
            ping_timeout: r.duration("ping_timeout"),
        }
    }
}
