//! The data plane: the only crate that touches users' bytes.
//!
//! accept -> guard the raw head -> route -> sniff -> admit -> connect -> send -> head -> relay -> settle. One single-threaded runtime
//! per core with its own listening socket and its own idle upstream connections; the pool's lock is the only thing cores share, and it
//! is never held across an await.

mod addresses;
mod asked;
mod attempt;
mod batch;
mod bound;
mod budget;
mod buffers;
mod client_key;
mod clock;
mod connection;
mod endpoint_handle;
mod error;
mod events;
mod exchange;
mod explained;
mod framing;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod governor;
mod grpc;
mod guard;
mod hang;
mod headers;
mod http1;
mod http2;
mod inherit;
mod jwt;
mod lease;
mod listener;
mod live_pool;
mod multiplexed;
mod peer;
mod phase;
mod pool;
mod prefixed;
mod probe;
mod relay;
mod service;
mod snapshot;
mod sniff;
mod start_error;
mod tenant;
mod token_counts;
mod tunnel;
mod turn;
mod upload;
mod upstream;
mod usage;
mod wanted;
mod wire;

pub use clock::Clock;
pub use endpoint_handle::EndpointHandle;
pub use error::ProxyError;
pub use gateway::{Gateway, Prepared};
pub use governor::Governor;
pub use inherit::{Inherited, LateUse, Saved};
pub use pool::PoolHandle;
pub use snapshot::{Current, Snapshot};
pub use start_error::StartError;
pub use tenant::{ANONYMOUS, digest};
