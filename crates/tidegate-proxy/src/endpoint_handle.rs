//! Where one endpoint is. A handle is made when the endpoint joins its pool and lives as long as anybody uses it, so a request keeps the
//! endpoint it was given, whatever a reload makes of its place.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Numbers given so far.
static NUMBERED: AtomicU64 = AtomicU64::new(0);

/// Where one endpoint is.
#[derive(Debug)]
pub struct EndpointHandle {
    /// Its URL as configured.
    pub url: Arc<str>,
    /// `host:port`.
    pub authority: String,
    /// The address, where the host is one.
    pub(crate) address: Option<SocketAddr>,
    /// Its URL as the value of `x-tidegate-endpoint`.
    pub(crate) header: http::HeaderValue,
    /// Tokens relayed since the last progress event, from all cores.
    pub(crate) tokens: AtomicU64,
    /// What each core knows it as; no other endpoint of the process ever has it.
    pub(crate) number: u64,
    retired: AtomicBool,
}

impl EndpointHandle {
    pub(crate) fn new(url: &tidegate_config::EndpointUrl) -> Self {
        let text = url.to_string();
        let header = http::HeaderValue::try_from(text.as_str()).unwrap_or(http::HeaderValue::from_static("endpoint"));
        Self {
            url: text.into(),
            authority: url.authority(),
            address: url.host().parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, url.port())),
            header,
            tokens: AtomicU64::new(0),
            number: NUMBERED.fetch_add(1, Relaxed),
            retired: AtomicBool::new(false),
        }
    }

    /// It left its pool: connections to it end when their answers do.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    /// Whether it left its pool.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    /// Whether `name` means it: its URL, with or without the last slash, or `host:port`.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let trimmed = name.trim_end_matches('/');
        self.url.trim_end_matches('/') == trimmed || self.authority == trimmed
    }
}
