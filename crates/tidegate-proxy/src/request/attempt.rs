//! One attempt: connect, send, and wait until the answer has begun.
//!
//! An attempt owns its lease. Dropping one on the way means that nobody wants its answer any more: the lease settles as cancelled and the
//! connection closes, which stops the engine.

use crate::gateway::Core;
use crate::request::asked::Asked;
use crate::request::error::ProxyError;
use crate::request::grpc;
use crate::request::headers::{is_event_stream, is_wanted};
use crate::request::lease::Lease;
use crate::socket::buffers::Piece;
use crate::upstream::connection::Upstream;
use crate::upstream::endpoint_handle::EndpointHandle;
use crate::upstream::http1::SendError;
use crate::upstream::upload::{UploadError, too_slow};
use crate::upstream::wanted::Wanted;
use http::HeaderMap;
use http::header::{CONNECTION, RETRY_AFTER, UPGRADE};
use http_body::Frame;
use std::time::Duration;
use tidegate_core::outcome::{Failure, Verdict};
use tokio::time::timeout;

/// Time after which an attempt without a first byte also listens for the pool's word that its endpoint hangs. Shorter than any time in
/// which a breaker can find that out; nearly all answers begin earlier and cost nothing for it.
const LISTEN_AFTER: Duration = Duration::from_millis(200);

/// An answer that has begun.
pub(crate) struct Begun {
    pub(crate) upstream: Upstream,
    pub(crate) head: http::response::Parts,
    /// The first piece of a stream, which is waited for: only then has the answer begun, and until then it can be had elsewhere.
    pub(crate) first: Option<Frame<Piece>>,
    /// What the head says, and the first piece where it has to be asked.
    pub(crate) verdict: Verdict,
}

/// An attempt that came to nothing.
pub(crate) enum Miss {
    /// The endpoint's fault.
    Endpoint(Failure),
    /// Its breaker found that the endpoint hangs, and nothing of the answer has come.
    Hung,
    /// The client's: its body was too large or broke off.
    Client(ProxyError),
}

/// Runs the attempt that `lease` stands for.
pub(crate) async fn attempt(core: &Core, asked: &Asked, lease: Lease) -> (Lease, Result<Begun, Miss>) {
    let limit = lease.pool().settings().timeouts.first_byte.unwrap_or(Duration::MAX / 4);
    let result = {
        let mut begun = std::pin::pin!(begin(core, asked, &lease));
        match timeout(limit.min(LISTEN_AFTER), &mut begun).await {
            Ok(result) => result,
            Err(_) => {
                let hangs = lease.hangs();
                tokio::select! {
                    biased;
                    result = &mut begun => result,
                    // A body that is gone cannot be sent elsewhere: then it is better to wait.
                    () = hangs, if asked.is_replayable() => Err(Miss::Hung),
                    whose = silence(asked, limit) => Err(whose),
                }
            }
        }
    };
    (lease, result)
}

/// Ends when an endpoint has said nothing for `limit`, all of which but [`LISTEN_AFTER`] is still to pass, and says whose fault it is. A
/// body that is going up is not waited for in silence: the time begins again with its pieces. If the endpoint has all that came of it
/// and waits for more, it is the client who is slow, and no endpoint is blamed.
async fn silence(asked: &Asked, limit: Duration) -> Miss {
    let (mut seen, mut wait) = (0, limit.saturating_sub(LISTEN_AFTER));
    loop {
        tokio::time::sleep(wait).await;
        let moved = asked.moved.as_ref().map_or(0, |m| m.bytes());
        if asked.moved.as_ref().is_some_and(|m| m.is_slow(moved - seen, limit)) {
            return Miss::Client(too_slow());
        }
        if moved == seen {
            return Miss::Endpoint(Failure::FirstByteTimeout);
        }
        (seen, wait) = (moved, limit);
    }
}

