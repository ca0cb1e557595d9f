//! Where engines tell what their prefix caches store and remove.

use crate::endpoint::{self, EndpointUrl};
use crate::key::{Absent, Key, Kind, Table};
use crate::load::HOST;
use crate::reader::{Reader, Section};
use crate::scalar::Bad;
use tidegate_core::prefix::MOST_RANKS;

/// The `prefix_cache.events` table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEvents {
    /// Where the publisher of an engine's first rank is.
    pub url: PublisherUrl,
    /// Where an engine's first rank answers what it published before; `None`: what was missed stays missed.
    pub replay: Option<PublisherUrl>,
    /// What the topics that are asked for begin with; empty: all.
    pub topic: String,
    /// Data-parallel ranks, each with a publisher at a port of its own, one after the other.
    pub ranks: u8,
}

/// `tcp://host:port`, in which `{host}` may stand for the endpoint's host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublisherUrl(String);

const SCHEME: &str = "tcp://";
/// Where vLLM and SGLang publish if nothing else is said.
const DEFAULT: &str = "tcp://{host}:5557";

impl PublisherUrl {
    fn of(&self, endpoint: &EndpointUrl) -> Option<EndpointUrl> {
        let host = endpoint.host();
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        address(&self.0.replace(HOST, &host)).ok()
    }
}

impl CacheEvents {
    /// Host and port of the publishers of `endpoint`, the first rank's first; `own` is the endpoint's own URL of its first, if it has one.
    pub fn publishers(&self, endpoint: &EndpointUrl, own: Option<&PublisherUrl>) -> Vec<EndpointUrl> {
        self.of_ranks(own.unwrap_or(&self.url), endpoint)
    }

    /// Host and port of what answers with earlier batches of `endpoint`, the first rank's first; empty where nothing does.
    pub fn replays(&self, endpoint: &EndpointUrl) -> Vec<EndpointUrl> {
        self.replay.as_ref().map(|replay| self.of_ranks(replay, endpoint)).unwrap_or_default()
    }

    fn of_ranks(&self, url: &PublisherUrl, endpoint: &EndpointUrl) -> Vec<EndpointUrl> {
        let Some(first) = url.of(endpoint) else { return Vec::new() };
        (0..u16::from(self.ranks)).filter_map(|rank| first.with_port(first.port().checked_add(rank)?)).collect()
    }
}

/// The host and port of `tcp://host:port`, as a URL of clear text.
fn address(text: &str) -> Result<EndpointUrl, Bad> {
    let hint = || Bad::Type("write tcp://host:port, such as tcp://{host}:5557".to_owned());
    let rest = text.strip_prefix(SCHEME).filter(|rest| !rest.ends_with('/')).ok_or_else(hint)?;
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if !has_port {
        return Err(hint());
    }
    endpoint::url(&Kind::Url, &format!("http://{rest}"))
}

/// Reads `tcp://host:port`.
pub(crate) fn publisher_url(_: &Kind, text: &str) -> Result<PublisherUrl, Bad> {
    let filled = text.replace(HOST, "host");
    if filled.contains(['{', '}']) {
        return Err(Bad::Type(format!("the one word in braces that is known is {HOST}")));
    }
    address(&filled).map(|_| PublisherUrl(text.to_owned()))
}

impl Section for CacheEvents {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.prefix_cache.events",
        summary: "Where engines publish what their prefix caches store and remove (ZeroMQ, as vLLM's --kv-events-config and SGLang's do), so that \
                  what is remembered of an endpoint is not more than it holds.",
        keys: &[
            Key {
                name: "url",
                kind: Kind::PublisherUrl,
                absent: Absent::Means(DEFAULT),
                summary: "Where an engine's publisher is; {host} stands for the endpoint's host.",
                example: "'tcp://{host}:5557'",
            },
            Key {
                name: "replay",
                kind: Kind::PublisherUrl,
                absent: Absent::Means("what was missed stays missed"),
                summary: "Where an engine answers with what it published before (vLLM's `replay_endpoint`), asked when batches were missed.",
                example: "'tcp://{host}:5558'",
            },
            Key {
                name: "topic",
                kind: Kind::Text,
                absent: Absent::Means("all topics"),
                summary: "What the topics that are subscribed to begin with.",
                example: "kv-events",
            },
            Key {
                name: "ranks",
                kind: Kind::Integer { min: 1, max: MOST_RANKS as u64, word: None },
                absent: Absent::Default("1"),
                summary: "Data-parallel ranks behind an endpoint: each publishes at a port of its own, one after the other.",
                example: "8",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let url = r.value("url", publisher_url).unwrap_or_else(|| PublisherUrl(DEFAULT.to_owned()));
        let topic = r.value("topic", |_, text| Ok(text.to_owned())).unwrap_or_default();
        Self {
            url,
            replay: r.value("replay", publisher_url),
            topic,
            ranks: u8::try_from(r.integer("ranks")).unwrap_or(MOST_RANKS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(url: &str, ranks: u8) -> CacheEvents {
        let of = |url| publisher_url(&Kind::PublisherUrl, url).unwrap();
        CacheEvents { url: of(url), replay: Some(of("tcp://{host}:6000")), topic: String::new(), ranks }
    }

    #[test]
    fn every_rank_has_the_next_port_at_the_endpoint_s_host() {
        let at = |e: &CacheEvents, endpoint: &str, own: Option<&str>| -> Vec<String> {
            let own = own.map(|o| publisher_url(&Kind::PublisherUrl, o).unwrap());
            let endpoint = endpoint::url(&Kind::Url, endpoint).unwrap();
            e.publishers(&endpoint, own.as_ref()).iter().map(EndpointUrl::authority).collect()
        };
        let e = events("tcp://{host}:5557", 2);
        assert_eq!(at(&e, "http://10.0.0.5:8000", None), ["10.0.0.5:5557", "10.0.0.5:5558"]);
        assert_eq!(at(&e, "https://[::1]:8000", None), ["[::1]:5557", "[::1]:5558"]);
        assert_eq!(at(&e, "http://a:1", Some("tcp://b:7000")), ["b:7000", "b:7001"]);
        let replays = e.replays(&endpoint::url(&Kind::Url, "http://a:1").unwrap());
        assert_eq!(replays.iter().map(EndpointUrl::authority).collect::<Vec<_>>(), ["a:6000", "a:6001"]);
        assert_eq!(at(&events("tcp://b:65535", 2), "http://a:1", None), ["b:65535"], "there is no port 65536");
    }

    #[test]
    fn what_is_no_publisher_is_refused() {
        for text in
            ["http://a:5557", "tcp://a", "tcp://a:5557/x", "tcp://{hst}:1", "ipc:///tmp/x", "a:5557", "tcp://*:5557"]
        {
            assert!(publisher_url(&Kind::PublisherUrl, text).is_err(), "{text}");
        }
    }
}
