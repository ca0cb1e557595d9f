//! Connections to endpoints: kept per core and endpoint, last used first, and driven by whoever uses them.
//!
//! The HTTP library's connection future is not spawned: it is polled from the task that waits for the answer or relays it, which saves
//! a wake-up and a hop per event. An idle connection is polled by nobody, so on the way out of the pool it is polled once to see
//! whether the endpoint has closed it.

use crate::endpoint_handle::EndpointHandle;
use crate::upload::Upload;
use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_config::Connections;
use tidegate_core::time::Instant;
use tokio::net::TcpStream;

/// A connection to one endpoint.
pub(crate) struct Upstream {
    sender: SendRequest<Upload>,
    connection: Option<Connection<TokioIo<TcpStream>, Upload>>,
    number: u64,
}

impl Upstream {
    /// Opens a connection, to be known as `number`.
    pub(crate) async fn connect(endpoint: &EndpointHandle, timeout: Duration, number: u64) -> io::Result<Self> {
        let open = async {
            match endpoint.address {
                Some(address) => TcpStream::connect(address).await,
                None => TcpStream::connect(&endpoint.authority).await,
            }
        };
        let socket =
            tokio::time::timeout(timeout, open).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        socket.set_nodelay(true)?;
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(false)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(io::Error::other)?;
        Ok(Self { sender, connection: Some(connection), number })
    }

    /// What the pool knows it as.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Sends a request and waits for the head of its answer, driving the connection meanwhile.
    pub(crate) async fn send(&mut self, request: http::Request<Upload>) -> hyper::Result<http::Response<Incoming>> {
        let mut answer = std::pin::pin!(self.sender.send_request(request));
        let connection = &mut self.connection;
        poll_fn(|cx| {
            drive(connection, cx);
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
            drive(&mut self.connection, cx);
            Pin::new(&mut *body).poll_frame(cx).map(Option::transpose)
        })
        .await
    }

    /// Moves bytes in both directions as far as they go.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection, cx);
    }

    /// Whether another request can be sent on it now.
    fn is_ready(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        drive(&mut self.connection, &mut cx);
        self.connection.is_some() && self.sender.is_ready()
    }
}

fn drive(connection: &mut Option<Connection<TokioIo<TcpStream>, Upload>>, cx: &mut Context<'_>) {
    if let Some(live) = connection
        && let Poll::Ready(_) = Pin::new(live).poll(cx)
    {
        // How it ended reaches the request through its own channel.
        *connection = None;
    }
}

/// Idle connections of one core, by endpoint.
#[derive(Default)]
pub(crate) struct Idle {
    endpoints: HashMap<u64, Kept>,
}

/// Idle connections to one endpoint, used last last.
struct Kept {
    endpoint: Arc<EndpointHandle>,
    /// Longest time one is kept, by the settings of the last answer.
    timeout: Duration,
    idle: Vec<(Upstream, Instant)>,
}

impl Idle {
    /// The connection used last, if one is alive.
    pub(crate) fn take(&mut self, endpoint: &EndpointHandle) -> Option<Upstream> {
        let kept = self.endpoints.get_mut(&endpoint.number)?;
        while let Some((mut upstream, _)) = kept.idle.pop() {
            if upstream.is_ready() {
                return Some(upstream);
            }
        }
        None
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
        let empty = || Kept { endpoint: Arc::clone(endpoint), timeout: Duration::ZERO, idle: Vec::new() };
        let kept = self.endpoints.entry(endpoint.number).or_insert_with(empty);
        kept.timeout = settings.idle_timeout;
        if kept.idle.len() < settings.max_idle_per_endpoint {
            kept.idle.push((upstream, now));
        }
    }

    /// Closes what has been idle for too long, and all connections to endpoints that have left.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.endpoints.retain(|_, kept| {
            let timeout = kept.timeout;
            kept.idle.retain_mut(|(upstream, since)| now.since(*since) < timeout && upstream.is_ready());
            !kept.endpoint.is_retired()
        });
    }
}
