//! Metrics that auto-tuning rules look at: pages in the Prometheus text format, and the answers of a Prometheus server.

mod follow;
mod page;
mod query;
mod reading;

#[cfg(test)]
pub(crate) use follow::follow_through;
pub use follow::{Follow, Seen, TellSeen, follow};
pub(crate) use page::{Sample, samples};
pub use reading::{Reading, Unread};
