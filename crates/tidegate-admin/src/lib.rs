//! What operators see and do: the admin API, metrics, readiness, and the live page.
//!
//! Reads copy numbers under a pool's lock and format outside of it; writes are core events like any other. The page is three files
//! compiled in, so that it needs nothing from elsewhere.
//!
//! Who may ask: on a loopback address everybody who names it so (`Host` is checked, as a web page anywhere may point a name of its own
//! at 127.0.0.1); with a token only who presents it, apart from the page itself, `/healthz` and `/readyz`. A request that changes
//! something must be JSON and must not come from another origin.

mod access;
mod action;
mod admin;
mod answer;
mod config;
mod control;
mod events;
mod limits;
mod metrics;
mod page;
mod policies;
mod pools;
mod requests;
mod route;
mod rules;
#[cfg(test)]
mod tests;

pub use action::{Action, Running, Target};
pub use admin::{Admin, Ready, StartError, Subject};
pub use config::{ConfigBook, ConfigView, RejectedView, Reloading};
pub use metrics::render as metrics_page;
pub use policies::describe;
pub use rules::{ChangeView, RuleBook, RuleView};
