//! Who is at the other end of a client's connection.

use std::net::IpAddr;
use tidegate_tls::Names;

/// The other end of a client's connection, the same for all its requests.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Whether it came by TLS.
    pub(crate) tls: bool,
    /// What the certificate says that it showed, once that was verified.
    pub(crate) names: Option<Names>,
}

impl Peer {
    /// One that speaks in clear.
    pub(crate) fn clear(address: IpAddr) -> Self {
        Self { address, tls: false, names: None }
    }
}
