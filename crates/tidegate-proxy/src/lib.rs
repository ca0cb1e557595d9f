//! The data plane: the only crate that touches users' bytes.
//!
//! accept -> guard the raw head -> route -> sniff -> admit -> connect -> send -> head -> relay -> settle. One single-threaded runtime
//! per core with its own listening socket and its own idle upstream connections; the pool's lock is the only thing cores share, and it
//! is never held across an await.

mod downstream;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod request;
mod socket;
mod state;
mod upstream;

pub use gateway::{Gateway, Prepared};
pub use request::error::ProxyError;
pub use state::clock::Clock;
pub use state::governor::Governor;
pub use state::inherit::{Inherited, LateUse, Saved};
pub use state::pool::PoolHandle;
pub use state::snapshot::{Current, Snapshot};
pub use state::start_error::StartError;
pub use state::tenant::{ANONYMOUS, digest};
pub use upstream::endpoint_handle::EndpointHandle;
