//! The data plane: the only crate that touches users' bytes.
//!
//! accept -> guard the raw head -> route -> sniff -> admit -> connect -> send -> head -> relay -> settle. One single-threaded runtime
//! per core with its own listening socket and its own idle upstream connections; the pool's lock is the only thing cores share, and it
//! is never held across an await.

mod asked;
mod attempt;
mod client_key;
mod clock;
mod connection;
mod endpoint_handle;
mod error;
mod exchange;
mod explained;
mod framing;
mod gateway;
mod governor;
mod guard;
mod hang;
mod headers;
mod jwt;
mod lease;
mod listener;
mod live_pool;
mod phase;
mod pool;
mod probe;
mod relay;
mod service;
mod snapshot;
mod sniff;
mod tenant;
mod token_counts;
mod turn;
mod upload;
mod upstream;
mod usage;

pub use clock::Clock;
pub use endpoint_handle::EndpointHandle;
pub use error::ProxyError;
pub use gateway::{Gateway, Prepared, StartError};
pub use governor::Governor;
pub use pool::PoolHandle;
pub use snapshot::{Current, Snapshot};
pub use tenant::{ANONYMOUS, digest};
