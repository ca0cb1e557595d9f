//! Towards endpoints: where they are, connections of HTTP/1.1 and HTTP/2 to them, what is sent, and probes.

pub(crate) mod connection;
pub(crate) mod endpoint_handle;
pub(crate) mod http1;
pub(crate) mod multiplexed;
pub(crate) mod probe;
pub(crate) mod upload;
pub(crate) mod wanted;
pub(crate) mod wire;
