//! The socket of a downstream connection, with the guard of [`crate::downstream::framing`] in front of the HTTP library.
//!
//! A head is held back until it is complete and found unambiguous. A faulty one is replaced by a plain request that makes the service
//! answer with the fault, so that the refusal is written in order after earlier answers; nothing behind it is read as HTTP.

use crate::downstream::framing::{Chunks, Framing, HeadLimits, HeadScan, check_head};
use crate::request::error::ProxyError;
use crate::socket::buffers::with_scratch;
use crate::state::phase::Phase;
use hyper::rt::{Read, ReadBufCursor, Write};
use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use tidegate_core::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a refused head is replaced by.
const REFUSED: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";
/// How a client begins that speaks HTTP/2 without having asked (RFC 9113, 3.4), as far as it looks like a head.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// Bytes that are read of what a client sends behind a request that is being served.
const MOST_AHEAD: usize = 16 * 1024;

/// What a connection is waiting for, for its time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The next request.
    Request(Instant),
    /// The rest of a head.
    Head(Instant),
    /// Nothing of the client's: a request is being served.
    Answer,
}

/// What the guard and the service of one connection share.
pub(crate) struct Watch {
    /// Heads let through, the refused one included.
    heads: Cell<u64>,
    answered: Cell<u64>,
    refusal: RefCell<Option<ProxyError>>,
    pub(crate) waiting: Cell<Waiting>,
    /// The connection's task, where something was sent ahead: it waits for the socket, and is to read on when the answer is complete.
    reader: RefCell<Option<Waker>>,
    /// Since when the client takes nothing that waits for it.
    pub(crate) blocked: Cell<Option<Instant>>,
    /// What the connection turns into once the HTTP library lets go of it.
    pub(crate) turns_into: Cell<Turned>,
    /// The gateway's, as far as the connection has heard of it.
    pub(crate) phase: Cell<Phase>,
    clock: crate::Clock,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// It stays HTTP/1.1.
    Not,
    /// The client speaks HTTP/2.
    Http2,
    /// It was upgraded: bytes both ways, unread.
    Tunnel,
}

impl Watch {
    pub(crate) fn new(clock: crate::Clock) -> Rc<Self> {
        let (waiting, phase) = (Cell::new(Waiting::Request(clock.now())), Cell::new(Phase::Serving));
        let (heads, answered) = (Cell::new(0), Cell::new(0));
        let (refusal, turns_into) = (RefCell::new(None), Cell::new(Turned::Not));
        let reader = RefCell::new(None);
        Rc::new(Self { heads, answered, refusal, waiting, reader, blocked: Cell::new(None), turns_into, phase, clock })
    }

    /// Notes whether the client takes what is written to it.
    fn on_write<R>(&self, written: Poll<R>) -> Poll<R> {
        match (written.is_pending(), self.blocked.get()) {
            (true, None) => self.blocked.set(Some(self.clock.now())),
            (false, Some(_)) => self.blocked.set(None),
            _ => {}
        }
        written
    }

    /// A request has begun, and was let through.
    pub(crate) fn on_head(&self) {
        self.heads.set(self.heads.get() + 1);
        self.waiting.set(Waiting::Answer);
    }

    /// The fault of the `n`-th request of the connection, counted from 1.
    pub(crate) fn refusal_of(&self, n: u64) -> Option<ProxyError> {
        if n == self.heads.get() { self.refusal.borrow().clone() } else { None }
    }

    /// Whether anything was refused: then the client may still be sending.
    pub(crate) fn has_refused(&self) -> bool {
        self.refusal.borrow().is_some()
    }

    /// Refuses the head being waited for.
    pub(crate) fn refuse(&self, why: ProxyError) {
        if !self.has_refused() {
            self.heads.set(self.heads.get() + 1);
            *self.refusal.borrow_mut() = Some(why);
        }
    }

    /// An answer is complete: if no further request was sent meanwhile, the connection waits for the next.
    pub(crate) fn on_answered(&self) {
        self.answered.set(self.answered.get() + 1);
        if self.waiting.get() == Waiting::Answer && self.answered == self.heads {
            self.waiting.set(Waiting::Request(self.clock.now()));
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
        }
    }
}

enum Mode {
    Head(HeadScan),
    Body(u64),
    Chunked(Chunks),
}

