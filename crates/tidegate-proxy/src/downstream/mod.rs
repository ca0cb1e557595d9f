//! Towards clients: listening, the look at raw heads, connections of HTTP/1.1 and HTTP/2, tunnels.

pub(crate) mod addresses;
pub(crate) mod bound;
pub(crate) mod connection;
pub(crate) mod framing;
pub(crate) mod guard;
pub(crate) mod http2;
pub(crate) mod listener;
pub(crate) mod peer;
pub(crate) mod prefixed;
pub(crate) mod tunnel;
