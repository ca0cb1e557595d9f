//! Balancing policies: one file each, read top to bottom.
//!
//! A policy is a [`Picker`]: it gets the endpoints that may be used and names one. What may be used is the pool's business, so no
//! policy can pick a dead endpoint; what a policy learns, it learns from the same events in every driver.

mod draw;
mod outstanding;
mod picker;
pub mod registry;
mod seats;
mod speed;
mod tie;

pub mod adaptive;
pub mod consistent_hash;
pub mod fastest_recovery;
pub mod health_score;
pub mod hybrid;
pub mod least_connections;
pub mod least_response_time;
pub mod least_work;
pub mod peak_ewma;
pub mod prefix_affinity;
pub mod prequal;
pub mod random;
pub mod round_robin;
pub mod weighted_round_robin;

pub use outstanding::Outstanding;
pub use picker::{Cx, Pick, Picker, Usable};
