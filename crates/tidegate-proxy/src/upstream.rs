//! Connections to endpoints: kept per core and endpoint, last used first, and driven by whoever uses them.
//!
//! An idle connection is polled by nobody, so on the way out of the pool it is looked at once to see whether the endpoint has closed it.

use crate::batch::Batched;
use crate::buffers::Piece;
use crate::endpoint_handle::EndpointHandle;
use crate::http1::{BodyError, Client, SendError};
use crate::upload::Upload;
use http_body::Frame;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_config::Connections;
use tidegate_core::time::Instant;
use tokio::net::TcpStream;

/// A connection to one endpoint.
pub(crate) struct Upstream {
    client: Client<Batched>,
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
        Ok(Self { client: Client::new(Batched::new(socket)), number })
    }

    /// What the pool knows it as.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(&mut self, request: http::Request<Upload>) -> Result<http::response::Parts, SendError> {
        self.client.send(request).await
    }

    /// The next piece of the answer's body; `None` at its end.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        self.client.poll_frame(cx)
    }

    /// Waits for the first piece of the answer's body; `None` if it is empty.
    pub(crate) async fn first_frame(&mut self) -> Result<Option<Frame<Piece>>, BodyError> {
        poll_fn(|cx| self.poll_frame(cx)).await.transpose()
    }

    /// Whether all of the answer was handed on.
    pub(crate) fn has_ended(&self) -> bool {
        self.client.has_ended()
    }

    /// Bytes of the answer's body still to come, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.client.left()
    }

    /// Whether another request can be sent on it now.
    fn is_ready(&mut self) -> bool {
        self.client.is_ready()
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