/// A guarded socket.
pub(crate) struct Guard<T> {
    socket: T,
    limits: HeadLimits,
    /// Whether a client may begin with the preface of HTTP/2.
    http2: bool,
    watch: Rc<Watch>,
    mode: Mode,
    /// The part of a head that has arrived.
    held: Vec<u8>,
    /// What was sent behind a request that is being served. The library must not see it: with bytes in hand it would not read on, and not
    /// notice that its client has left.
    ahead: Vec<u8>,
    /// Bytes to be handed on before anything else is read.
    ready: Vec<u8>,
    ready_from: usize,
    refused: bool,
    /// The body under way is not framed as announced: nothing further is read.
    broken: bool,
}

impl<T: AsyncRead + Unpin> Guard<T> {
    pub(crate) fn new(socket: T, limits: HeadLimits, http2: bool, watch: Rc<Watch>) -> Self {
        Self {
            socket,
            limits,
            http2,
            watch,
            mode: Mode::Head(HeadScan::default()),
            held: Vec::new(),
            ahead: Vec::new(),
            ready: Vec::new(),
            ready_from: 0,
            refused: false,
            broken: false,
        }
    }

    /// The socket, and what was read from it and not handed on.
    pub(crate) fn into_parts(self) -> (T, Vec<u8>) {
        (self.socket, [self.held, self.ahead].concat())
    }

    /// Whether whatever comes now is sent ahead of its time.
    fn is_ahead(&self) -> bool {
        matches!(self.mode, Mode::Head(_)) && self.held.is_empty() && self.watch.waiting.get() == Waiting::Answer
    }

    /// Takes up what was sent ahead, once its time has come.
    fn catch_up(&mut self) {
        if !self.ahead.is_empty() && !self.is_ahead() {
            let input = std::mem::take(&mut self.ahead);
            let direct = self.take(&input);
            self.ready.extend_from_slice(&input[..direct]);
        }
    }

    /// Whether the client has not sent all of a body yet: then it is still sending.
    pub(crate) fn is_in_body(&self) -> bool {
        !matches!(self.mode, Mode::Head(_)) && !self.broken
    }

    /// Sorts `input`: returns how many bytes from its start may be handed on as they are. Where a held head comes first, everything
    /// that may be handed on goes to `ready` instead and 0 is returned. Behind a fault nothing is handed on.
    fn take(&mut self, input: &[u8]) -> usize {
        let (mut at, mut queued) = (0, 0);
        while at < input.len() {
            if self.is_ahead() {
                self.ahead.extend_from_slice(&input[at..]);
                break;
            }
            match self.step(&input[at..]) {
                Ok(Step::Pass(n)) => {
                    at += n;
                    if !self.held.is_empty() {
                        self.ready.append(&mut self.held);
                        queued = at;
                    }
                }
                Ok(Step::Hold) => {
                    self.queue(&input[..at], queued);
                    self.held.extend_from_slice(&input[at..]);
                    return if self.ready.is_empty() { at } else { 0 };
                }
                Ok(Step::Http2) => {
                    // The HTTP/1 library sees the end of a connection on which nothing was asked.
                    self.held.extend_from_slice(&input[at..]);
                    self.broken = true;
                    self.watch.turns_into.set(Turned::Http2);
                    return 0;
                }
                Err(fault) if matches!(self.mode, Mode::Head(_)) => {
                    self.watch.refuse(fault);
                    self.ready.extend_from_slice(&input[queued..at]);
                    self.ready.extend_from_slice(REFUSED);
                    self.refused = true;
                    return 0;
                }
                Err(_) => {
                    // A body with bad framing ends here: what was passed on is incomplete, and the service says so to the client.
                    self.broken = true;
                    self.queue(&input[..at], queued);
                    return if self.ready.is_empty() { at } else { 0 };
                }
            }
        }
        self.queue(&input[..at], queued);
        if self.ready.is_empty() { at } else { 0 }
    }

    /// Where something is queued already, what follows has to queue behind it.
    fn queue(&mut self, passed: &[u8], from: usize) {
        if !self.ready.is_empty() {
            self.ready.extend_from_slice(&passed[from..]);
        }
    }

