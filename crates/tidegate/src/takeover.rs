//! Handing over to another process without an interruption.
//!
//! The new process (`tidegate serve --takeover`) connects to the running one over a unix socket and gets its listening sockets, the same
//! ones, so no connection is refused or lost in a queue; and what is known, on one time base, so no bucket is refilled and who was out
//! stays out. It starts to accept, says so, and the old one drains and exits. Until then the old one goes on as if nothing were, whatever
//! becomes of the new. From the instant of saving the old one tells the new what its requests use, so limits hold for both together.
//!
//! Lines of JSON, the sockets as rights of messages (`SCM_RIGHTS`), then the state: [`wire`].

mod door;
mod heir;
mod wire;

pub(crate) use door::{Door, HandedOver};
pub(crate) use heir::{ready, take};
pub(crate) use wire::monotonic_ns;
