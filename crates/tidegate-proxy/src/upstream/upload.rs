//! The body of a request on its way up: buffered and replayable, or streamed with a bound.

use crate::request::error::ProxyError;
use crate::request::headers::strip_trailers;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A request body.
pub(crate) enum Upload {
    /// Nothing.
    Empty,
    /// All of it, as sniffed: can be sent again.
    Whole(Option<Bytes>),
    /// All of it, and what stands behind it: can be sent again.
    Trailed(Option<Bytes>, Option<HeaderMap>),
    /// What was sniffed, then the rest as it comes: can be sent once.
    Streamed {
        first: Option<Bytes>,
        rest: Incoming,
        /// Bytes the rest may still have.
        left: u64,
        moved: Rc<Moved>,
    },
}

/// Bytes a second at which a client has to send a body, on average, once `limits.header_timeout` has passed: the default of Apache's
/// `RequestReadTimeout`. Slower ones hold what they hold for as long as they like.
const SLOWEST: u64 = 500;

/// How long a client may take in all for the first `bytes` of a body, `grace` included.
pub(crate) fn patience(grace: Duration, bytes: usize) -> Duration {
    grace + Duration::from_secs(bytes as u64 / SLOWEST)
}

/// A client that does not send its body in time.
pub(crate) fn too_slow() -> ProxyError {
    ProxyError::BadRequest { code: "body_timeout", message: "the body did not arrive in time", status: 408 }
}

/// How far a streamed body is.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    bytes: Cell<u64>,
    /// Whether all that came was taken, so that the next piece is waited for.
    waits: Cell<bool>,
}

impl Moved {
    /// Bytes that were taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Whether it is the client who keeps the endpoint waiting, `moved` bytes having come in `time`.
    pub(crate) fn is_slow(&self, moved: u64, time: Duration) -> bool {
        self.waits.get() && moved < SLOWEST * time.as_secs().max(1)
    }
}

/// A body larger than `limits.max_body_bytes`, or one that broke off.
#[derive(Debug)]
pub(crate) enum UploadError {
    TooLarge,
    Broken(hyper::Error),
}

impl std::fmt::Display for UploadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge => f.write_str("the request's body is larger than limits.max_body_bytes"),
            Self::Broken(e) => write!(f, "the request's body broke off: {e}"),
        }
    }
}

impl std::error::Error for UploadError {}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Trailed(bytes, trailers) => {
                let behind = |t: HeaderMap| Frame::trailers(t);
                Poll::Ready(bytes.take().map(Frame::data).or_else(|| trailers.take().map(behind)).map(Ok))
            }
            Self::Streamed { first: first @ Some(_), .. } => Poll::Ready(first.take().map(|b| Ok(Frame::data(b)))),
            Self::Streamed { rest, left, moved, .. } => {
                let polled = Pin::new(rest).poll_frame(cx);
                moved.waits.set(polled.is_pending());
                polled.map(|frame| {
                    frame.map(|frame| {
                        let mut frame = frame.map_err(UploadError::Broken)?;
                        strip_trailers(&mut frame);
                        let size = frame.data_ref().map_or(0, |d| d.len() as u64);
                        moved.bytes.set(moved.bytes.get() + size);
                        *left = left.checked_sub(size).ok_or(UploadError::TooLarge)?;
                        Ok(frame)
                    })
                })
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty | Self::Whole(None) | Self::Trailed(None, None) => true,
            Self::Whole(Some(_)) | Self::Trailed(..) | Self::Streamed { first: Some(_), .. } => false,
            Self::Streamed { rest, .. } => rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty | Self::Whole(None) => SizeHint::with_exact(0),
            Self::Whole(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Self::Trailed(..) => SizeHint::default(),
            Self::Streamed { first, rest, .. } => {
                let first = first.as_ref().map_or(0, |b| b.len() as u64);
                match rest.size_hint().exact() {
                    Some(n) => SizeHint::with_exact(first + n),
                    None => SizeHint::default(),
                }
            }
        }
    }
}
