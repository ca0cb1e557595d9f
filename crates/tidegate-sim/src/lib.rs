//! Inference engines and their users, as pure code in virtual time.
//!
//! Every model here is a state machine driven by (state, event, `now`, generator): it never reads a clock, sleeps, spawns or does
//! I/O. The live `tidegate engine` drives the models in real time, the simulator drives the same code in virtual time, so what one
//! of them shows holds for the other. This crate never links an async runtime.

pub mod batch;
pub mod engine;
pub mod fault;
pub mod ideal;
pub mod kernel;
pub mod offered;
pub mod report;
pub mod rival;
pub mod saturation;
pub mod scenario;
pub mod sizing;
pub mod study;
pub mod tally;
pub mod workload;

pub use kernel::Kernel;
pub use kernel::setup::{Goal, Outage, Probes, Recorded, Setup, Shot, Site, Source};
pub use scenario::Scenario;
pub use tally::Tally;
