//! What users ask of engines: when requests come, how long they are, and how to sum up what they got.

pub mod arrivals;
mod burst;
pub mod journal;
pub mod latency;
pub mod lengths;
mod queries;
pub mod request_log;
pub mod synthetic;
pub mod trace;

pub use arrivals::Arrivals;
pub use burst::Burst;
pub use latency::Latency;
pub use lengths::LogNormal;
pub use queries::Queries;
pub use trace::{Trace, TraceRequest};
