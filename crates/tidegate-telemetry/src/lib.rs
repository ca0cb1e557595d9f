//! What is written down: one wide record per request, from which logs and metrics derive.
//!
//! Telemetry never decides. Nothing here is read by a decision, and a lost record changes no request.

mod record;

pub use record::{Record, Sink};
