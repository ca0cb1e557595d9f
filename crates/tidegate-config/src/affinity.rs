//! Session affinity, and where in a request a key is found.

use crate::key::{Absent, Key, Kind, Table};
use crate::node::{Content, Node};
use crate::problem::ProblemKind;
use crate::reader::{Reader, Section, section};
use crate::scalar;
use crate::walk::{Complaint, Place, Walk, describe};
use std::time::Duration;
use tidegate_core::pool::config::AffinityConfig;

/// Where in a request a key is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeySource {
    /// The value of this header (lower case).
    Header(String),
    /// The value of this cookie.
    Cookie(String),
    /// This field of a JSON body.
    Body(String),
    /// The tenant, who is the holder of the API key: the value of the header `authorization`, else of `x-api-key`.
    Tenant,
    /// The normalised prompt or query.
    Prompt,
}

/// Session affinity: the same key keeps its endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Affinity {
    /// Where the key is found; a request without it is placed by the policy alone.
    pub key: KeySource,
    /// An endpoint that returns within this time keeps its keys.
    pub hold: Duration,
    /// Bound on remembered keys; the least recently used goes first.
    pub max_keys: usize,
}

impl Affinity {
    /// What core is told; the shell finds the key and hands its hash over.
    pub fn core(&self) -> AffinityConfig {
        AffinityConfig { hold: self.hold, max_keys: self.max_keys }
    }
}

/// The mapping form of a key source: exactly one key.
pub(crate) struct KeySourceTable(Option<KeySource>);

impl Section for KeySourceTable {
    const TABLE: &'static Table = &Table {
        place: "key",
        summary: "Where in a request a key is found: one of these, or the word `tenant` or `prompt`. The tenant is the holder of the API key: the \
                  value of the header `Authorization`, else of `x-api-key`.",
        keys: &[
            Key {
                name: "header",
                kind: Kind::Name,
                absent: Absent::Means("another source"),
                summary: "The value of this header.",
                example: "x-session-id",
            },
            Key {
                name: "cookie",
                kind: Kind::Name,
                absent: Absent::Means("another source"),
                summary: "The value of this cookie.",
                example: "session",
            },
            Key {
                name: "body",
                kind: Kind::Name,
                absent: Absent::Means("another source"),
                summary: "This field of a JSON body.",
                example: "query",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let header = r.value("header", |_, text| scalar::header_name(text)).map(KeySource::Header);
        let cookie = r.value("cookie", scalar::text).map(KeySource::Cookie);
        let body = r.value("body", scalar::text).map(KeySource::Body);
        let given = ["header", "cookie", "body"].iter().filter(|n| r.is_set(n)).count();
        if given != 1 && r.all_good(&["header", "cookie", "body"]) {
            let place = r.place();
            let found =
                if given == 0 { "none of header, cookie and body".to_owned() } else { format!("{given} sources") };
            let hint = "for example: `key: { header: x-session-id }`".to_owned();
            let complaint = Complaint { found, allowed: Kind::KeySource.to_string(), hint };
            r.walk.error(ProblemKind::Contradiction, &place, complaint);
        }
        Self(header.or(cookie).or(body))
    }
}

/// Reads a key source; `None` once the problem is recorded.
pub(crate) fn key_source(walk: &mut Walk<'_>, node: &Node, place: &Place) -> Option<KeySource> {
    match &node.content {
        Content::Map(_) => section::<KeySourceTable>(walk, node, place).0,
        Content::Scalar { text, .. } => match text.as_str() {
            "tenant" => Some(KeySource::Tenant),
            "prompt" => Some(KeySource::Prompt),
            _ => wrong(walk, node, place),
        },
        Content::List(_) => wrong(walk, node, place),
    }
}

fn wrong(walk: &mut Walk<'_>, node: &Node, place: &Place) -> Option<KeySource> {
    let hint = "for example: `key: { header: x-session-id }`".to_owned();
    let complaint = Complaint { found: describe(node, false), allowed: Kind::KeySource.to_string(), hint };
    walk.error(ProblemKind::WrongType, place, complaint);
    None
}

impl Section for Affinity {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.affinity",
        summary: "Session affinity: the same key keeps its endpoint while that is usable.",
        keys: &[
            Key {
                name: "key",
                kind: Kind::KeySource,
                absent: Absent::Required,
                summary: "Where in a request the key is found; `tenant` is the holder of the API key: the header `Authorization`, else `x-api-key`.",
                example: "{ header: x-session-id }",
            },
            Key {
                name: "hold",
                kind: Kind::Duration { min: 0.0, max: 86_400.0, word: None },
                absent: Absent::Default("60s"),
                summary: "An endpoint that returns within this time keeps its keys.",
                example: "60s",
            },
            Key {
                name: "max_keys",
                kind: Kind::Integer { min: 1, max: 100_000_000, word: None },
                absent: Absent::Default("100_000"),
                summary: "Bound on remembered keys; the least recently used goes first.",
                example: "100_000",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let key = r.node("key").and_then(|(node, place)| key_source(r.walk, node, &place));
        Self { key: key.unwrap_or(KeySource::Tenant), hold: r.duration("hold"), max_keys: r.count("max_keys") }
    }
}
