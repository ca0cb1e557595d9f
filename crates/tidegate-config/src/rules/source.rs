//! Where a rule's metric comes from.

use super::expression::Expression;
use crate::endpoint::{self, EndpointUrl};
use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use crate::scalar::{self, Bad};
use std::fmt;
use std::time::Duration;

/// How often Tidegate's own metrics are looked at.
const OWN_EVERY: Duration = Duration::from_secs(1);

/// A source of samples.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Tidegate's own metrics.
    Own {
        /// Which.
        metric: Expression,
        /// How far back quantiles and rates look.
        window: Duration,
    },
    /// A page in the Prometheus text format.
    Page {
        /// Where.
        asked: Asked,
        /// Which metric of it.
        metric: Expression,
        /// How far back quantiles and rates look.
        window: Duration,
    },
    /// The instant query of a Prometheus server: the page is its API's answer.
    Query(Asked),
}

/// A page that is asked for again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Where it is.
    pub url: PageUrl,
    /// Time between two questions.
    pub every: Duration,
    /// Longest time for an answer.
    pub timeout: Duration,
}

impl Source {
    /// Time between two samples.
    pub fn every(&self) -> Duration {
        match self {
            Self::Own { .. } => OWN_EVERY,
            Self::Page { asked, .. } | Self::Query(asked) => asked.every,
        }
    }
}

/// `http://host:port/path`, or the same with https.
#[derive(Clone, Debug, PartialEq)]
pub struct PageUrl {
    /// Host and port.
    pub base: EndpointUrl,
    /// Path and query, starting with `/`.
    pub path: String,
}

impl fmt::Display for PageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.base, self.path)
    }
}

/// Reads `http://host[:port][/path]`, or the same with https.
pub(crate) fn page_url(kind: &Kind, text: &str) -> Result<PageUrl, Bad> {
    let after_scheme = text.find("://").map_or(0, |at| at + 3);
    let slash = text.get(after_scheme..).and_then(|rest| rest.find('/')).map_or(text.len(), |at| after_scheme + at);
    let (base, path) = text.split_at(slash);
    let base = endpoint::url(kind, base)?;
    let path = if path.is_empty() { "/" } else { path };
    Ok(PageUrl { base, path: scalar::path(&Kind::Path, path)? })
}

const EVERY: Kind = Kind::Duration { min: 0.05, max: 3600.0, word: None };
const TIMEOUT: Key = Key {
    name: "timeout",
    kind: Kind::Duration { min: 0.01, max: 60.0, word: None },
    absent: Absent::Default("2s"),
    summary: "Longest time for an answer.",
    example: "2s",
};

pub(super) struct Scrape(pub(super) Asked);

impl Section for Scrape {
    const TABLE: &'static Table = &Table {
        place: "rules[].when.scrape",
        summary: "A page in the Prometheus text format. After three intervals without an answer its metrics are missing.",
        keys: &[
            Key {
                name: "url",
                kind: Kind::PageUrl,
                absent: Absent::Required,
                summary: "Where the page is.",
                example: "http://127.0.0.1:9400/metrics",
            },
            Key {
                name: "every",
                kind: EVERY,
                absent: Absent::Default("5s"),
                summary: "Time between two readings.",
                example: "5s",
            },
            TIMEOUT,
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self(asked(r))
    }
}

pub(super) struct Prometheus(pub(super) Asked);

impl Section for Prometheus {
    const TABLE: &'static Table = &Table {
        place: "rules[].when.prometheus",
        summary: "An instant query of a Prometheus server (HTTP API v1), whose result is a scalar or a vector of one sample.",
        keys: &[
            Key {
                name: "url",
                kind: Kind::PageUrl,
                absent: Absent::Required,
                summary: "The server, without `/api/v1/query`.",
                example: "http://127.0.0.1:9090",
            },
            Key {
                name: "query",
                kind: Kind::Text,
                absent: Absent::Required,
                summary: "The query, in PromQL.",
                example: "avg(node_load1)",
            },
            Key {
                name: "every",
                kind: EVERY,
                absent: Absent::Default("15s"),
                summary: "Time between two queries.",
                example: "15s",
            },
            TIMEOUT,
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let query = r.text("query").unwrap_or_default();
        let mut asked = asked(r);
        let base = asked.url.path.trim_end_matches('/').to_owned();
        asked.url.path = format!("{base}/api/v1/query?query={}", encoded(&query));
        Self(asked)
    }
}

fn asked(r: &mut Reader<'_, '_>) -> Asked {
    let nowhere = || PageUrl { base: EndpointUrl::nowhere(), path: "/".to_owned() };
    let url = r.value("url", page_url).unwrap_or_else(nowhere);
    Asked { url, every: r.duration("every"), timeout: r.duration("timeout") }
}

/// Percent-encoded, for a query string.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_a_path() {
        for (text, shown) in [
            ("http://a:1/metrics?x=1", "http://a:1/metrics?x=1"),
            ("http://a", "http://a:80/"),
            ("http://[::1]:9/m", "http://[::1]:9/m"),
        ] {
            assert_eq!(page_url(&Kind::PageUrl, text).map(|u| u.to_string()), Ok(shown.to_owned()));
        }
        assert_eq!(page_url(&Kind::PageUrl, "https://a/m").map(|u| u.to_string()), Ok("https://a:443/m".to_owned()));
        assert!(page_url(&Kind::PageUrl, "ftp://a/m").is_err() && page_url(&Kind::PageUrl, "/metrics").is_err());
    }

    #[test]
    fn a_query_cannot_leave_its_parameter() {
        assert_eq!(encoded("avg(x{a=\"b&c\"}) "), "avg%28x%7Ba%3D%22b%26c%22%7D%29%20");
    }
}
