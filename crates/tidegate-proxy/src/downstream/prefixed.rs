//! A socket of which some bytes were read already.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Any socket. What is rare, or reads much at once, takes this instead of being built anew for every kind of socket: HTTP/2 alone is a few
/// hundred kilobytes of code each time.
pub(crate) type AnySocket = Box<dyn Socket>;

/// What can be an [`AnySocket`].
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Socket for T {}

/// Gives `first` before it reads from the socket.
pub(crate) struct Prefixed<T> {
    first: Vec<u8>,
    at: usize,
    socket: T,
}

impl<T> Prefixed<T> {
    pub(crate) fn new(first: Vec<u8>, socket: T) -> Self {
        Self { first, at: 0, socket }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Prefixed<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if me.at == me.first.len() {
            return Pin::new(&mut me.socket).poll_read(cx, buf);
        }
        let n = (me.first.len() - me.at).min(buf.remaining());
        buf.put_slice(&me.first[me.at..me.at + n]);
        me.at += n;
        if me.at == me.first.len() {
            (me.first, me.at) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Prefixed<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }
}
