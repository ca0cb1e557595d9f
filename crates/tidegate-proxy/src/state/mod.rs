//! What outlives requests: pools, limits, tenants, the config in force, and what another process is told of it.

pub(crate) mod catalogue;
pub(crate) mod clock;
pub(crate) mod governor;
pub(crate) mod inherit;
pub(crate) mod jwt;
pub(crate) mod live_pool;
pub(crate) mod phase;
pub(crate) mod pool;
pub(crate) mod snapshot;
pub(crate) mod start_error;
pub(crate) mod tenant;
pub(crate) mod token_counts;
