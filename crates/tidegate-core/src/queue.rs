//! Waiting for a place: who is next when a pool is full.

mod config;
mod fair_queue;
mod tenant_queue;
mod waiter;

pub use config::{ClassConfig, QueueConfig};
pub use fair_queue::{FairQueue, May, QueueFull};
pub use waiter::{Waiter, WaiterId, Waiting};
