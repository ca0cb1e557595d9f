//! One request's way to an endpoint: admit, connect, send, head; and elsewhere again while nothing went downstream.

use crate::error::ProxyError;
use crate::gateway::Core;
use crate::lease::Lease;
use crate::pool::PoolHandle;
use crate::sniff::Sniffed;
use crate::upload::UploadError;
use crate::upstream::Upstream;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, Uri};
use http_body::Frame;
use hyper::body::Incoming;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::explain::Explain;
use tidegate_core::id::EndpointId;
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::pool::Decision;
use tidegate_core::request::Request;
use tokio::time::timeout;

/// What is sent, whichever endpoint it goes to.
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Sniffed,
    pub(crate) hash_key: Option<u64>,
    pub(crate) affinity_key: Option<u64>,
    pub(crate) prompt_tokens: Option<u32>,
}

/// An answer whose head has arrived.
pub(crate) struct Answer {
    pub(crate) head: http::response::Parts,
    /// The first piece of a stream, which is waited for: only then has the answer begun, and until then it can be had elsewhere.
    pub(crate) first: Option<Frame<Bytes>>,
    /// What the head says, and the first piece where it has to be asked.
    pub(crate) verdict: Verdict,
    pub(crate) body: Incoming,
    pub(crate) upstream: Upstream,
    pub(crate) lease: Lease,
}

/// What is known of the way so far, whether it ended well or not.
#[derive(Default)]
pub(crate) struct Way {
    /// Which rule decided, as in `x-tidegate-reason`.
    pub(crate) reason: String,
    pub(crate) attempted: Vec<EndpointId>,
    pub(crate) attempts: u32,
}

/// An answer that has begun.
struct Begun {
    upstream: Upstream,
    response: http::Response<Incoming>,
    first: Option<Frame<Bytes>>,
    verdict: Verdict,
}

/// One attempt that came to nothing.
enum Miss {
    /// The endpoint's fault.
    Endpoint(Failure),
    /// The client's: its body was too large or broke off.
    Client(ProxyError),
}

/// Brings `asked` to an endpoint of `pool` that answers.
pub(crate) async fn exchange(
    core: &Core,
    pool: &Arc<PoolHandle>,
    asked: &mut Asked,
    way: &mut Way,
    mut explain: Option<&mut Explain>,
) -> Result<Answer, ProxyError> {
    let mut last: Option<(EndpointId, Failure)> = None;
    loop {
        let request = Request {
            hash_key: asked.hash_key,
            affinity_key: asked.affinity_key,
            prompt_tokens: asked.prompt_tokens,
            attempted: &way.attempted,
            ..Request::default()
        };
        let decision = pool.with(|p, now| p.admit(now, &request, explain.as_deref_mut()));
        let (ticket, rule, detail) = match (decision, last) {
            (Decision::Send { ticket, rule, detail }, _) => (ticket, rule, detail),
            (Decision::Shed { .. }, Some((endpoint, failure))) => return Err(upstream_error(pool, endpoint, failure)),
            (Decision::Shed { why, retry_after }, None) => {
                return Err(ProxyError::Shed { why, pool: pool.name.to_string(), retry_after });
            }
        };
        let lease = Lease::new(Arc::clone(pool), ticket);
        let endpoint = lease.endpoint();
        way.attempts += 1;
        way.reason = reason(last.map(|(_, f)| f), rule, detail);
        let failure = match attempt(core, pool, asked, endpoint).await {
            Ok(Begun { upstream, response, first, verdict }) => {
                let (head, body) = response.into_parts();
                // A trial is ours, not the client's: it must not pay for our curiosity.
                let failed = matches!(verdict, Verdict::Failed(_));
                let retry = lease.is_trial() && failed && asked.body.is_replayable();
                if !retry {
                    return Ok(Answer { head, first, verdict, body, upstream, lease });
                }
                Failure::Status
            }
            Err(Miss::Client(error)) => return Err(error),
            Err(Miss::Endpoint(failure)) => failure,
        };
        lease.settle(Outcome::new(Verdict::Failed(failure)));
        last = Some((endpoint, failure));
        way.attempted.push(endpoint);
        let retryable = matches!(failure, Failure::Connect | Failure::Reset | Failure::Malformed | Failure::Status);
        if !retryable || !asked.body.is_replayable() {
            return Err(upstream_error(pool, endpoint, failure));
        }
    }
}

fn upstream_error(pool: &PoolHandle, endpoint: EndpointId, failure: Failure) -> ProxyError {
    ProxyError::Upstream { failure, endpoint: pool.endpoints[endpoint.index()].url.to_string() }
}

fn reason(retried: Option<Failure>, rule: &str, detail: &str) -> String {
    let mut text = String::with_capacity(32);
    if let Some(failure) = retried {
        text.push_str("retry;endpoint_");
        text.push_str(failure.as_str());
        text.push(';');
    }
    text.push_str(rule);
    if !detail.is_empty() && detail != rule {
        text.push(';');
        text.push_str(detail);
    }
    text
}

/// Whether the first piece of an error's body has the code or word `overloaded`.
fn is_overloaded(first: &Frame<Bytes>) -> bool {
    const WORD: &[u8] = b"overloaded";
    first.data_ref().is_some_and(|data| data.windows(WORD.len()).any(|w| w.eq_ignore_ascii_case(WORD)))
}

