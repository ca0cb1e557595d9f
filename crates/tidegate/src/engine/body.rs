//! The bodies an engine answers with: one piece, a token stream, or one that breaks off.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use super::sse::Sse;
use super::state::Held;

/// A response body.
pub(super) enum EngineBody {
    /// All at once.
    Whole(Option<Bytes>),
    /// Server-sent events as the model produces tokens.
    Stream(Box<TokenStream>),
    /// The first part of an answer, then the connection ends.
    Broken(Break, Option<Bytes>),
}

/// Where a broken body stands. The pause lets the connection flush what was written before the error closes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Break {
    /// Still whole.
    #[default]
    No,
    /// Everything that goes out has been handed over.
    Flushing,
}

impl Break {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if *self == Self::No {
            *self = Self::Flushing;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "cut by a fault"))))
    }
}

/// A stream of tokens.
pub(super) struct TokenStream {
    pub(super) held: Held,
    pub(super) sse: Sse,
    /// Break off after this many tokens.
    pub(super) cut_after: Option<u32>,
    pub(super) breaking: Break,
    pub(super) ended: bool,
}

impl TokenStream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.cut_after.is_some_and(|k| self.held.written() >= k) {
            self.held.on_aborted();
            return self.breaking.poll(cx);
        }
        let Poll::Ready((tokens, done)) = self.held.poll_tokens(cx.waker()) else { return Poll::Pending };
        let last = tokens.min(self.cut_after.unwrap_or(u32::MAX));
        let mut frame = BytesMut::with_capacity(512);
        for k in self.held.written() + 1..=last {
            self.sse.token(k, &mut frame);
        }
        self.held.on_written(last);
        if done && last == tokens {
            self.sse.end(tokens, &mut frame);
            self.held.on_completed();
            self.ended = true;
        }
        Poll::Ready(Some(Ok(Frame::data(frame.freeze()))))
    }
}

impl Body for EngineBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Stream(stream) => stream.poll(cx),
            Self::Broken(breaking, bytes) => match bytes.take() {
                Some(b) => Poll::Ready(Some(Ok(Frame::data(b)))),
                None => breaking.poll(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Stream(stream) => stream.ended,
            Self::Broken(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            _ => SizeHint::default(),
        }
    }
}
