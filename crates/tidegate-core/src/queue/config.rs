//! Settings of a queue.

use crate::time::Duration;
use alloc::string::String;
use alloc::vec::Vec;

/// Settings of a pool's queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueConfig {
    /// Most requests that wait, of all tenants together (at least 1).
    pub max_waiting: usize,
    /// Most requests of one tenant that wait (at least 1).
    pub max_per_tenant: usize,
    /// Longest wait; a request with an earlier deadline of its own waits no longer than that.
    pub max_wait: Duration,
    /// Priority classes, the highest first; at least one.
    pub classes: Vec<ClassConfig>,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            max_waiting: 1000,
            max_per_tenant: 250,
            max_wait: Duration::from_secs(10),
            classes: Vec::from([ClassConfig { name: String::from("default"), share: 0.0 }]),
        }
    }
}

/// A priority class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassConfig {
    /// Its name.
    pub name: String,
    /// Share of what is served (0..1, by cost) that is this class's while it waits, whatever stands above it. What nobody has reserved
    /// goes to the highest class that waits.
    pub share: f64,
}