    fn step(&mut self, rest: &[u8]) -> Result<Step, ProxyError> {
        match &mut self.mode {
            Mode::Body(left) => {
                let n = (*left).min(rest.len() as u64);
                *left -= n;
                if *left == 0 {
                    self.mode = Mode::Head(HeadScan::default());
                }
                Ok(Step::Pass(n as usize))
            }
            Mode::Chunked(chunks) => {
                let (n, ended) = chunks.skip(rest)?;
                if ended {
                    self.mode = Mode::Head(HeadScan::default());
                }
                Ok(Step::Pass(n))
            }
            // RFC 9112, 2.2: an empty line before a request is to be ignored; the library does.
            Mode::Head(_) if self.held.is_empty() && rest.starts_with(b"\r\n") => Ok(Step::Pass(2)),
            // So is one that comes in two pieces; it begins no head.
            Mode::Head(_) if self.held.is_empty() && rest == b"\r" => Ok(Step::Hold),
            Mode::Head(_) if self.held == b"\r" && rest[0] == b'\n' => {
                self.held.push(b'\n');
                Ok(Step::Pass(1))
            }
            Mode::Head(scan) if self.held == b"\r" => {
                scan.scan(&self.held)?;
                let found = scan.scan(rest)?;
                self.head(rest, found)
            }
            Mode::Head(scan) => {
                let found = scan.scan(rest)?;
                self.head(rest, found)
            }
        }
    }

    fn head(&mut self, rest: &[u8], found: Option<usize>) -> Result<Step, ProxyError> {
        let Some(n) = found else {
            if self.held.is_empty() {
                self.watch.waiting.set(Waiting::Head(self.watch.clock.now()));
            }
            return if self.held.len() + rest.len() > self.limits.bytes { Err(too_large()) } else { Ok(Step::Hold) };
        };
        if self.http2 && self.watch.heads.get() == 0 && self.held.len() + n == HTTP2_PREFACE.len() {
            let (before, behind) = HTTP2_PREFACE.split_at(self.held.len());
            if self.held == before && rest.starts_with(behind) {
                return Ok(Step::Http2);
            }
        }
        let framing = if self.held.is_empty() {
            check_head(&rest[..n], self.limits)?
        } else {
            self.held.extend_from_slice(&rest[..n]);
            check_head(&self.held, self.limits)?
        };
        self.watch.on_head();
        self.mode = match framing {
            Framing::Length(0) => Mode::Head(HeadScan::default()),
            Framing::Length(n) => Mode::Body(n),
            Framing::Chunked => Mode::Chunked(Chunks::default()),
        };
        Ok(Step::Pass(n))
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, buf: &mut ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        with_scratch(|scratch| {
            let size = scratch.len().min(buf.remaining());
            loop {
                if !self.ahead.is_empty() {
                    *self.watch.reader.borrow_mut() = Some(cx.waker().clone());
                }
                if self.ahead.len() >= MOST_AHEAD {
                    return Poll::Pending;
                }
                let mut read = ReadBuf::new(&mut scratch[..size]);
                ready!(Pin::new(&mut self.socket).poll_read(cx, &mut read))?;
                if read.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
                let direct = self.take(read.filled());
                if direct > 0 {
                    buf.put_slice(&read.filled()[..direct]);
                }
                if direct > 0 || !self.ready.is_empty() || self.broken {
                    return Poll::Ready(Ok(()));
                }
            }
        })
    }
}

enum Step {
    /// So many bytes belong to what is let through.
    Pass(usize),
    /// The head is not complete.
    Hold,
    /// It is no head: the client speaks HTTP/2.
    Http2,
}

fn too_large() -> ProxyError {
    ProxyError::BadRequest {
        code: "headers_too_large",
        message: "the request's line and headers are larger than limits.max_header_bytes",
        status: 431,
    }
}

impl<T: AsyncRead + Unpin> Read for Guard<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if me.watch.turns_into.get() == Turned::Tunnel {
            // What follows is not HTTP, and not the library's.
            return Poll::Pending;
        }
        if me.watch.has_refused() && !me.refused {
            // Refused from outside: the head did not come in time.
            me.refused = true;
            me.ready.extend_from_slice(REFUSED);
        }
        if me.ready_from == me.ready.len() {
            me.ready.clear();
            me.ready_from = 0;
            if me.broken {
                return Poll::Ready(Ok(()));
            }
            if me.refused {
                // Whatever follows is not read as HTTP.
                return Poll::Pending;
            }
            me.catch_up();
            if me.ready.is_empty() && !me.broken && !me.refused {
                ready!(me.poll_fill(cx, &mut buf))?;
            } else if me.ready.is_empty() {
                return if me.broken { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
        }
        let n = (me.ready.len() - me.ready_from).min(buf.remaining());
        buf.put_slice(&me.ready[me.ready_from..me.ready_from + n]);
        me.ready_from += n;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> Write for Guard<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.watch.on_write(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.socket).poll_flush(cx);
        self.watch.on_write(written)
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
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.watch.on_write(written)
    }
}
