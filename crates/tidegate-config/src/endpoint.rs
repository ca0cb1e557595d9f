//! One engine address.

use crate::concurrency_limits::Adaptive;
use crate::key::{Absent, Key, Kind, Table};
use crate::prefix_cache::{PublisherUrl, publisher_url};
use crate::reader::{Reader, Section, Switch};
use crate::scalar::Bad;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use tidegate_core::hash::hash_bytes;
use tidegate_core::placement::Serves;
use tidegate_core::pool::config::EndpointConfig;

/// One engine address and what it can take.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Where the engine listens.
    pub url: EndpointUrl,
    /// Static weight (0..=1,000,000, fractions allowed); 0 drains the endpoint.
    pub weight: f64,
    /// Most requests in flight at once (at least 1); `None` has no bound.
    pub max_in_flight: Option<u32>,
    /// A bound that follows times to first byte, up to `max_in_flight`; `None` has none.
    pub adaptive: Option<Adaptive>,
    /// Models it serves, by the name that requests have; `None`: any, or those it tells.
    pub models: Option<Vec<String>>,
    /// LoRA adapters it can serve, by the name that requests have.
    pub adapters: Vec<String>,
    /// Adapters it holds at a time; `None`: what it tells, else 1.
    pub max_adapters: Option<u32>,
    /// Longest context it takes, tokens of prompt and answer together; `None`: any, or what it tells.
    pub max_context: Option<u32>,
    /// Its GPUs, by index or UUID, among those that an exporter tells of; empty: all.
    pub gpus: Vec<String>,
    /// Where its engine publishes what its prefix cache stores and removes, if not where the pool says.
    pub cache_events: Option<PublisherUrl>,
}

impl Endpoint {
    /// What core is told about the endpoint; its name is the URL.
    pub fn core(&self) -> EndpointConfig {
        EndpointConfig {
            name: self.url.to_string(),
            weight: self.weight,
            max_in_flight: self.max_in_flight,
            adaptive: self.adaptive.as_ref().map(Adaptive::core),
            serves: Serves {
                models: self.models.as_deref().map(hashes),
                adapters: hashes(&self.adapters),
                max_adapters: self.max_adapters,
                adapters_in_use: None,
                max_context: self.max_context,
                is_unread: false,
            },
        }
    }
}

/// The name of a model.
fn model(_: &Kind, text: &str) -> Result<String, Bad> {
    if text.trim().is_empty() {
        return Err(Bad::Type("a model has a name, as requests have it".to_owned()));
    }
    Ok(text.to_owned())
}

/// How core knows these names.
fn hashes(names: &[String]) -> Vec<u64> {
    names.iter().map(|name| hash_bytes(name.as_bytes())).collect()
}

/// `http://host:port` or `https://host:port`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndpointUrl {
    tls: bool,
    host: String,
    port: u16,
}

impl EndpointUrl {
    /// The host in lower case: a name, an IPv4 address, or an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What stands in the place of one that could not be read.
    pub(crate) fn nowhere() -> Self {
        Self { tls: false, host: String::new(), port: 80 }
    }

    /// The same at another port; `None` for port 0.
    pub(crate) fn with_port(&self, port: u16) -> Option<Self> {
        (port > 0).then(|| Self { port, ..self.clone() })
    }

    /// Whether it begins with `https://`.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The port; if the URL names none, 80, or 443 with TLS.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether a connection to this URL arrives at a socket that listens at `listener`, as far as addresses alone say.
    pub(crate) fn reaches(&self, listener: SocketAddr) -> bool {
        let here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
        let same = match (self.host.parse::<IpAddr>(), listener.ip()) {
            // The IPv6 wildcard takes IPv4 too; the other way round it does not.
            (Ok(ip), own) if own.is_unspecified() => ip == own || (here(ip) && (ip.is_ipv4() || own.is_ipv6())),
            (Ok(ip), own) => ip == own || (ip.is_unspecified() && own.is_loopback() && ip.is_ipv4() == own.is_ipv4()),
            (Err(_), own) => self.host == "localhost" && here(own),
        };
        same && self.port == listener.port()
    }

