//! An upgraded connection: bytes both ways, unread, until both ends have closed or nothing moves for too long.
//!
//! It holds its place in the pool and its reservation until then, as any other request does. An end that closes its half is told to the
//! other, which may go on sending.

use crate::downstream::prefixed::AnySocket;
use crate::request::relay::End;
use crate::upstream::connection::Upstream;
use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_core::outcome::{Failure, Verdict};
use tidegate_core::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};

/// Bytes held per direction.
const BUFFER: usize = 8 * 1024;

/// Where the service of a connection leaves the tunnel that the connection turns into.
pub(crate) type Handover = Rc<RefCell<Option<Tunnel>>>;

/// The upstream half of a tunnel, and what has to happen at its end.
pub(crate) struct Tunnel {
    upstream: Option<Upstream>,
    end: Option<End>,
}

impl Tunnel {
    pub(crate) fn new(upstream: Upstream, end: End) -> Self {
        Self { upstream: Some(upstream), end: Some(end) }
    }

    /// Moves bytes between `near`, the client's side, and the endpoint.
    pub(crate) async fn run(mut self, near: AnySocket) {
        let (Some(upstream), Some(end)) = (self.upstream.take(), &mut self.end) else { return };
        let Some(far) = upstream.let_go() else { return self.finish(Verdict::Failed(Failure::Reset)) };
        let clock = end.core.shared.clock;
        let idle = end.lease.pool().settings().timeouts.upgrade_idle;
        let moved = Cell::new(clock.now());
        let note = || moved.set(clock.now());
        let (mut near, mut far) = (Side::new(near, &note), Side::new(far, &note));
        let ended = tokio::select! {
            ended = copy_bidirectional_with_sizes(&mut near, &mut far, BUFFER, BUFFER) => Some(ended),
            () = quiet(clock, &moved, idle) => None,
        };
        let verdict = match ended {
            Some(Ok(_)) => Verdict::Success,
            Some(Err(_)) if far.is_broken => Verdict::Failed(Failure::Truncated),
            // The client has gone, or both ends have nothing to say: nobody's fault.
            Some(Err(_)) | None => Verdict::Cancelled,
        };
        end.record.bytes_out = far.bytes;
        self.finish(verdict);
    }

    fn finish(&mut self, verdict: Verdict) {
        if let Some(end) = self.end.take() {
            end.finish(verdict, verdict.as_str(), None);
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.finish(Verdict::Cancelled);
    }
}

/// Ends when nothing has moved for as long as `idle`.
async fn quiet(clock: crate::Clock, moved: &Cell<Instant>, idle: Option<Duration>) {
    let Some(idle) = idle else { return std::future::pending().await };
    loop {
        let left = idle.saturating_sub(clock.now().since(moved.get()));
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// One side of a tunnel, which notes when bytes come from it.
struct Side<'n, T> {
    socket: T,
    note: &'n dyn Fn(),
    /// Bytes that came from it.
    bytes: u64,
    is_broken: bool,
}

impl<'n, T> Side<'n, T> {
    fn new(socket: T, note: &'n dyn Fn()) -> Self {
        Self { socket, note, bytes: 0, is_broken: false }
    }

    fn told<R>(&mut self, result: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        self.is_broken |= matches!(result, Poll::Ready(Err(_)));
        result
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Side<'_, T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.socket).poll_read(cx, buf);
        let n = buf.filled().len() - before;
        if n > 0 {
            self.bytes += n as u64;
            (self.note)();
        }
        self.told(result)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Side<'_, T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.told(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_flush(cx);
        self.told(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_shutdown(cx);
        self.told(result)
    }
}
