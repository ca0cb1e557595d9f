//! What every page that is polled has: a path, an interval and a time-out.

use crate::endpoint::EndpointUrl;
use crate::health::timeout_within;
use crate::key::{Absent, Key, Kind};
use crate::reader::Reader;
use crate::rules::{PageUrl, page_url};
use crate::scalar::{self, Bad};
use std::time::Duration;

/// What stands for an endpoint's host in the URL of a page.
pub(crate) const HOST: &str = "{host}";

/// A page of an endpoint that is asked for again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Path of the page.
    pub path: String,
    /// Where the page is, if it is not at the endpoint's own port.
    pub beside: Option<Beside>,
    /// Time between two polls of an endpoint.
    pub interval: Duration,
    /// Longest time until an answer; at most the interval.
    pub timeout: Duration,
}

/// The key `path` with its default.
pub(crate) const fn path(default: &'static str) -> Key {
    Key {
        name: "path",
        kind: Kind::Path,
        absent: Absent::Default(default),
        summary: "Path of the page.",
        example: default,
    }
}

/// The key `url`.
pub(crate) const URL: Key = Key {
    name: "url",
    kind: Kind::PageUrl,
    absent: Absent::Means("path at the endpoint itself"),
    summary: "Where the page is instead, if not at the endpoint's own port; {host} stands for the endpoint's host.",
    example: "'http://{host}:9400/metrics'",
};

/// The key `interval` with its default.
pub(crate) const fn every(default: &'static str) -> Key {
    Key {
        name: "interval",
        kind: Kind::Duration { min: 0.01, max: 3600.0, word: None },
        absent: Absent::Default(default),
        summary: "Time between two polls of an endpoint; never less than ten times what the last answer took.",
        example: default,
    }
}

/// The key `timeout` with its default.
pub(crate) const fn within(default: &'static str) -> Key {
    Key {
        name: "timeout",
        kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
        absent: Absent::Default(default),
        summary: "Longest time until an answer; at most the interval.",
        example: default,
    }
}

pub(crate) const INTERVAL: Key = every("1s");

pub(crate) const TIMEOUT: Key = within("500ms");

impl Polled {
    /// Reads `path`, `interval` and `timeout`.
    pub(crate) fn read(r: &mut Reader<'_, '_>) -> Self {
        let path = r.value("path", scalar::path).unwrap_or_default();
        let interval = r.duration("interval");
        Self { path, beside: None, interval, timeout: timeout_within(r, interval, &["interval"]) }
    }

    /// [`Polled::read`], and `url`.
    pub(crate) fn read_beside(r: &mut Reader<'_, '_>) -> Self {
        let beside = r.value("url", beside);
        if beside.is_some() && r.is_set("path") {
            let hint = "the URL has a path of its own: remove `path`";
            r.contradiction("path", "path beside url".to_owned(), "one of path and url", hint.to_owned());
        }
        Self { beside, ..Self::read(r) }
    }

    /// Host, port and path of the page of `endpoint`.
    pub fn page_of(&self, endpoint: &EndpointUrl) -> (EndpointUrl, String) {
        let beside = self.beside.as_ref().and_then(|b| b.page_of(endpoint));
        beside.map_or_else(|| (endpoint.clone(), self.path.clone()), |page| (page.base, page.path))
    }
}

/// The URL of a page that is elsewhere than its endpoint, often at another port of the same host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside(String);

impl Beside {
    fn page_of(&self, endpoint: &EndpointUrl) -> Option<PageUrl> {
        let host = endpoint.host();
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        page_url(&Kind::PageUrl, &self.0.replace(HOST, &host)).ok()
    }
}

fn beside(kind: &Kind, text: &str) -> Result<Beside, Bad> {
    let hint = || Bad::Type(format!("the one word in braces that is known is {HOST}"));
    let filled = text.replace(HOST, "host");
    if filled.contains(['{', '}']) {
        return Err(hint());
    }
    page_url(kind, &filled).map(|_| Beside(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_the_endpoint_is_filled_in() {
        let polled = |text: &str| Polled {
            path: "/m".to_owned(),
            beside: beside(&Kind::PageUrl, text).ok(),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
        };
        for (endpoint, template, at, path) in [
            ("http://10.0.0.5:8000", "http://{host}:9400/metrics", "http://10.0.0.5:9400", "/metrics"),
            ("https://[::1]:8000", "http://{host}:9400/metrics", "http://[::1]:9400", "/metrics"),
            ("http://a:8000", "https://exporter/x?node={host}", "https://exporter:443", "/x?node=a"),
            ("http://a:8000", "http://{hst}:9400/", "http://a:8000", "/m"),
        ] {
            let endpoint = crate::endpoint::url(&Kind::Url, endpoint).unwrap();
            let (url, found) = polled(template).page_of(&endpoint);
            assert_eq!((url.to_string().as_str(), found.as_str()), (at, path), "{template}");
        }
        assert!(beside(&Kind::PageUrl, "http://{hst}:1/").is_err());
    }
}
