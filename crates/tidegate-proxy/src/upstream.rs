//! Connections to endpoints: kept per core and endpoint, last used first, and driven by whoever uses them.
//!
//! An idle connection is polled by nobody, so on the way out of the pool it is looked at once to see whether the endpoint has closed it.

use crate::batch::Batched;
use crate::buffers::Piece;
use crate::http1::{BodyError, Client, SendError};
use crate::pool::EndpointHandle;
use crate::upload::Upload;
use http_body::Frame;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;
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

/// Idle connections of one core: by pool and endpoint.
#[derive(Default)]
pub(crate) struct Idle {
    pools: Vec<Vec<Vec<(Upstream, Instant)>>>,
}
impl Idle {
    /// Room for pools of these sizes.
    pub(crate) fn new(sizes: impl Iterator<Item = usize>) -> Self {
        Self { pools: sizes.map(|n| (0..n).map(|_| Vec::new()).collect()).collect() }
    }

    /// The connection used last, if one is alive.
    pub(crate) fn take(&mut self, pool: usize, endpoint: usize) -> Option<Upstream> {
        let idle = self.pools.get_mut(pool)?.get_mut(endpoint)?;
        while let Some((mut upstream, _)) = idle.pop() {
            if upstream.is_ready() {
                return Some(upstream);
            }
        }
        None
    }

    /// Keeps a connection whose answer is complete.
    pub(crate) fn put(&mut self, pool: usize, endpoint: usize, mut upstream: Upstream, now: Instant, most: usize) {
        let Some(idle) = self.pools.get_mut(pool).and_then(|p| p.get_mut(endpoint)) else { return };
        if upstream.is_ready() && idle.len() < most {
            idle.push((upstream, now));
        }
    }

    /// Closes what has been idle for longer than `timeout` of its pool, oldest first.
    pub(crate) fn sweep(&mut self, now: Instant, timeout: impl Fn(usize) -> Duration) {
        for (place, pool) in self.pools.iter_mut().enumerate() {
            let timeout = timeout(place);
            for idle in pool {
                idle.retain_mut(|(upstream, since)| now.since(*since) < timeout && upstream.is_ready());
            }
        }
    }
}
