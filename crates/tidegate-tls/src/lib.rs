//! TLS on both sides: certificates and authorities from files, read again when they change, and checked before they are used.
//!
//! A crate of its own because three need it: the data plane, the health checks, and `tidegate check`. It makes settings of rustls; the
//! handshakes are made by whoever owns the socket.

mod check;
mod client;
mod fault;
mod names;
mod pem;
mod reloaded;
mod server;

pub use check::problems;
pub use client::{client, server_name};
pub use fault::Fault;
pub use names::Names;
pub use reloaded::{Refresh, Reloaded};
pub use server::server;
