//! HTTP/2 connections of one core to one endpoint: shared by requests until their streams run out, then another is opened.
//!
//! Unlike those of HTTP/1.1 they are driven by tasks of their own, as many requests wait on each.

use crate::downstream::http2::ThisCore;
use crate::socket::buffers::Piece;
use crate::upstream::endpoint_handle::EndpointHandle;
use crate::upstream::http1::{BodyError, SendError};
use crate::upstream::upload::{Upload, UploadError};
use crate::upstream::wire::Wire;
use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::uri::{Authority, Scheme};
use http::{Request, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_core::time::Instant;
use tokio::sync::Notify;

/// Bytes of an answer, and of all answers of a connection, that an endpoint may send ahead.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Silence, with requests open, after which an endpoint is asked whether it is there, and the time until it answers.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

type Driver = http2::Connection<TokioIo<Wire>, Told, ThisCore>;

/// One connection.
pub(crate) struct Connection {
    sender: SendRequest<Told>,
    streams: Cell<usize>,
    /// Knows how many requests at once the endpoint allows; `None` once it has ended.
    driver: Rc<RefCell<Option<Driver>>>,
    /// Since when it carries no request.
    idle_since: Cell<Instant>,
    number: u64,
    scheme: Scheme,
    authority: String,
    clock: crate::Clock,
}

impl Connection {
    /// Speaks HTTP/2 on a socket.
    pub(crate) async fn new(
        socket: Wire,
        endpoint: &EndpointHandle,
        number: u64,
        clock: crate::Clock,
    ) -> io::Result<Rc<Self>> {
        let (sender, connection) = http2::Builder::new(ThisCore)
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(io::Error::other)?;
        let driver = Rc::new(RefCell::new(Some(connection)));
        let driven = Rc::clone(&driver);
        tokio::task::spawn_local(async move {
            poll_fn(|cx| match &mut *driven.borrow_mut() {
                Some(connection) => Pin::new(connection).poll(cx).map(drop),
                None => Poll::Ready(()),
            })
            .await;
            // How it ended reaches the requests on it through their own channels.
            driven.take();
        });
        let scheme = if endpoint.secure.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let (streams, idle_since) = (Cell::new(0), Cell::new(clock.now()));
        let authority = endpoint.authority.clone();
        Ok(Rc::new(Self { sender, streams, driver, idle_since, number, scheme, authority, clock }))
    }

    /// A place for one request, if there is one.
    pub(crate) fn stream(self: &Rc<Self>, most: usize) -> Option<Stream> {
        let allowed = self.driver.borrow().as_ref().map_or(0, Driver::current_max_send_streams);
        if self.streams.get() >= most.min(allowed) || self.sender.is_closed() {
            return None;
        }
        self.streams.set(self.streams.get() + 1);
        Some(Stream { body: None, sender: self.sender.clone(), connection: Rc::clone(self) })
    }
}

/// A place for one request on a connection, and the answer that comes there.
pub(crate) struct Stream {
    body: Option<Incoming>,
    sender: SendRequest<Told>,
    connection: Rc<Connection>,
}

impl Stream {
    pub(crate) fn number(&self) -> u64 {
        self.connection.number
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(&mut self, mut request: Request<Upload>) -> Result<http::response::Parts, SendError> {
        self.name_target(&mut request);
        let failed = Rc::default();
        let request = request.map(|upload| Told { upload, failed: Rc::clone(&failed) });
        match self.sender.send_request(request).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                self.body = Some(body);
                Ok(head)
            }
            Err(error) => Err(match failed.take() {
                Some(fault) => SendError::Upload(fault),
                None => SendError::Closed { fresh: was_not_processed(&error) },
            }),
        }
    }

    /// HTTP/2 names scheme and host beside the path.
    fn name_target(&self, request: &mut Request<Upload>) {
        let host = request.headers_mut().remove(HOST);
        request.headers_mut().remove(CONNECTION);
        let host = host.and_then(|h| Authority::try_from(h.as_bytes()).ok());
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.authority = host.or_else(|| self.connection.authority.parse().ok());
        parts.scheme = Some(self.connection.scheme.clone());
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        *request.version_mut() = Version::HTTP_2;
    }

    /// The next piece of the answer's body; `None` at its end.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        frame.map(|f| f.map(|f| f.map(|f| f.map_data(Piece::Shared)).map_err(|_| BodyError)))
    }

    /// Whether all of the answer was handed on.
    pub(crate) fn has_ended(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    /// Bytes of the answer's body still to come, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.body.as_ref().map_or(Some(0), |body| body.size_hint().exact())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.streams.set(connection.streams.get() - 1);
        if connection.streams.get() == 0 {
            connection.idle_since.set(connection.clock.now());
        }
    }
}

