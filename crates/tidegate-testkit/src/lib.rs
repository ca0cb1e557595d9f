//! Test helpers: endpoints that follow a script, byte by byte, and clients that see every byte.
//!
//! Both speak raw HTTP/1.1 over real sockets on loopback, on ports the system gives, so that a test can send what no library would.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of tests: a failed expectation is a failed test"
)]

mod client;
mod script;

pub use client::{Client, Reply};
pub use script::{Asked, Conversation, Scripted};

use std::time::Duration;

/// Longest time a test waits for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until `done` says so, looking again whenever the runtime comes round.
///
/// # Panics
/// If it does not within [`PATIENCE`].
pub async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}

/// [`eventually`] for a test without a runtime, with more patience: `time` on top.
#[allow(clippy::disallowed_methods, reason = "patience is a time")]
pub fn wait_until(what: &str, time: Duration, mut done: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE + time, "not within {:?}: {what}", PATIENCE + time);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Time that a part of a test takes by nature: an engine between two tokens, a client between two requests. Nothing may depend on it.
pub async fn takes(time: Duration) {
    tokio::time::sleep(time).await;
}

/// [`takes`] for a test without a runtime.
#[allow(clippy::disallowed_methods, reason = "a test has its thread for itself")]
pub fn lasts(time: Duration) {
    std::thread::sleep(time);
}
