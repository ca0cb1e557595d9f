//! Where requests and operators come in.

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use crate::scalar;
use crate::secret::Secret;
use crate::tls::Tls;
use std::net::{Ipv4Addr, SocketAddr};

/// An address on which requests come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address; port 0 takes any free port.
    pub address: SocketAddr,
    /// TLS; `None` speaks in clear.
    pub tls: Option<Tls>,
}

impl Section for Listener {
    const TABLE: &'static Table = &Table {
        place: "listeners[]",
        summary: "An address on which requests come in.",
        keys: &[
            Key {
                name: "address",
                kind: Kind::Address,
                absent: Absent::Required,
                summary: "IP address and port; 0.0.0.0 is every interface, port 0 any free port.",
                example: "127.0.0.1:8080",
            },
            Key {
                name: "tls",
                kind: Kind::Table(Tls::TABLE),
                absent: Absent::Means("requests come in clear"),
                summary: "TLS 1.2 and 1.3; HTTP/2 and HTTP/1.1 by ALPN.",
                example: "{ certificates: [{ cert: gateway.pem, key: gateway.key }] }",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { address: address(r).unwrap_or(NOWHERE), tls: r.table("tls") }
    }
}

/// The stand-in for an address that could not be read; a config with it is never returned.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn address(r: &mut Reader<'_, '_>) -> Option<SocketAddr> {
    let address = r.value("address", scalar::address)?;
    if r.all_good(&["address"]) {
        r.mark("address", "address", address.to_string());
    }
    Some(address)
}

/// The admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address; loopback unless there is a token.
    pub address: SocketAddr,
    /// What a caller must present as `Authorization: Bearer TOKEN`; `None` only on loopback.
    pub token: Option<Secret>,
}

impl Section for Admin {
    const TABLE: &'static Table = &Table {
        place: "admin",
        summary: "The admin API, metrics and the live page.",
        keys: &[
            Key {
                name: "address",
                kind: Kind::Address,
                absent: Absent::Default("127.0.0.1:9090"),
                summary: "IP address and port; an address other than loopback needs a token.",
                example: "127.0.0.1:9090",
            },
            Key {
                name: "token",
                kind: Kind::Secret,
                absent: Absent::Means("no token is asked for"),
                summary: "What callers must present as `Authorization: Bearer TOKEN`.",
                example: "\"${TIDEGATE_ADMIN_TOKEN}\"",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let address = address(r).unwrap_or(NOWHERE);
        let token = r.secret("token");
        if token.is_none() && !address.ip().is_loopback() && r.all_good(&["address", "token"]) {
            r.contradiction(
                "address",
                format!("{address} without a token: anybody who reaches it could drain endpoints"),
                "a loopback address, or any address with a token",
                "for example: `token: \"${TIDEGATE_ADMIN_TOKEN}\"`, or `address: 127.0.0.1:9090`".to_owned(),
            );
        }
        Self { address, token }
    }
}
