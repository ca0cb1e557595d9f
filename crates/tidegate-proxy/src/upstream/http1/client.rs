//! One connection to an endpoint and the exchange under way on it.

use super::body::Decoder;
use super::head::{self, Framing};
use crate::socket::buffers::{self, Piece, with_scratch};
use crate::upstream::upload::{Upload, UploadError};
use crate::upstream::wanted::Wanted;
use bytes::{Buf, Bytes};
use http::header::CONTENT_LENGTH;
use http::{Method, StatusCode};
use http_body::{Body, Frame};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes the head of an answer may have.
const MAX_HEAD: usize = 64 * 1024;
/// Pieces of a request written by one call.
const AT_ONCE: usize = 8;

/// Why no answer began.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The request's body broke off or was too large: the client's doing.
    Upload(UploadError),
    /// What came is no answer.
    Malformed,
    /// The connection broke. `fresh`: before a byte of the answer.
    Closed { fresh: bool },
}

/// The body of an answer broke off or was framed badly.
#[derive(Debug)]
pub(crate) struct BodyError;

enum Reading {
    /// Nothing is expected.
    Idle,
    Head(Method),
    Body(Decoder),
    /// The body broke off; that is still to be told.
    Broken,
}

/// A connection.
pub(crate) struct Client<T> {
    socket: T,
    /// What of a request is still to be written, in order.
    queue: VecDeque<Piece>,
    /// Where the rest of it comes from, and whether it is framed in chunks.
    upload: Option<(Upload, bool)>,
    reading: Reading,
    /// Bytes read and not used yet: the beginning of a head, or what came behind one.
    input: Vec<u8>,
    used: usize,
    /// Whether another request may follow the one under way.
    keep_alive: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Client<T> {
    pub(crate) fn new(socket: T) -> Self {
        Self {
            socket,
            queue: VecDeque::new(),
            upload: None,
            reading: Reading::Idle,
            input: Vec::new(),
            used: 0,
            keep_alive: true,
        }
    }

    /// The socket of a connection that was upgraded, and what was read from it behind the head.
    pub(crate) fn into_parts(self) -> (T, Vec<u8>) {
        let early = self.input.get(self.used..).map(<[u8]>::to_vec);
        (self.socket, early.unwrap_or_default())
    }

    /// Sends a request and waits for the head of its answer. The body is read with [`Client::poll_frame`].
    pub(crate) fn send(
        &mut self,
        wanted: Wanted<'_>,
    ) -> impl Future<Output = Result<http::response::Parts, SendError>> {
        // At once, so that waiting keeps nothing of it.
        self.begin(wanted);
        poll_fn(|cx| self.poll_head(cx))
    }

    fn begin(&mut self, wanted: Wanted<'_>) {
        let chunked = matches!(wanted.body, Upload::Streamed { .. } | Upload::Trailed(..))
            && !wanted.headers.contains_key(CONTENT_LENGTH);
        let mut bytes = buffers::take();
        head::write(&mut bytes, &wanted, chunked);
        self.queue.push_back(Piece::pooled(bytes));
        self.reading = Reading::Head(wanted.method.clone());
        self.upload = match wanted.body {
            Upload::Empty => None,
            Upload::Whole(all) => {
                self.queue.extend(all.map(Piece::Shared));
                None
            }
            streamed @ (Upload::Streamed { .. } | Upload::Trailed(..)) => Some((streamed, chunked)),
        };
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<http::response::Parts, SendError>> {
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            match error {
                Stop::Upload(error) => return Poll::Ready(Err(SendError::Upload(error))),
                // An endpoint may answer and close before it has read everything: what it said counts.
                Stop::Socket => self.give_up_sending(),
            }
        }
        loop {
            if self.used < self.input.len()
                && let Some(parts) = self.take_head()?
            {
                return Poll::Ready(Ok(parts));
            }
            if self.input.len() - self.used > MAX_HEAD {
                return Poll::Ready(Err(SendError::Malformed));
            }
            if self.input.capacity() == 0 {
                self.input = buffers::take();
            }
            let (socket, input) = (&mut self.socket, &mut self.input);
            let n = ready!(poll_read(socket, cx, |read| {
                input.extend_from_slice(read);
                read.len()
            }));
            if !matches!(n, Ok(n) if n > 0) {
                return Poll::Ready(Err(SendError::Closed { fresh: self.input.is_empty() }));
            }
        }
    }

    /// Reads a head from what came; those of interim answers are passed over.
    fn take_head(&mut self) -> Result<Option<http::response::Parts>, SendError> {
        let Reading::Head(method) = &self.reading else { return Err(SendError::Malformed) };
        while let Some(found) =
            head::read(&self.input[self.used..], method).map_err(|head::Malformed| SendError::Malformed)?
        {
            self.used += found.size;
            let status = found.parts.status;
            if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                continue;
            }
            self.keep_alive &= found.keep_alive;
            self.reading = Reading::Body(Decoder::new(found.framing));
            if found.framing != Framing::Upgraded {
                self.on_used();
            }
            return Ok(Some(found.parts));
        }
        Ok(None)
    }

    /// Gives the buffer back once all in it is used. Bytes behind the end of an answer are nobody's: the connection goes.
    fn on_used(&mut self) {
        if self.used == self.input.len() {
            self.used = 0;
            buffers::give_back(std::mem::take(&mut self.input));
        } else if self.has_ended() {
            self.keep_alive = false;
        }
    }