/// Sends, and waits until the answer has begun: for a stream that is its first event, as engines send its head at once.
async fn begin(core: &Core, asked: &Asked, lease: &Lease) -> Result<Begun, Miss> {
    let (mut upstream, head) = send(core, asked, lease).await?;
    let upgraded = head.status == http::StatusCode::SWITCHING_PROTOCOLS;
    if upgraded && !asked.upgrade.as_ref().is_some_and(|wanted| is_wanted(&head.headers, wanted)) {
        // Nobody asked for another protocol, or not for this one.
        return Err(Miss::Endpoint(Failure::Malformed));
    }
    let is_stream = head.status.is_success() && is_event_stream(&head.headers);
    // A bare 503 is a failure, unless the engine says that it is merely full.
    let asks_body = matches!(head.status.as_u16(), 503 | 529) && !head.headers.contains_key(RETRY_AFTER);
    let first = if is_stream || asks_body {
        upstream.first_frame().await.map_err(|_| Miss::Endpoint(Failure::Reset))?
    } else {
        None
    };
    let overloaded = asks_body && first.as_ref().is_some_and(is_overloaded);
    let by_status = Verdict::of_status(head.status.as_u16(), retry_after(&head.headers), overloaded);
    let verdict = grpc::verdict(&head.headers).filter(|_| head.status.is_success()).unwrap_or(by_status);
    Ok(Begun { upstream, head, first, verdict })
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Whether the first piece of an error's body has the code or word `overloaded`.
fn is_overloaded(first: &Frame<Piece>) -> bool {
    const WORD: &[u8] = b"overloaded";
    first.data_ref().is_some_and(|data| data.windows(WORD.len()).any(|w| w.eq_ignore_ascii_case(WORD)))
}

async fn send(core: &Core, asked: &Asked, lease: &Lease) -> Result<(Upstream, http::response::Parts), Miss> {
    let (pool, endpoint) = (lease.pool(), lease.endpoint());
    let most = pool.settings().connections.max_streams;
    let idle = match asked.upgrade {
        Some(_) => None,
        None => core.idle.borrow_mut().take(endpoint, most),
    };
    if let Some(mut upstream) = idle {
        lease.on_connected(upstream.number());
        match upstream.send(request(asked, endpoint)?).await {
            Ok(head) => return Ok((upstream, head)),
            // The endpoint has not seen it (it closed an idle connection as we used it): no evidence against it. Once more, on a fresh one.
            Err(SendError::Closed { fresh: true }) if asked.is_replayable() => {}
            Err(error) => return Err(miss(&error)),
        }
    }
    let opened = match asked.upgrade {
        Some(_) => {
            let timeout = pool.settings().timeouts.connect;
            let number = core.next_connection();
            lease.on_connected(number);
            Upstream::connect_for_upgrade(endpoint, timeout, number).await
        }
        None => Upstream::open(core, lease).await,
    };
    let mut upstream = opened.map_err(|error| {
        tracing::debug!(pool = &*pool.name, endpoint = &*endpoint.url, %error, "cannot connect");
        Miss::Endpoint(Failure::Connect)
    })?;
    lease.on_connected(upstream.number());
    let head = upstream.send(request(asked, endpoint)?).await.map_err(|e| miss(&e))?;
    Ok((upstream, head))
}

fn request<'r>(asked: &'r Asked, endpoint: &EndpointHandle) -> Result<Wanted<'r>, Miss> {
    let body = asked.body.borrow_mut().upload().ok_or(Miss::Endpoint(Failure::Reset))?;
    let mut own = Vec::new();
    if let Some(protocol) = &asked.upgrade {
        own.push((CONNECTION, http::HeaderValue::from_static("upgrade")));
        own.push((UPGRADE, protocol.clone()));
    }
    if !asked.headers.contains_key(http::header::HOST)
        && let Ok(host) = http::HeaderValue::try_from(endpoint.authority.as_str())
    {
        own.push((http::header::HOST, host));
    }
    Ok(Wanted { method: &asked.method, uri: &asked.uri, headers: &asked.headers, own, body })
}

fn miss(error: &SendError) -> Miss {
    match error {
        SendError::Malformed => Miss::Endpoint(Failure::Malformed),
        SendError::Closed { .. } => Miss::Endpoint(Failure::Reset),
        SendError::Upload(UploadError::TooLarge) => Miss::Client(ProxyError::BadRequest {
            code: "body_too_large",
            message: "the body is larger than limits.max_body_bytes",
            status: 413,
        }),
        SendError::Upload(UploadError::Broken(_)) => Miss::Client(ProxyError::BadRequest {
            code: "bad_body",
            message: "the body broke off or is not framed as announced",
            status: 400,
        }),
    }
}
