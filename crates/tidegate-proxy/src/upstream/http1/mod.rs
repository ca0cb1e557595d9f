//! The side of HTTP/1.1 that faces an endpoint: a request goes out, an answer comes in, its pieces handed on as they are read.
//!
//! The connection is polled by the task that wants the answer; nothing is spawned, no channel lies between. Between two answers it holds
//! no buffer. Framing follows RFC 9112 section 6.3, strictly where a doubt could let an answer end elsewhere than its endpoint means.

mod body;
mod client;
mod head;

pub(crate) use client::{BodyError, Client, SendError};

/// What the fuzz target `answers` drives.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzed {
    pub(crate) use super::body::Decoder;
    pub(crate) use super::head::{Head, Malformed, read};
}