/// A body that leaves word of why it failed: the library only tells that its stream was reset, which would look like the endpoint's doing.
struct Told {
    upload: Upload,
    failed: Rc<RefCell<Option<UploadError>>>,
}

/// It stands in [`Told::failed`].
#[derive(Debug)]
struct Failed;

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the request's body failed")
    }
}

impl Error for Failed {}

impl Body for Told {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let frame = Pin::new(&mut self.upload).poll_frame(cx);
        frame.map(|f| f.map(|f| f.map_err(|fault| drop(self.failed.replace(Some(fault)))).map_err(|()| Failed)))
    }

    fn is_end_stream(&self) -> bool {
        self.upload.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.upload.size_hint()
    }
}

/// Whether a request that failed so was not looked at by the endpoint: then it can be sent again without harm.
fn was_not_processed(error: &hyper::Error) -> bool {
    let reason = error.source().and_then(|e| e.downcast_ref::<h2::Error>());
    let refused = reason.is_some_and(|e| {
        e.reason() == Some(h2::Reason::REFUSED_STREAM) || (e.is_go_away() && e.reason() == Some(h2::Reason::NO_ERROR))
    });
    refused || error.is_canceled() || error.is_closed()
}

/// All connections of one core to one endpoint.
#[derive(Default)]
pub(crate) struct Multiplexed {
    connections: Vec<Rc<Connection>>,
    /// Whether the endpoint spoke HTTP/2 when last connected to.
    is_spoken: bool,
    opening: Option<Rc<Opening>>,
}

impl Multiplexed {
    /// A place on the first connection that has one: those behind it fall idle and are closed.
    pub(crate) fn take(&mut self, most: usize) -> Option<Stream> {
        if self.connections.is_empty() {
            return None;
        }
        self.connections.retain(|c| !c.sender.is_closed());
        self.connections.iter().find_map(|c| c.stream(most))
    }

    pub(crate) fn put(&mut self, connection: Rc<Connection>) {
        self.is_spoken = true;
        self.connections.push(connection);
    }

    /// The connection being opened, if it is known that several requests can share it.
    pub(crate) fn opening(&self, is_certain: bool) -> Option<Rc<Opening>> {
        self.opening.as_ref().filter(|_| is_certain || self.is_spoken).map(Rc::clone)
    }

    pub(crate) fn set_opening(&mut self, opening: Option<Rc<Opening>>) {
        self.opening = opening;
    }

    /// Closes what has been idle for longer than `timeout`.
    pub(crate) fn sweep(&mut self, now: Instant, timeout: Duration) {
        let is_used = |c: &Rc<Connection>| c.streams.get() > 0 || now.since(c.idle_since.get()) < timeout;
        self.connections.retain(|c| is_used(c) && !c.sender.is_closed());
    }
}

/// A connection being opened, which others wait for instead of opening their own.
pub(crate) struct Opening {
    /// What the pool will know the connection as.
    pub(crate) number: u64,
    failed: Cell<Option<bool>>,
    told: Notify,
}

impl Opening {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, failed: Cell::new(None), told: Notify::new() }
    }

    pub(crate) fn end(&self, failed: bool) {
        self.failed.set(Some(failed));
        self.told.notify_waiters();
    }

    /// Dropped on the way: neither failed nor done.
    pub(crate) fn end_unless_ended(&self) {
        if self.failed.get().is_none() {
            self.end(false);
        }
    }

    /// Waits for its end; whether it failed.
    pub(crate) async fn has_failed(&self) -> bool {
        loop {
            if let Some(failed) = self.failed.get() {
                return failed;
            }
            self.told.notified().await;
        }
    }
}
