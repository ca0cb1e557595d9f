//! The data plane: the only crate that touches users' bytes.
//!
//! accept -> guard the raw head -> route -> sniff -> admit -> connect -> send -> head -> relay -> settle. One single-threaded runtime
//! per core with its own listening socket and its own idle upstream connections; the pool's lock is the only thing cores share, and it
//! is never held across an await.

mod addresses;
mod asked;
mod attempt;
mod batch;
mod buffers;
mod client_key;
mod clock;
mod connection;
mod error;
mod exchange;
mod explained;
mod framing;
mod gateway;
mod governor;
mod grpc;
mod guard;
mod hang;
mod headers;
mod http1;
mod http2;
mod jwt;
mod lease;
mod listener;
mod multiplexed;
mod peer;
mod pool;
mod prefixed;
mod probe;
mod relay;
mod service;
mod sniff;
mod tenant;
mod tunnel;
mod turn;
mod upload;
mod upstream;
mod usage;
mod wire;

pub use clock::Clock;
pub use error::ProxyError;
pub use gateway::{Gateway, StartError};
pub use governor::Governor;
pub use pool::{EndpointHandle, PoolHandle};
pub use tenant::{ANONYMOUS, digest};
