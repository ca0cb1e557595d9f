//! Probes a breaker asks for: out of band, on a connection of their own.

use crate::pool::PoolHandle;
use crate::upload::Upload;
use crate::upstream::Upstream;
use http::header::{HOST, USER_AGENT};
use http::{HeaderValue, Request};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::event::Event;
use tidegate_core::id::{EndpointId, ProbeId};
use tokio::sync::mpsc;

/// Probes that may lie unread; more than these are dropped, and count as not made.
pub(crate) const MAX_ASKED: usize = 1024;

/// One probe to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) endpoint: EndpointId,
    pub(crate) probe: ProbeId,
    pub(crate) timeout: Duration,
}

/// Makes the probes of `pool` until the gateway stops.
pub(crate) async fn serve(pool: Arc<PoolHandle>, mut asked: mpsc::Receiver<Asked>) {
    while let Some(Asked { endpoint, probe, timeout }) = asked.recv().await {
        let pool = Arc::clone(&pool);
        tokio::task::spawn_local(async move {
            let passed = tokio::time::timeout(timeout, passes(&pool, endpoint, timeout)).await.unwrap_or(false);
            pool.on_event(Event::Probed { endpoint, probe, passed });
        });
    }
}

/// Whether the endpoint can be connected to and, where the pool has a path for it, answers it with success.
async fn passes(pool: &PoolHandle, endpoint: EndpointId, timeout: Duration) -> bool {
    let handle = &pool.endpoints[endpoint.index()];
    let Ok(mut upstream) = Upstream::connect(handle, timeout, u64::MAX, pool.clock()).await else { return false };
    let settings = pool.settings();
    let Some(path) = settings.breaker.probe_path(settings.health.as_ref()) else { return true };
    let mut request = Request::new(Upload::Empty);
    let Ok(uri) = path.parse() else { return false };
    *request.uri_mut() = uri;
    if let Ok(host) = HeaderValue::try_from(handle.authority.as_str()) {
        request.headers_mut().insert(HOST, host);
    }
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("tidegate-probe"));
    upstream.send(request).await.is_ok_and(|head| head.status.is_success())
}