    /// `host:port`, IPv6 addresses in brackets: the `Host` header and what is resolved.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

/// Reads `http://host[:port]` or `https://host[:port]`, with at most a slash behind.
pub(crate) fn url(_: &Kind, text: &str) -> Result<EndpointUrl, Bad> {
    let wrong = |hint: &str| Err(Bad::Type(hint.to_owned()));
    let (tls, rest) = match text.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        None if !text.contains(char::is_whitespace) => return Err(Bad::Type(format!("write `http://{text}`"))),
        _ => return wrong(""),
    };
    let usual = if tls { "443" } else { "80" };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('@') {
        return wrong("credentials in the URL are not supported");
    }
    if authority.contains(['/', '?', '#']) {
        return wrong("the path comes from each request: write only http://host:port or https://host:port");
    }
    let (host, port) = if let Some(v6) = authority.strip_prefix('[') {
        let Some((host, tail)) = v6.split_once(']') else {
            return wrong("the closing ] of the IPv6 address is missing");
        };
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return wrong("between [ and ] stands an IPv6 address");
        }
        (host, tail.strip_prefix(':').or_else(|| tail.is_empty().then_some(usual)))
    } else {
        authority.rsplit_once(':').map_or((authority, Some(usual)), |(h, p)| (h, Some(p)))
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_v6 = authority.starts_with('[');
    if host.is_empty() || !(is_v6 || host.chars().all(is_host)) {
        return wrong("the host is a name, an IPv4 address, or an IPv6 address in brackets");
    }
    match port.and_then(|p| p.parse::<u16>().ok()).filter(|p| *p > 0) {
        Some(port) => Ok(EndpointUrl { tls, host: host.to_ascii_lowercase(), port }),
        None => wrong("the port is a number from 1 to 65535"),
    }
}

/// Reads an index or a UUID.
fn gpu(_: &Kind, text: &str) -> Result<String, Bad> {
    let is_index = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_uuid = text.starts_with(|c: char| c.is_ascii_alphabetic());
    if is_index || is_uuid {
        return Ok(text.to_owned());
    }
    Err(Bad::Type("a GPU is an index from 0 up, or a UUID such as GPU-8f2a".to_owned()))
}

