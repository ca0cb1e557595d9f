//! What is written down: one wide record per request, from which logs and metrics derive.
//!
//! Telemetry never decides. Nothing here is read by a decision, and a lost record changes no request.

mod counters;
mod exposition;
mod families;
mod histogram;
mod journal;
mod log;
mod outcomes;
mod recent;
mod record;
mod signals;
mod telemetry;
mod tenants;

pub use exposition::Exposition;
pub use families::{Family, FamilyKind, docs, family};
pub use journal::{
    Change, JournalError, JournalWriter, Mismatch, Replay, ReplayError, Settings as JournalSettings, What, replay,
};
pub use log::{LogError, init as init_log};
pub use recent::{Kept, RECENT_RECORDS};
pub use record::{Record, Sink};
pub use signals::SignalFacts;
pub use telemetry::Telemetry;