    /// The next piece of the answer's body; `None` at its end.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        if self.is_sending() && matches!(self.poll_send(cx), Poll::Ready(Err(_))) {
            self.give_up_sending();
        }
        loop {
            let decoder = match &mut self.reading {
                Reading::Body(decoder) => decoder,
                Reading::Broken => return self.fail(),
                Reading::Idle | Reading::Head(_) => return Poll::Ready(None),
            };
            if let Decoder::Ended(trailers) = decoder {
                return Poll::Ready(trailers.take().map(|t| Ok(Frame::trailers(t))));
            }
            let mut out = buffers::take();
            if self.used < self.input.len() {
                match decoder.decode(&self.input[self.used..], &mut out) {
                    Ok(n) => self.used += n,
                    Err(_) => self.reading = Reading::Broken,
                }
                self.on_used();
            } else {
                let read = poll_read(&mut self.socket, cx, |read| (read.len(), decoder.decode(read, &mut out)));
                match read {
                    Poll::Pending => {
                        buffers::give_back(out);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok((0, _))) if decoder.on_closed().is_ok() => self.keep_alive = false,
                    Poll::Ready(Ok((n, Ok(used)))) if n > 0 => self.keep_alive &= used == n,
                    // What came before the fault is handed on first.
                    Poll::Ready(_) => self.reading = Reading::Broken,
                }
            }
            if out.is_empty() {
                buffers::give_back(out);
            } else {
                return Poll::Ready(Some(Ok(Frame::data(Piece::pooled(out)))));
            }
        }
    }

    fn fail(&mut self) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        self.keep_alive = false;
        self.reading = Reading::Idle;
        Poll::Ready(Some(Err(BodyError)))
    }

    /// Whether all of the answer was handed on.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.reading {
            Reading::Idle => true,
            Reading::Head(_) | Reading::Broken => false,
            Reading::Body(decoder) => matches!(decoder, Decoder::Ended(None)),
        }
    }

    /// Bytes of the answer's body still to come, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match &self.reading {
            Reading::Body(decoder) => decoder.left(),
            Reading::Idle => Some(0),
            Reading::Head(_) | Reading::Broken => None,
        }
    }

    fn is_sending(&self) -> bool {
        self.upload.is_some() || !self.queue.is_empty()
    }

    /// The rest of the request will not be sent, so nothing can follow it.
    fn give_up_sending(&mut self) {
        self.upload = None;
        self.queue.clear();
        self.keep_alive = false;
    }

    /// Whether another request can be sent on it now: nothing under way, nothing unasked for, not closed.
    pub(crate) fn is_ready(&mut self) -> bool {
        if !self.keep_alive || !self.has_ended() || self.is_sending() || self.used < self.input.len() {
            return false;
        }
        let mut cx = Context::from_waker(Waker::noop());
        self.reading = Reading::Idle;
        poll_read(&mut self.socket, &mut cx, <[u8]>::len).is_pending()
    }

    /// Writes what of the request can be written.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        loop {
            while !self.queue.is_empty() {
                let mut slices = [IoSlice::new(&[]); AT_ONCE];
                for (slice, piece) in slices.iter_mut().zip(&self.queue) {
                    *slice = IoSlice::new(piece);
                }
                let most = self.queue.len().min(AT_ONCE);
                let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, &slices[..most]));
                match written {
                    Ok(n) if n > 0 => self.on_written(n),
                    _ => return Poll::Ready(Err(Stop::Socket)),
                }
            }
            let Some((upload, chunked)) = &mut self.upload else { return self.poll_flush(cx) };
            let chunked = *chunked;
            match Pin::new(upload).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.queue_frame(frame, chunked),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(Stop::Upload(error))),
                Poll::Ready(None) => {
                    if chunked {
                        self.queue.push_back(Piece::Shared(Bytes::from_static(b"0\r\n\r\n")));
                    }
                    self.upload = None;
                }
                Poll::Pending => {
                    ready!(self.poll_flush(cx))?;
                    return Poll::Pending;
                }
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(|_| Stop::Socket)
    }

    fn on_written(&mut self, mut n: usize) {
        while let Some(piece) = self.queue.front_mut() {
            let some = n.min(piece.len());
            piece.advance(some);
            n -= some;
            if !piece.is_empty() {
                return;
            }
            self.queue.pop_front();
        }
    }

    fn queue_frame(&mut self, frame: Frame<Bytes>, chunked: bool) {
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) if chunked => {
                let mut size = buffers::take();
                size.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                let end = Piece::Shared(Bytes::from_static(b"\r\n"));
                self.queue.extend([Piece::pooled(size), Piece::Shared(data), end]);
            }
            Ok(data) => self.queue.push_back(Piece::Shared(data)),
            Err(frame) => {
                // Trailers: the last there is.
                if let (Ok(trailers), true) = (frame.into_trailers(), chunked) {
                    let mut end = buffers::take();
                    end.extend_from_slice(b"0\r\n");
                    head::write_fields(&mut end, &trailers);
                    end.extend_from_slice(b"\r\n");
                    self.queue.push_back(Piece::pooled(end));
                    self.upload = None;
                }
            }
        }
    }
}

/// Why sending stopped.
enum Stop {
    Upload(UploadError),
    Socket,
}

/// Reads once into the core's buffer; what `take` makes of it.
fn poll_read<T: AsyncRead + Unpin, R>(
    socket: &mut T,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> R,
) -> Poll<io::Result<R>> {
    with_scratch(|scratch| {
        let mut read = ReadBuf::new(scratch);
        ready!(Pin::new(socket).poll_read(cx, &mut read))?;
        Poll::Ready(Ok(take(read.filled())))
    })
}
