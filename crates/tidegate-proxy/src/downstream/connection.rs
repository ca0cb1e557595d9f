//! One downstream connection.

use crate::downstream::framing::HeadLimits;
use crate::downstream::guard::{Guard, Turned, Waiting, Watch};
use crate::downstream::http2;
use crate::downstream::peer::Peer;
use crate::downstream::prefixed::Prefixed;
use crate::downstream::tunnel::Handover;
use crate::gateway::Core;
use crate::request::error::ProxyError;
use crate::request::service;
use crate::state::phase::Phase;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes and time given to a client that still sends after a refusal, so that it can read the answer before the connection breaks.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES: usize = 256 * 1024;

/// Serves requests until the client leaves, a time-out strikes or the gateway stops.
pub(crate) async fn serve<T>(core: Rc<Core>, socket: T, peer: Rc<Peer>)
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let limits = core.shared.current.limits();
    let watch = Watch::new(core.shared.clock);
    let head = HeadLimits { bytes: limits.max_header_bytes, headers: limits.max_headers };
    let guard = Guard::new(socket, head, limits.http2.is_some(), Rc::clone(&watch));
    let handover = Handover::default();
    let served = Rc::new(Cell::new(0u64));
    let service = service_fn(|request| {
        served.set(served.get() + 1);
        let own = (Rc::clone(&core), Rc::clone(&watch), Rc::clone(&peer), Rc::clone(&handover));
        // Boxed: the library wants the future movable to give the socket back at the end.
        Box::pin(service::serve(own, served.get(), request))
    });
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_headers(limits.max_headers + 1)
        .max_buf_size(limits.max_header_bytes.max(16 * 1024))
        .serve_connection(guard, service);
    let mut stop = core.stop.clone();
    watch.phase.set(*stop.borrow_and_update());
    if watch.phase.get() >= Phase::Closing {
        std::pin::Pin::new(&mut connection).graceful_shutdown();
    }
    loop {
        let wait = next_look(&core, &watch);
        tokio::select! {
            biased;
            _ = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)) => break,
            // Whatever is under way sees the new phase when the connection is polled next, which is at once.
            _ = stop.changed(), if watch.phase.get() < Phase::Cutting => {
                watch.phase.set(*stop.borrow_and_update());
                if watch.phase.get() >= Phase::Closing {
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                }
            }
            () = tokio::time::sleep(wait) => {
                if is_deaf(&core, &watch) {
                    // What is under way is dropped with the connection: the client has left, for all that can be told.
                    return;
                }
                if is_overdue(&core, &watch) {
                    match watch.waiting.get() {
                        Waiting::Head(_) => watch.refuse(head_timeout()),
                        _ => std::pin::Pin::new(&mut connection).graceful_shutdown(),
                    }
                }
            }
        }
    }
    let parts = connection.into_parts();
    let is_sending = watch.has_refused() || parts.io.is_in_body();
    let (socket, held) = parts.io.into_parts();
    match watch.turns_into.get() {
        Turned::Not => close(socket, is_sending).await,
        // Boxed: a connection that stays HTTP/1 must not pay for the room these need.
        Turned::Http2 => Box::pin(http2::serve(core, Box::new(Prefixed::new(held, socket)), peer)).await,
        Turned::Tunnel => {
            let tunnel = handover.take();
            if let Some(tunnel) = tunnel {
                let early = [&parts.read_buf[..], &held].concat();
                Box::pin(tunnel.run(Box::new(Prefixed::new(early, socket)))).await;
            }
        }
    }
}

/// How long to wait before looking at the client's time-outs again.
pub(crate) fn next_look(core: &Core, watch: &Watch) -> Duration {
    let (limits, now) = (core.shared.current.limits(), core.shared.clock.now());
    let left = |since, limit: Duration| limit.saturating_sub(now.since(since));
    // A wait is not cut short by what happens meanwhile.
    let most = limits.send_timeout.unwrap_or(limits.header_timeout).min(limits.header_timeout);
    let wait = match watch.waiting.get() {
        Waiting::Request(since) => left(since, limits.idle_timeout).min(most),
        Waiting::Head(since) => left(since, limits.header_timeout),
        Waiting::Answer => most,
    };
    wait.max(Duration::from_millis(10))
}

pub(crate) fn is_overdue(core: &Core, watch: &Watch) -> bool {
    let (limits, now) = (core.shared.current.limits(), core.shared.clock.now());
    match watch.waiting.get() {
        Waiting::Request(since) => now.since(since) >= limits.idle_timeout,
        Waiting::Head(since) => now.since(since) >= limits.header_timeout,
        Waiting::Answer => false,
    }
}

/// Whether the client has taken nothing for too long.
fn is_deaf(core: &Core, watch: &Watch) -> bool {
    let (limit, since) = (core.shared.current.limits().send_timeout, watch.blocked.get());
    limit.zip(since).is_some_and(|(limit, since)| core.shared.clock.now().since(since) >= limit)
}

fn head_timeout() -> ProxyError {
    ProxyError::BadRequest {
        code: "header_timeout",
        message: "the request's headers did not arrive in time",
        status: 408,
    }
}

/// Closes the socket. After a refusal, or an answer that came early, the client may still be sending, and closing over unread bytes would reset the connection and
/// take the answer away from it; so a little is read and thrown away first.
async fn close<T: AsyncRead + AsyncWrite + Unpin>(mut socket: T, is_sending: bool) {
    if socket.shutdown().await.is_err() || !is_sending {
        return;
    }
    // Not within the future: every connection would carry it from its beginning.
    let mut sink = vec![0u8; 4096];
    let drain = async {
        let mut left = LINGER_BYTES;
        while left > 0 {
            match socket.read(&mut sink).await {
                Ok(n) if n > 0 => left = left.saturating_sub(n),
                _ => break,
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, drain).await;
}
