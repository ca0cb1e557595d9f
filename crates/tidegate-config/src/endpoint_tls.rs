//! What is spoken to the endpoints of a pool, and TLS to those of them that want it.

use crate::endpoint::Endpoint;
use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use crate::tls::Certificate;
use std::path::PathBuf;

/// Names of [`Protocol`] in the file.
pub(crate) const PROTOCOLS: &[&str] = &["auto", "http1", "h2"];

/// What is spoken to an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Over TLS what ALPN finds, HTTP/2 first; without TLS HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; without TLS by prior knowledge.
    H2,
}

impl Protocol {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "http1" => Self::Http1,
            "h2" => Self::H2,
            _ => Self::Auto,
        }
    }
}

/// TLS to endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointTls {
    /// The authorities that sign their certificates, in a PEM file; `None` trusts those of the system.
    pub ca: Option<PathBuf>,
    /// The name their certificates must have, also sent as SNI; `None` takes the host of each URL.
    pub server_name: Option<String>,
    /// The certificate we show them; `None` shows none.
    pub certificate: Option<Certificate>,
    /// Whether their certificates are checked at all.
    pub verify: bool,
}

impl Default for EndpointTls {
    fn default() -> Self {
        Self { ca: None, server_name: None, certificate: None, verify: true }
    }
}

impl Section for EndpointTls {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.tls",
        summary: "TLS to the endpoints whose URL begins with https. Files are read again when they change.",
        keys: &[
            Key {
                name: "ca",
                kind: Kind::Text,
                absent: Absent::Means("the authorities of the system"),
                summary: "A PEM file with the authorities that sign the endpoints' certificates.",
                example: "/etc/tidegate/engines-ca.pem",
            },
            Key {
                name: "server_name",
                kind: Kind::Text,
                absent: Absent::Means("the host of each endpoint's URL"),
                summary: "The name their certificates must have; also sent to them (SNI).",
                example: "engines.internal",
            },
            Key {
                name: "cert",
                kind: Kind::Text,
                absent: Absent::Means("we show no certificate"),
                summary: "A PEM file with the certificate that we show, and its chain.",
                example: "/etc/tidegate/client.pem",
            },
            Key {
                name: "key",
                kind: Kind::Text,
                absent: Absent::Means("we show no certificate"),
                summary: "A PEM file with the private key of cert.",
                example: "/etc/tidegate/client.key",
            },
            Key {
                name: "verify",
                kind: Kind::Bool,
                absent: Absent::Default("true"),
                summary: "Whether their certificates are checked; false lets anybody pose as an endpoint.",
                example: "true",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let (ca, server_name) = (r.text("ca"), r.text("server_name"));
        let (cert, key, verify) = (r.text("cert"), r.text("key"), r.bool("verify"));
        if r.all_good(&["cert", "key"]) && cert.is_some() != key.is_some() {
            let (at, found) = if cert.is_some() {
                ("cert", "a certificate without its key".to_owned())
            } else {
                ("key", "a key without its certificate".to_owned())
            };
            r.contradiction(
                at,
                found,
                "cert together with key",
                "for example: `key: /etc/tidegate/client.key`".to_owned(),
            );
        }
        if !verify && r.all_good(&["verify"]) {
            let found = "endpoints whose certificates nobody checks".to_owned();
            let hint = "name the authority that signs them: `ca: /etc/tidegate/engines-ca.pem`".to_owned();
            r.warning("verify", found, "true, but for a try", hint);
        }
        let certificate = cert.zip(key).map(|(cert, key)| Certificate { cert: cert.into(), key: key.into() });
        Self { ca: ca.map(PathBuf::from), server_name, certificate, verify }
    }
}

/// The settings of a pool, which make sense only where an endpoint's URL begins with `https://`.
pub(crate) fn of_pool(r: &mut Reader<'_, '_>, endpoints: &[Endpoint]) -> EndpointTls {
    let tls: EndpointTls = r.table_or_default("tls");
    if tls != EndpointTls::default() && r.all_good(&["tls", "endpoints"]) && !endpoints.iter().any(|e| e.url.is_tls()) {
        let found = "settings of TLS in a pool whose endpoints are all spoken to in clear".to_owned();
        let hint = "for example: `endpoints: [{ url: https://127.0.0.1:8443 }]`".to_owned();
        r.contradiction("tls", found, "tls together with an endpoint whose URL begins with https", hint);
    }
    tls
}
