//! Who is at the other end of a client's connection.

use http::HeaderValue;
use std::net::IpAddr;
use tidegate_tls::Names;

/// The other end of a client's connection, the same for all its requests.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The address as a header has it.
    pub(crate) text: HeaderValue,
    /// Whether it came by TLS.
    pub(crate) tls: bool,
    /// What the certificate says that it showed, once that was verified.
    pub(crate) names: Option<Names>,
}

impl Peer {
    /// One that speaks in clear.
    pub(crate) fn clear(address: IpAddr) -> Self {
        Self::new(address, false, None)
    }

    pub(crate) fn new(address: IpAddr, tls: bool, names: Option<Names>) -> Self {
        let text = HeaderValue::try_from(address.to_string()).unwrap_or(HeaderValue::from_static("unknown"));
        Self { address, text, tls, names }
    }
}
