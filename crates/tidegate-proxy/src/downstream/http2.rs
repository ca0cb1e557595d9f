//! One downstream connection that speaks HTTP/2.
//!
//! The library frames, bounds and resets; every stream is served by the same service as a request of HTTP/1.1. What the raw head is
//! checked for there ([`crate::downstream::framing`]) is checked here on what the library decoded, as frames leave no room for two readings.

use crate::downstream::connection::{is_overdue, next_look};
use crate::downstream::guard::{Waiting, Watch};
use crate::downstream::peer::Peer;
use crate::downstream::prefixed::AnySocket;
use crate::downstream::tunnel::Handover;
use crate::gateway::Core;
use crate::request::error::ProxyError;
use crate::request::service;
use crate::state::phase::Phase;
use http::header::{COOKIE, HOST, HeaderValue};
use http::{HeaderMap, Method, Request, Version};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tidegate_config::{Http2, Limits};
use tidegate_core::time::Instant;

/// Time that an idle client has to leave once it was asked to; one that is deaf must not hold up a stop.
const GOODBYE: Duration = Duration::from_secs(1);
/// Shortest time between two looks at it.
const SHORTEST_LOOK: Duration = Duration::from_millis(10);

/// Spawns on the core the connection is on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThisCore;

impl<F: Future + 'static> hyper::rt::Executor<F> for ThisCore {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move { drop(future.await) });
    }
}

/// Serves streams until the client leaves, a time-out strikes or the gateway stops.
pub(crate) async fn serve(core: Rc<Core>, socket: AnySocket, peer: Rc<Peer>) {
    let limits = core.shared.current.limits();
    let Some(bounds) = limits.http2 else { return };
    let watch = Watch::new(core.shared.clock);
    let told = Rc::clone(&watch);
    let own = Rc::clone(&core);
    let service = service_fn(move |request| {
        told.on_head();
        let own = (Rc::clone(&own), Rc::clone(&told), Rc::clone(&peer), Handover::default());
        service::serve(own, 0, request)
    });
    let mut connection = builder(&limits, &bounds).serve_connection(TokioIo::new(socket), service);
    let mut stop = core.stop.clone();
    watch.phase.set(*stop.borrow_and_update());
    if watch.phase.get().is_stopping() {
        Pin::new(&mut connection).graceful_shutdown();
    }
    let (clock, mut leave_by) = (core.shared.clock, None);
    loop {
        let wait =
            leave_by.map_or_else(|| next_look(&core, &watch), |at: Instant| at.since(clock.now()).max(SHORTEST_LOOK));
        tokio::select! {
            biased;
            _ = &mut connection => return,
            _ = stop.changed(), if watch.phase.get() < Phase::Cutting => {
                watch.phase.set(*stop.borrow_and_update());
                if watch.phase.get() == Phase::Cutting {
                    // Every stream is reset: its task is not this one's to tell.
                    return;
                }
                // Streams that are open end; no other begins.
                leave_by = Some(clock.now() + GOODBYE);
                Pin::new(&mut connection).graceful_shutdown();
            }
            () = tokio::time::sleep(wait) => {
                let is_idle = matches!(watch.waiting.get(), Waiting::Request(_));
                let stopping = watch.phase.get().is_stopping();
                match leave_by {
                    _ if !is_idle => leave_by = stopping.then(|| clock.now() + GOODBYE),
                    Some(at) if clock.now() >= at => return,
                    None if stopping || is_overdue(&core, &watch) => {
                        leave_by = Some(clock.now() + GOODBYE);
                        Pin::new(&mut connection).graceful_shutdown();
                    }
                    _ => {}
                }
            }
        }
    }
}

fn builder(limits: &Limits, bounds: &Http2) -> http2::Builder<ThisCore> {
    let mut builder = http2::Builder::new(ThisCore);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.max_concurrent_streams)
        .initial_stream_window_size(bounds.stream_window)
        .initial_connection_window_size(bounds.connection_window)
        .max_send_buf_size(bounds.send_buffer)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(bounds.max_pending_resets)
        .max_local_error_reset_streams(bounds.max_error_resets)
        .keep_alive_interval(bounds.ping_interval)
        .keep_alive_timeout(bounds.ping_timeout);
    builder
}

/// What a request of HTTP/2 must be beyond what the library checks; puts right what HTTP/1.1 writes in another way.
pub(crate) fn check<B>(request: &mut Request<B>, limits: &Limits) -> Result<(), ProxyError> {
    if request.version() != Version::HTTP_2 {
        return Ok(());
    }
    let bad = |code, message, status| Err(ProxyError::BadRequest { code, message, status });
    if request.method() == Method::CONNECT {
        return bad("connect_not_supported", "this is no forward proxy", 501);
    }
    if request.headers().len() > limits.max_headers {
        return bad("too_many_headers", "the request has more headers than limits.max_headers", 431);
    }
    let path = request.uri().path();
    let is_plain = request.uri().path_and_query().is_none_or(|p| p.as_str().bytes().all(|b| b > b' ' && b < 127));
    if !is_plain || !(path.starts_with('/') || path == "*") {
        return bad("bad_target", "the request's :path is not a path that starts with /", 400);
    }
    let authority = request.uri().authority().map(|a| a.as_str().to_owned());
    let mut hosts = request.headers().get_all(HOST).iter();
    match (authority, hosts.next(), hosts.next()) {
        (Some(authority), None, _) => match HeaderValue::try_from(authority) {
            Ok(host) => drop(request.headers_mut().insert(HOST, host)),
            Err(_) => return bad("bad_host", "the request's :authority is no host", 400),
        },
        (Some(authority), Some(host), None) if host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) => {}
        (None, Some(_), None) => {}
        // RFC 9113, 8.3.1.
        (Some(_), Some(_), _) => return bad("bad_host", "the request's Host header is not its :authority", 400),
        _ => return bad("bad_host", "the request must say once which host it is for", 400),
    }
    join_cookies(request.headers_mut());
    Ok(())
}

/// RFC 9113, 8.2.3: a cookie may come in pieces, which HTTP/1.1 wants in one line.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let pieces: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(whole) = HeaderValue::from_bytes(&pieces.join(&b"; "[..])) {
        headers.insert(COOKIE, whole);
    }
}
