//! Probes a breaker asks for: out of band, on a connection of their own.

use crate::state::clock::Clock;
use crate::state::live_pool::LivePool;
use crate::upstream::connection::Upstream;
use crate::upstream::endpoint_handle::EndpointHandle;
use crate::upstream::upload::Upload;
use crate::upstream::wanted::Wanted;
use http::header::{HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidegate_core::event::Event;
use tidegate_core::id::{EndpointId, ProbeId};
use tokio::sync::mpsc;

/// Probes that may lie unread; more than these are dropped, and count as not made.
pub(crate) const MAX_ASKED: usize = 1024;

/// One probe to make.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: EndpointId,
    pub(crate) endpoint: Arc<EndpointHandle>,
    pub(crate) probe: ProbeId,
    pub(crate) timeout: Duration,
}

/// Makes the probes of `pool` until the pool or the gateway ends.
pub(crate) async fn serve(pool: Weak<LivePool>, mut asked: mpsc::Receiver<Asked>) {
    while let Some(Asked { id, endpoint, probe, timeout }) = asked.recv().await {
        let Some(pool) = pool.upgrade() else { return };
        tokio::task::spawn_local(async move {
            let path = pool.probe_path();
            let asking = passes(&endpoint, path.as_deref(), timeout, pool.clock());
            let passed = tokio::time::timeout(timeout, asking).await.unwrap_or(false);
            // The breaker tells its probes by number: one of an endpoint that left means nothing to whoever has its place.
            pool.with(|pool, now, _| pool.on_event(now, Event::Probed { endpoint: id, probe, passed }));
        });
    }
}

/// Whether the endpoint can be connected to and, where there is a `path` for it, answers it with success.
async fn passes(endpoint: &EndpointHandle, path: Option<&str>, timeout: Duration, clock: Clock) -> bool {
    let Ok(mut upstream) = Upstream::connect(endpoint, timeout, u64::MAX, clock).await else { return false };
    let Some(path) = path else { return true };
    let Ok(uri) = path.parse() else { return false };
    let mut headers = HeaderMap::new();
    if let Ok(host) = HeaderValue::try_from(endpoint.authority.as_str()) {
        headers.insert(HOST, host);
    }
    headers.insert(USER_AGENT, HeaderValue::from_static("tidegate-probe"));
    let (own, body) = (Vec::new(), Upload::Empty);
    let wanted = Wanted { method: &Method::GET, uri: &uri, headers: &headers, own, body };
    upstream.send(wanted).await.is_ok_and(|head| head.status.is_success())
}
