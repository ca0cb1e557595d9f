//! Connections to endpoints: kept per core and endpoint, last used first, and driven by whoever uses them.
//!
//! The HTTP library's connection future is not spawned: it is polled from the task that waits for the answer or relays it, which saves
//! a wake-up and a hop per event. An idle connection is polled by nobody, so on the way out of the pool it is polled once to see
//! whether the endpoint has closed it.

use crate::gateway::Core;
use crate::lease::Lease;
use crate::multiplexed::{self, Multiplexed, Opening, Stream};
use crate::pool::EndpointHandle;
use crate::prefixed::Prefixed;
use crate::upload::Upload;
use crate::wire::Wire;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, TE};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_core::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to one endpoint, or a place on one that is shared.
pub(crate) struct Upstream {
    sender: Sender,
    /// With HTTP/1.1 only.
    connection: Option<Connection<TokioIo<Wire>, Upload>>,
    number: u64,
    /// Whether the socket is wanted back once the library lets go of it, and whether it has.
    upgrade: Option<bool>,
}

enum Sender {
    Http1(SendRequest<Upload>),
    Http2(Box<Stream>),
}

impl Upstream {
    /// Opens a connection of HTTP/1.1 on a socket, to be known as `number`.
    async fn http1(socket: Wire, number: u64) -> io::Result<Self> {
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(false)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(io::Error::other)?;
        Ok(Self { sender: Sender::Http1(sender), connection: Some(connection), number, upgrade: None })
    }

    fn http2(stream: Stream) -> Self {
        let number = stream.number();
        Self { sender: Sender::Http2(Box::new(stream)), connection: None, number, upgrade: None }
    }