async fn attempt(core: &Core, pool: &PoolHandle, asked: &mut Asked, endpoint: EndpointId) -> Result<Begun, Miss> {
    let limit = pool.settings().timeouts.first_byte.unwrap_or(Duration::MAX / 4);
    match timeout(limit, begin(core, pool, asked, endpoint)).await {
        Ok(result) => result,
        Err(_) => Err(Miss::Endpoint(Failure::FirstByteTimeout)),
    }
}

/// Sends, and waits until the answer has begun: for a stream that is its first event, as engines send its head at once.
async fn begin(core: &Core, pool: &PoolHandle, asked: &mut Asked, endpoint: EndpointId) -> Result<Begun, Miss> {
    let (mut upstream, mut response) = send(core, pool, asked, endpoint).await?;
    if !is_well_formed(&response) {
        return Err(Miss::Endpoint(Failure::Malformed));
    }
    let is_stream = response.status().is_success() && is_event_stream(response.headers());
    // A bare 503 is a failure, unless the engine says that it is merely full.
    let asks_body = matches!(response.status().as_u16(), 503 | 529) && !response.headers().contains_key(RETRY_AFTER);
    let first = if is_stream || asks_body {
        upstream.first_frame(response.body_mut()).await.map_err(|_| Miss::Endpoint(Failure::Reset))?
    } else {
        None
    };
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.trim().parse().ok());
    let overloaded = asks_body && first.as_ref().is_some_and(is_overloaded);
    let verdict = Verdict::of_status(response.status().as_u16(), retry_after.map(Duration::from_secs), overloaded);
    Ok(Begun { upstream, response, first, verdict })
}

/// Whether an answer can be passed on: not a change of protocol that nobody asked for, and coded as we can frame it anew.
fn is_well_formed(response: &http::Response<Incoming>) -> bool {
    let codings = response.headers().get_all(http::header::TRANSFER_ENCODING);
    response.status() != http::StatusCode::SWITCHING_PROTOCOLS
        && codings.iter().count() <= 1
        && codings.iter().all(|v| v.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

/// Whether an answer is a stream of server-sent events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(http::header::CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"text/event-stream"))
}

async fn send(
    core: &Core,
    pool: &PoolHandle,
    asked: &mut Asked,
    endpoint: EndpointId,
) -> Result<(Upstream, http::Response<Incoming>), Miss> {
    let idle = core.idle.borrow_mut().take(pool.index, endpoint.index());
    if let Some(mut upstream) = idle {
        match upstream.send(request(asked, pool, endpoint)?).await {
            Ok(response) => return Ok((upstream, response)),
            Err(error) => {
                if let Some(miss) = client_fault(&error) {
                    return Err(miss);
                }
                // The endpoint closed an idle connection as we used it: no evidence against it. Once more, on a fresh one.
                if !asked.body.is_replayable() {
                    return Err(Miss::Endpoint(Failure::Reset));
                }
            }
        }
    }
    let connected = Upstream::connect(&pool.endpoints[endpoint.index()], pool.settings().timeouts.connect).await;
    let mut upstream = connected.map_err(|_| Miss::Endpoint(Failure::Connect))?;
    let sent = upstream.send(request(asked, pool, endpoint)?).await;
    let endpoint_fault = |e: &hyper::Error| if e.is_parse() { Failure::Malformed } else { Failure::Reset };
    let response = sent.map_err(|e| client_fault(&e).unwrap_or_else(|| Miss::Endpoint(endpoint_fault(&e))))?;
    Ok((upstream, response))
}

fn request(
    asked: &mut Asked,
    pool: &PoolHandle,
    endpoint: EndpointId,
) -> Result<http::Request<crate::upload::Upload>, Miss> {
    let body = asked.body.upload().ok_or(Miss::Endpoint(Failure::Reset))?;
    let mut request = http::Request::new(body);
    *request.method_mut() = asked.method.clone();
    *request.uri_mut() = asked.uri.clone();
    *request.headers_mut() = asked.headers.clone();
    if !asked.headers.contains_key(http::header::HOST)
        && let Ok(host) = http::HeaderValue::try_from(pool.endpoints[endpoint.index()].authority.as_str())
    {
        request.headers_mut().insert(http::header::HOST, host);
    }
    Ok(request)
}

/// Whether sending failed because of what came from downstream.
fn client_fault(error: &hyper::Error) -> Option<Miss> {
    match error.source()?.downcast_ref::<UploadError>()? {
        UploadError::TooLarge => Some(Miss::Client(ProxyError::BadRequest {
            code: "body_too_large",
            message: "the body is larger than limits.max_body_bytes",
            status: 413,
        })),
        UploadError::Broken(_) => Some(Miss::Client(ProxyError::BadRequest {
            code: "bad_body",
            message: "the body broke off or is not framed as announced",
            status: 400,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_short_and_stable() {
        assert_eq!(reason(None, "adaptive", "price"), "adaptive;price");
        assert_eq!(reason(None, "affinity", "affinity"), "affinity");
        assert_eq!(reason(Some(Failure::Reset), "round_robin", ""), "retry;endpoint_reset;round_robin");
    }
}
