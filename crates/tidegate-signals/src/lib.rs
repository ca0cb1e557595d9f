//! What is polled and heard: active health checks, status pages, metrics of engines, GPUs and nodes, the events of engines' prefix caches, and
//! the metrics of auto-tuning rules.
//!
//! One task per endpoint and source, each a loop that asks, tells the pool, and waits; so an endpoint never has two questions of the
//! same kind outstanding, however slow it is. This crate draws no conclusion: thresholds, staleness and degradation are core's.
//!
//! The tasks run on the runtime they are started on. That should not be one that serves requests: a saturated data plane must not make
//! engines look dead (a known way to lose a fleet).

mod accelerator;
mod cache_events;
mod cache_format;
mod check;
mod client;
mod dial;
mod engines;
mod merge;
mod metric;
mod miss;
mod models;
mod node;
mod pace;
mod poll;
mod status;
#[cfg(test)]
mod tests;
mod watch;
mod work;
mod zmtp;

pub use metric::{Follow, Reading, Seen, TellSeen, Unread, follow};
pub use watch::{Clock, Tell, TellFacts, TellModels, TellServes, Told, Watch};
