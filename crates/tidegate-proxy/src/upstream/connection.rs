//! Connections to endpoints: kept per core and endpoint, last used first, and driven by whoever uses them.
//!
//! An idle connection of HTTP/1.1 is polled by nobody, so on the way out of the pool it is looked at once to see whether the endpoint has
//! closed it. Those of HTTP/2 are shared ([`crate::upstream::multiplexed`]).

use crate::downstream::prefixed::Prefixed;
use crate::gateway::Core;
use crate::request::lease::Lease;
use crate::socket::buffers::Piece;
use crate::upstream::endpoint_handle::EndpointHandle;
use crate::upstream::http1::{BodyError, Client, SendError};
use crate::upstream::multiplexed::{self, Multiplexed, Opening, Stream};
use crate::upstream::wanted::Wanted;
use crate::upstream::wire::Wire;
use http::header::{CONNECTION, HeaderValue, TE};
use http_body::Frame;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_config::Connections;
use tidegate_core::time::Instant;

/// A connection to one endpoint, or a place on one that is shared.
pub(crate) struct Upstream {
    way: Way,
    number: u64,
}

#[allow(clippy::large_enum_variant, reason = "boxing what nearly all requests use would cost each an allocation")]
enum Way {
    Http1(Client<Wire>),
    Http2(Box<Stream>),
}

impl Upstream {
    /// Speaks HTTP/1.1 on a socket, to be known as `number`.
    fn http1(socket: Wire, number: u64) -> Self {
        Self { way: Way::Http1(Client::new(socket)), number }
    }

    fn http2(stream: Stream) -> Self {
        let number = stream.number();
        Self { way: Way::Http2(Box::new(stream)), number }
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
            return Ok(Self::http1(socket, number));
        }
        let connection = multiplexed::Connection::new(socket, endpoint, number, clock).await?;
        connection.stream(usize::MAX).map(Self::http2).ok_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    /// Opens a connection that can be upgraded, to be known as `number`, and to be had back by [`Self::let_go`].
    pub(crate) async fn connect_for_upgrade(
        endpoint: &EndpointHandle,
        timeout: Duration,
        number: u64,
    ) -> io::Result<Self> {
        Ok(Self::http1(Wire::open(endpoint, timeout, true).await?, number))
    }

    /// Opens a connection for the request of `lease`, or waits for one that is being opened and can be shared. Those who wait for one that
    /// fails are known by its number: it is one failure, not many.
    pub(crate) async fn open(core: &Core, lease: &Lease) -> io::Result<Self> {
        let (pool, endpoint) = (lease.pool(), lease.endpoint());
        let number = core.next_connection();
        lease.on_connected(number);
        if endpoint.may_speak_http2 {
            // Boxed: most pools speak HTTP/1.1, and every request would carry room for this.
            return Box::pin(Self::open_or_share(core, lease, number)).await;
        }
        Ok(Self::http1(Wire::open(endpoint, pool.settings().timeouts.connect, true).await?, number))
    }

    async fn open_or_share(core: &Core, lease: &Lease, number: u64) -> io::Result<Self> {
        let (pool, endpoint, clock) = (lease.pool(), lease.endpoint(), core.shared.clock);
        let (timeout, most) = (pool.settings().timeouts.connect, pool.settings().connections.max_streams);
        loop {
            let opening = core.idle.borrow().opening(endpoint, endpoint.is_http2_certain());
            let Some(opening) = opening else { break };
            lease.on_connected(opening.number);
            if opening.has_failed().await {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            if let Some(upstream) = core.idle.borrow_mut().take(endpoint, most) {
                return Ok(upstream);
            }
        }
        lease.on_connected(number);
        let opening = Open::new(core, endpoint, number);
        let result = async {
            let socket = Wire::open(endpoint, timeout, false).await?;
            if !endpoint.speaks_http2(&socket) {
                return Ok(Self::http1(socket, number));
            }
            let connection = multiplexed::Connection::new(socket, endpoint, number, clock).await?;
            let stream = connection.stream(most);
            core.idle.borrow_mut().share(endpoint, connection, pool.settings().connections.idle_timeout);
            stream.map(Self::http2).ok_or_else(|| io::ErrorKind::ConnectionReset.into())
        }
        .await;
        opening.end(result.is_err());
        result
    }

    /// What the pool knows it as.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(&mut self, mut wanted: Wanted<'_>) -> Result<http::response::Parts, SendError> {
        let client = match &mut self.way {
            Way::Http1(client) => client,
            Way::Http2(stream) => return Box::pin(stream.send(wanted.into_request())).await,
        };
        if wanted.headers.contains_key(TE) && !wanted.own.iter().any(|(name, _)| name == CONNECTION) {
            // RFC 9110, 10.1.4.
            wanted.own.push((CONNECTION, HeaderValue::from_static("te")));
        }
        client.send(wanted).await
    }

