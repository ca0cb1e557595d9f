//! Where one endpoint is. A handle is made when the endpoint joins its pool and lives as long as anybody uses it, so a request keeps the
//! endpoint it was given, whatever a reload makes of its place.

use crate::request::orca::Seldom;
use crate::state::token_counts::TokenMeter;
use crate::upstream::wire::{Secure, Spoken, Wire};
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_config::{EndpointUrl, Protocol};
use tidegate_core::load::LoadReport;
use tidegate_core::time::Instant;

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
    /// How it is spoken to by TLS; `None` in clear.
    pub(crate) secure: Option<Secure>,
    protocol: Protocol,
    /// Whether HTTP/2 may come of a connection.
    pub(crate) may_speak_http2: bool,
    /// Its URL as the value of `x-tidegate-endpoint`.
    pub(crate) header: http::HeaderValue,
    /// Tokens relayed, by core.
    pub(crate) tokens: TokenMeter,
    /// What each core knows it as; no other endpoint of the process ever has it.
    pub(crate) number: u64,
    retired: AtomicBool,
    /// How often loads that its answers tell are passed on.
    pub(crate) tells: Seldom,
    /// What its answers told last, where pages are polled as well and lead.
    answered: Mutex<Option<LoadReport>>,
    /// Whether its pages have failed for so long that nobody leads any more.
    unheard: AtomicBool,
}

impl EndpointHandle {
    pub(crate) fn new(url: &EndpointUrl, spoken: &Spoken) -> Self {
        let text = url.to_string();
        let header = http::HeaderValue::try_from(text.as_str()).unwrap_or(http::HeaderValue::from_static("endpoint"));
        let secure = spoken.secure(url);
        let may_speak_http2 = match spoken.protocol {
            Protocol::Auto => secure.is_some(),
            Protocol::Http1 => false,
            Protocol::H2 => true,
        };
        Self {
            url: text.into(),
            authority: url.authority(),
            address: url.host().parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, url.port())),
            secure,
            protocol: spoken.protocol,
            may_speak_http2,
            header,
            tokens: TokenMeter::default(),
            number: NUMBERED.fetch_add(1, Relaxed),
            retired: AtomicBool::new(false),
            tells: Seldom::default(),
            answered: Mutex::default(),
            unheard: AtomicBool::new(false),
        }
    }

    /// An answer told its load; it is told with the next page.
    pub(crate) fn on_answered(&self, report: LoadReport) {
        *self.answered.lock() = Some(report);
    }

    /// Whether its pages have failed for so long that answers are all there is.
    pub fn set_unheard(&self, unheard: bool) {
        self.unheard.store(unheard, Relaxed);
    }

    /// Whether answers tell the pool by themselves, although pages are polled.
    pub(crate) fn is_unheard(&self) -> bool {
        self.unheard.load(Relaxed)
    }

    /// What its answers told last, unless it is older than `max_age`.
    pub fn answered_at(&self, now: Instant, max_age: Duration) -> Option<LoadReport> {
        self.answered.lock().filter(|report| now.since(report.sampled_at) < max_age)
    }

    /// Whether it is spoken to as `spoken` says.
    pub(crate) fn is_spoken_to(&self, spoken: &Spoken) -> bool {
        let settings = self.secure.as_ref().map(|s| &s.settings);
        let same = match (settings, &spoken.settings) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (mine, _) => mine.is_none(),
        };
        same && self.protocol == spoken.protocol
    }

    /// Whether it speaks HTTP/2 whatever a handshake finds.
    pub(crate) fn is_http2_certain(&self) -> bool {
        self.protocol == Protocol::H2
    }

    /// Whether HTTP/2 is spoken on this socket.
    pub(crate) fn speaks_http2(&self, socket: &Wire) -> bool {
        self.may_speak_http2 && (self.is_http2_certain() || socket.agreed_on_http2())
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