    /// Opens a connection that nobody shares, to be known as `number`.
    pub(crate) async fn connect(
        endpoint: &EndpointHandle,
        timeout: Duration,
        number: u64,
        clock: crate::Clock,
    ) -> io::Result<Self> {
        let socket = Wire::open(endpoint, timeout, false).await?;
        if !endpoint.speaks_http2(&socket) {
            return Self::http1(socket, number).await;
        }
        let connection = multiplexed::Connection::new(socket, endpoint, number, clock).await?;
        connection.stream(usize::MAX).map(Self::http2).ok_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    /// Opens a connection that can be upgraded: to be known as `number`, of HTTP/1.1, and to be had back by [`Self::let_go`].
    pub(crate) async fn connect_for_upgrade(
        endpoint: &EndpointHandle,
        timeout: Duration,
        number: u64,
    ) -> io::Result<Self> {
        let socket = Wire::open(endpoint, timeout, true).await?;
        Ok(Self { upgrade: Some(false), ..Self::http1(socket, number).await? })
    }

    /// Opens a connection for the request of `lease`, or waits for one that is being opened and can be shared. Those who wait for one that
    /// fails are known by its number: it is one failure, not many.
    pub(crate) async fn open(core: &Core, lease: &Lease) -> io::Result<Self> {
        let (pool, place, clock) = (lease.pool(), lease.endpoint().index(), core.shared.clock);
        let endpoint = &pool.endpoints[place];
        let (timeout, most) = (pool.settings().timeouts.connect, pool.settings().connections.max_streams);
        let number = core.next_connection();
        lease.on_connected(number);
        if !endpoint.may_speak_http2 {
            return Self::http1(Wire::open(endpoint, timeout, true).await?, number).await;
        }
        loop {
            let opening = core.idle.borrow().opening(pool.index, place, endpoint.is_http2_certain());
            let Some(opening) = opening else { break };
            lease.on_connected(opening.number);
            if opening.has_failed().await {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            if let Some(upstream) = core.idle.borrow_mut().take(pool.index, place, most) {
                return Ok(upstream);
            }
        }
        lease.on_connected(number);
        let opening = Open::new(core, pool.index, place, number);
        let result = Box::pin(async {
            let socket = Wire::open(endpoint, timeout, false).await?;
            if !endpoint.speaks_http2(&socket) {
                return Self::http1(socket, number).await;
            }
            let connection = multiplexed::Connection::new(socket, endpoint, number, clock).await?;
            let stream = connection.stream(most);
            core.idle.borrow_mut().share(pool.index, place, connection);
            stream.map(Self::http2).ok_or_else(|| io::ErrorKind::ConnectionReset.into())
        })
        .await;
        opening.end(result.is_err());
        result
    }

    /// What the pool knows it as.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether a request that failed so on a connection used before can be sent again: the endpoint has not seen it.
    pub(crate) fn was_stale(&self, error: &hyper::Error) -> bool {
        match self.sender {
            // It closed an idle connection as we used it.
            Sender::Http1(_) => true,
            Sender::Http2(_) => multiplexed::was_not_processed(error),
        }
    }

    /// Sends a request and waits for the head of its answer, driving the connection meanwhile.
    pub(crate) async fn send(&mut self, mut request: http::Request<Upload>) -> hyper::Result<http::Response<Incoming>> {
        let sender = match &mut self.sender {
            Sender::Http1(sender) => sender,
            Sender::Http2(stream) => return Box::pin(stream.send(request)).await,
        };
        if request.headers().contains_key(TE) && !request.headers().contains_key(CONNECTION) {
            // RFC 9110, 10.1.4.
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("te"));
        }
        let mut answer = std::pin::pin!(sender.send_request(request));
        let (connection, upgrade) = (&mut self.connection, &mut self.upgrade);
        poll_fn(|cx| {
            drive(connection, upgrade, cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Waits for the first piece of a body, driving the connection meanwhile; `None` if the body is empty.
    pub(crate) async fn first_frame(&mut self, body: &mut Incoming) -> hyper::Result<Option<Frame<Bytes>>> {
        poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(frame.transpose());
            }
            self.drive(cx);
            Pin::new(&mut *body).poll_frame(cx).map(Option::transpose)
        })
        .await
    }

    /// Moves bytes in both directions as far as they go.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection, &mut self.upgrade, cx);
    }

    /// The socket of a connection that was upgraded; `None` if the endpoint closed it before.
    pub(crate) async fn let_go(mut self) -> Option<impl AsyncRead + AsyncWrite + Unpin> {
        poll_fn(|cx| {
            self.drive(cx);
            if self.upgrade == Some(true) || self.connection.is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let parts = self.connection?.into_parts();
        Some(Prefixed::new(parts.read_buf.into(), parts.io.into_inner()))
    }

    /// Whether another request can be sent on it now.
    fn is_ready(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.drive(&mut cx);
        match &self.sender {
            Sender::Http1(sender) => self.connection.is_some() && self.upgrade.is_none() && sender.is_ready(),
            Sender::Http2(_) => false,
        }
    }
}

fn drive(connection: &mut Option<Connection<TokioIo<Wire>, Upload>>, upgrade: &mut Option<bool>, cx: &mut Context<'_>) {
    let Some(live) = connection else { return };
    match upgrade {
        None => {
            if Pin::new(live).poll(cx).is_ready() {
                // How it ended reaches the request through its own channel.
                *connection = None;
            }
        }
        Some(let_go) => *let_go = *let_go || live.poll_without_shutdown(cx).is_ready(),
    }
}

/// An opening under way; dropped, it tells those who wait for it that they have to open their own.
struct Open<'c> {
    core: &'c Core,
    pool: usize,
    place: usize,
    opening: Rc<Opening>,
}

impl<'c> Open<'c> {
    fn new(core: &'c Core, pool: usize, place: usize, number: u64) -> Self {
        let opening = Rc::new(Opening::new(number));
        core.idle.borrow_mut().set_opening(pool, place, Some(Rc::clone(&opening)));
        Self { core, pool, place, opening }
    }

    fn end(self, failed: bool) {
        self.opening.end(failed);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.core.idle.borrow_mut().set_opening(self.pool, self.place, None);
        self.opening.end_unless_ended();
    }
}

/// Idle connections of one core: by pool and endpoint.
#[derive(Default)]
pub(crate) struct Idle {
    pools: Vec<Vec<Kept>>,
}

/// Connections to one endpoint.
#[derive(Default)]
struct Kept {
    /// Of HTTP/1.1, each for one request at a time.
    alone: Vec<(Upstream, Instant)>,
    /// Of HTTP/2.
    shared: Multiplexed,
}

impl Idle {
    /// Room for pools of these sizes.
    pub(crate) fn new(sizes: impl Iterator<Item = usize>) -> Self {
        Self { pools: sizes.map(|n| (0..n).map(|_| Kept::default()).collect()).collect() }
    }

    fn at(&mut self, pool: usize, endpoint: usize) -> Option<&mut Kept> {
        self.pools.get_mut(pool)?.get_mut(endpoint)
    }

    /// The connection used last, if one is alive, or a place on one that has fewer than `most` requests.
    pub(crate) fn take(&mut self, pool: usize, endpoint: usize, most: usize) -> Option<Upstream> {
        let kept = self.at(pool, endpoint)?;
        while let Some((mut upstream, _)) = kept.alone.pop() {
            if upstream.is_ready() {
                return Some(upstream);
            }
        }
        kept.shared.take(most).map(Upstream::http2)
    }

    /// Keeps a connection whose answer is complete.
    pub(crate) fn put(&mut self, pool: usize, endpoint: usize, mut upstream: Upstream, now: Instant, most: usize) {
        let Some(kept) = self.at(pool, endpoint) else { return };
        if upstream.is_ready() && kept.alone.len() < most {
            kept.alone.push((upstream, now));
        }
    }

    fn share(&mut self, pool: usize, endpoint: usize, connection: Rc<multiplexed::Connection>) {
        if let Some(kept) = self.at(pool, endpoint) {
            kept.shared.put(connection);
        }
    }

    fn opening(&self, pool: usize, endpoint: usize, is_certain: bool) -> Option<Rc<Opening>> {
        self.pools.get(pool)?.get(endpoint)?.shared.opening(is_certain)
    }

    fn set_opening(&mut self, pool: usize, endpoint: usize, opening: Option<Rc<Opening>>) {
        if let Some(kept) = self.at(pool, endpoint) {
            kept.shared.set_opening(opening);
        }
    }

    /// Closes what has been idle for longer than `timeout` of its pool, oldest first.
    pub(crate) fn sweep(&mut self, now: Instant, timeout: impl Fn(usize) -> Duration) {
        for (place, pool) in self.pools.iter_mut().enumerate() {
            let timeout = timeout(place);
            for kept in pool {
                kept.alone.retain_mut(|(upstream, since)| now.since(*since) < timeout && upstream.is_ready());
                kept.shared.sweep(now, timeout);
            }
        }
    }
}