impl Section for Endpoint {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.endpoints[]",
        summary: "One engine address and what it can take.",
        keys: &[
            Key {
                name: "url",
                kind: Kind::Url,
                absent: Absent::Required,
                summary: "Where the engine listens.",
                example: "http://127.0.0.1:8000",
            },
            Key {
                name: "weight",
                kind: Kind::Number { min: 0.0, max: 1e6 },
                absent: Absent::Default("1"),
                summary: "Share of the traffic relative to the other endpoints; 0 drains the endpoint.",
                example: "2.5",
            },
            Key {
                name: "max_in_flight",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: Some("none") },
                absent: Absent::Default("none"),
                summary: "Most requests in flight at once.",
                example: "64",
            },
            Key {
                name: "adaptive_limit",
                kind: Kind::TableOr(Adaptive::TABLE, "off"),
                absent: Absent::Means("no limit that follows response times"),
                summary: "A limit on requests in flight that falls when times to first byte show a queue, up to max_in_flight.",
                example: "{ min: 2, max: 64 }",
            },
            Key {
                name: "models",
                kind: Kind::Texts,
                absent: Absent::Means("those it tells where the pool asks (`models`), else any"),
                summary: "Models it serves, by the name that requests have; a request for another goes elsewhere. Adapters are not among them.",
                example: "[llama-3.1-8b]",
            },
            Key {
                name: "adapters",
                kind: Kind::Texts,
                absent: Absent::Means("those it tells where the pool asks (`models`), else none"),
                summary: "LoRA adapters it can serve, by the name that requests have.",
                example: "[support-de, support-fr]",
            },
            Key {
                name: "max_adapters",
                kind: Kind::Integer { min: 1, max: 10_000, word: Some("auto") },
                absent: Absent::Default("auto"),
                summary: "Adapters it holds at a time; auto is what its metrics tell (vLLM's max_lora), else 1.",
                example: "4",
            },
            Key {
                name: "max_context",
                kind: Kind::Integer { min: 1, max: 100_000_000, word: Some("auto") },
                absent: Absent::Default("auto"),
                summary: "Longest context it takes, tokens of prompt and answer together; auto is what it tells where the pool asks (`models`), else any. A prompt that seems too long for all goes where most fits.",
                example: "32_768",
            },
            Key {
                name: "gpus",
                kind: Kind::Texts,
                absent: Absent::Means("all that the exporter tells of"),
                summary: "Its GPUs, by index or UUID, on the page of `load.accelerator`.",
                example: "[0, 1]",
            },
            Key {
                name: "cache_events",
                kind: Kind::PublisherUrl,
                absent: Absent::Means("what `prefix_cache.events.url` says"),
                summary: "Where its engine publishes what its prefix cache stores and removes, where `prefix_cache.events` listens.",
                example: "tcp://10.0.0.5:5560",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let url = r.value("url", url);
        if let Some(url) = &url {
            r.mark("url", "url", url.to_string());
        }
        let url = url.unwrap_or_else(EndpointUrl::nowhere);
        let weight = r.number("weight");
        let max_in_flight = r.integer_or_none("max_in_flight").and_then(|n| u32::try_from(n).ok());
        let adaptive = match r.switch("adaptive_limit") {
            Switch::On(adaptive) => Some(adaptive),
            Switch::Off | Switch::Absent => None,
        };
        let gpus = r.texts("gpus", gpu);
        let cache_events = r.value("cache_events", publisher_url);
        let models = Some(r.texts("models", model)).filter(|m: &Vec<String>| !m.is_empty());
        let adapters = r.texts("adapters", model);
        if let Some(both) = models.iter().flatten().find(|m| adapters.contains(m)) {
            let found = format!("{both} among models and adapters");
            r.contradiction("adapters", found, "a name in one of the two", "remove it from `models`".to_owned());
        }
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let max_adapters = r.integer_or_none("max_adapters").map(small);
        let max_context = r.integer_or_none("max_context").map(small);
        Self { url, weight, max_in_flight, adaptive, models, adapters, max_adapters, max_context, gpus, cache_events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, shown) in [
            ("http://10.0.0.5:8000", "http://10.0.0.5:8000"),
            ("http://Engine-1.local:8000/", "http://engine-1.local:8000"),
            ("http://[::1]:8000", "http://[::1]:8000"),
            ("http://engine", "http://engine:80"),
            ("http://[::1]", "http://[::1]:80"),
            ("https://engine", "https://engine:443"),
            ("https://[::1]", "https://[::1]:443"),
            ("https://engine:8443/", "https://engine:8443"),
        ] {
            assert_eq!(url(&Kind::Url, text).map(|u| u.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn what_is_not_supported_is_said() {
        for (text, hint) in [
            ("ftp://a:1", ""),
            ("10.0.0.5:8000", "write `http://10.0.0.5:8000`"),
            ("http://a:1/v1", "the path comes from each request: write only http://host:port or https://host:port"),
            ("http://u:p@a:1", "credentials in the URL are not supported"),
            ("http://a:0", "the port is a number from 1 to 65535"),
            ("http://a:x", "the port is a number from 1 to 65535"),
            ("http://[::1", "the closing ] of the IPv6 address is missing"),
            ("http://[::1]80", "the port is a number from 1 to 65535"),
            ("http://::1:80", "the host is a name, an IPv4 address, or an IPv6 address in brackets"),
            ("http://", "the host is a name, an IPv4 address, or an IPv6 address in brackets"),
        ] {
            assert_eq!(url(&Kind::Url, text), Err(Bad::Type(hint.to_owned())), "{text}");
        }
    }
}
