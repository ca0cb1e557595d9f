//! TLS of a listener: its certificates, and whether clients show theirs.

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use std::path::PathBuf;

/// TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificates, at least one; the first is for clients that name none of the others' hosts.
    pub certificates: Vec<Certificate>,
    /// Whether clients show certificates; `None`: they are not asked.
    pub client_auth: Option<ClientAuth>,
}

/// A certificate and its key, in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The chain, the server's own certificate first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What clients have to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// The certificates of the authorities that sign those of clients.
    pub ca: PathBuf,
    /// Whether a client without a certificate is refused.
    pub required: bool,
}

impl Section for Certificate {
    const TABLE: &'static Table = &Table {
        place: "listeners[].tls.certificates[]",
        summary: "A certificate and its key, in PEM files. They are read again when they change; files that do not fit leave the old ones.",
        keys: &[
            Key {
                name: "cert",
                kind: Kind::Text,
                absent: Absent::Required,
                summary: "The file with the chain, the server's own certificate first.",
                example: "/etc/tidegate/gateway.pem",
            },
            Key {
                name: "key",
                kind: Kind::Text,
                absent: Absent::Required,
                summary: "The file with its private key (PKCS#8, PKCS#1 or SEC1).",
                example: "/etc/tidegate/gateway.key",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let mut file = |name| r.text(name).unwrap_or_default().into();
        Self { cert: file("cert"), key: file("key") }
    }
}

impl Section for Tls {
    const TABLE: &'static Table = &Table {
        place: "listeners[].tls",
        summary: "TLS 1.2 and 1.3; HTTP/2 and HTTP/1.1 by ALPN.",
        keys: &[
            Key {
                name: "certificates",
                kind: Kind::List(Certificate::TABLE),
                absent: Absent::Required,
                summary: "Certificates; the host a client names (SNI) chooses, and the first is for all others.",
                example: "[{ cert: /etc/tidegate/gateway.pem, key: /etc/tidegate/gateway.key }]",
            },
            Key {
                name: "client_ca",
                kind: Kind::Text,
                absent: Absent::Means("clients are not asked for certificates"),
                summary: "A PEM file with the authorities that sign certificates of clients; read again when it changes.",
                example: "/etc/tidegate/clients-ca.pem",
            },
            Key {
                name: "client_auth",
                kind: Kind::Choice(&["off", "optional", "required"]),
                absent: Absent::Means("required where client_ca is set, else off"),
                summary: "Whether a client must show a certificate, may, or is not asked.",
                example: "required",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let certificates: Vec<Certificate> = r.list("certificates");
        if certificates.is_empty() && r.is_set("certificates") && r.all_good(&["certificates"]) {
            r.missing("certificates");
        }
        let (ca, auth) = (r.text("client_ca"), r.choice("client_auth"));
        let asks = matches!(auth, "optional" | "required");
        if r.all_good(&["client_ca", "client_auth"]) && (asks != ca.is_some()) && r.is_set("client_auth") {
            let (at, found) = if asks {
                ("client_auth", format!("{auth}, and no client_ca to check certificates with"))
            } else {
                ("client_ca", "authorities for certificates that nobody is asked for".to_owned())
            };
            let hint = "for example: `client_ca: /etc/tidegate/clients-ca.pem`".to_owned();
            r.contradiction(at, found, "client_ca together with client_auth: optional or required", hint);
        }
        let client_auth = ca.map(|ca| ClientAuth { ca: ca.into(), required: auth != "optional" });
        Self { certificates, client_auth }
    }
}