    /// The next piece of the answer's body; `None` at its end.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        match &mut self.way {
            Way::Http1(client) => client.poll_frame(cx),
            Way::Http2(stream) => stream.poll_frame(cx),
        }
    }

    /// Waits for the first piece of the answer's body; `None` if it is empty.
    pub(crate) async fn first_frame(&mut self) -> Result<Option<Frame<Piece>>, BodyError> {
        poll_fn(|cx| self.poll_frame(cx)).await.transpose()
    }

    /// Whether all of the answer was handed on.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.way {
            Way::Http1(client) => client.has_ended(),
            Way::Http2(stream) => stream.has_ended(),
        }
    }

    /// Bytes of the answer's body still to come, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match &self.way {
            Way::Http1(client) => client.left(),
            Way::Http2(stream) => stream.left(),
        }
    }

    /// The socket of a connection that was upgraded.
    pub(crate) fn let_go(self) -> Option<Prefixed<Wire>> {
        match self.way {
            Way::Http1(client) => {
                let (socket, early) = client.into_parts();
                Some(Prefixed::new(early, socket))
            }
            Way::Http2(_) => None,
        }
    }

    /// Whether another request can be sent on it now; a place on a shared connection is given back instead.
    fn is_ready(&mut self) -> bool {
        match &mut self.way {
            Way::Http1(client) => client.is_ready(),
            Way::Http2(_) => false,
        }
    }
}

/// An opening under way; dropped, it tells those who wait for it that they have to open their own.
struct Open<'c> {
    core: &'c Core,
    endpoint: &'c Arc<EndpointHandle>,
    opening: Rc<Opening>,
}

impl<'c> Open<'c> {
    fn new(core: &'c Core, endpoint: &'c Arc<EndpointHandle>, number: u64) -> Self {
        let opening = Rc::new(Opening::new(number));
        core.idle.borrow_mut().set_opening(endpoint, Some(Rc::clone(&opening)));
        Self { core, endpoint, opening }
    }

    fn end(self, failed: bool) {
        self.opening.end(failed);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.core.idle.borrow_mut().set_opening(self.endpoint, None);
        self.opening.end_unless_ended();
    }
}

/// Idle connections of one core, by endpoint.
#[derive(Default)]
pub(crate) struct Idle {
    endpoints: HashMap<u64, Kept>,
}

/// Connections to one endpoint.
struct Kept {
    endpoint: Arc<EndpointHandle>,
    /// Longest time one is kept, by the settings of the last answer.
    timeout: Duration,
    /// Of HTTP/1.1, each for one request at a time; used last last.
    alone: Vec<(Upstream, Instant)>,
    /// Of HTTP/2.
    shared: Multiplexed,
}

impl Kept {
    fn new(endpoint: &Arc<EndpointHandle>) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            timeout: Duration::from_secs(1),
            alone: Vec::new(),
            shared: Multiplexed::default(),
        }
    }
}

impl Idle {
    fn at(&mut self, endpoint: &Arc<EndpointHandle>) -> &mut Kept {
        self.endpoints.entry(endpoint.number).or_insert_with(|| Kept::new(endpoint))
    }

    /// The connection used last, if one is alive, or a place on one that has fewer than `most` requests.
    pub(crate) fn take(&mut self, endpoint: &EndpointHandle, most: usize) -> Option<Upstream> {
        let kept = self.endpoints.get_mut(&endpoint.number)?;
        while let Some((mut upstream, _)) = kept.alone.pop() {
            if upstream.is_ready() {
                return Some(upstream);
            }
        }
        kept.shared.take(most).map(Upstream::http2)
    }

    /// Keeps a connection whose answer is complete, unless its endpoint has left.
    pub(crate) fn put(
        &mut self,
        endpoint: &Arc<EndpointHandle>,
        mut upstream: Upstream,
        now: Instant,
        settings: &Connections,
    ) {
        if endpoint.is_retired() || !upstream.is_ready() {
            return;
        }
        let kept = self.at(endpoint);
        kept.timeout = settings.idle_timeout;
        if kept.alone.len() < settings.max_idle_per_endpoint {
            kept.alone.push((upstream, now));
        }
    }

    fn share(&mut self, endpoint: &Arc<EndpointHandle>, connection: Rc<multiplexed::Connection>, timeout: Duration) {
        let kept = self.at(endpoint);
        kept.timeout = timeout;
        kept.shared.put(connection);
    }

    fn opening(&self, endpoint: &EndpointHandle, is_certain: bool) -> Option<Rc<Opening>> {
        self.endpoints.get(&endpoint.number)?.shared.opening(is_certain)
    }

    fn set_opening(&mut self, endpoint: &Arc<EndpointHandle>, opening: Option<Rc<Opening>>) {
        self.at(endpoint).shared.set_opening(opening);
    }

    /// Closes what has been idle for too long, and all connections to endpoints that have left.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.endpoints.retain(|_, kept| {
            let timeout = kept.timeout;
            kept.alone.retain_mut(|(upstream, since)| now.since(*since) < timeout && upstream.is_ready());
            kept.shared.sweep(now, timeout);
            // One that is being opened is waited for.
            !kept.endpoint.is_retired() || kept.shared.opening(true).is_some()
        });
    }
}
