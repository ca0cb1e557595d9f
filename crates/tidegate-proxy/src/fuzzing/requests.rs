//! A client's bytes, as the guard reads them and as the HTTP library behind it does.

use super::pieces;
use crate::Clock;
use crate::downstream::framing::{Carried, Chunks, Framing, HeadLimits, HeadScan, check_head};
use crate::downstream::guard::{Guard, Watch};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const LIMITS: HeadLimits = HeadLimits { bytes: 16 * 1024, headers: 64 };

/// A request: its method, its target, and its body.
type Seen = (String, String, Vec<u8>);

/// Whatever is let through, the library reads as the guard does: the same requests, the same bodies, no more of them, however it is split.
pub fn requests(input: &[u8]) {
    let Some((&seed, bytes)) = input.split_first() else { return };
    let (ours, end) = as_we_read(bytes);
    let direct = as_read(vec![bytes[..end].to_vec()], false);
    assert!(direct.len() <= ours.len(), "the library sees more requests: {direct:?} in {ours:?}");
    assert_eq!(direct[..], ours[..direct.len()], "the library reads another request");
    let whole = as_read(vec![bytes.to_vec()], true);
    let split = as_read(pieces(bytes, seed).map(<[u8]>::to_vec).collect(), true);
    assert_eq!(split, whole, "the guard lets something else through in pieces");
    assert!(whole.len() <= ours.len(), "more got through than was read: {whole:?} in {ours:?}");
    assert_eq!(whole[..], ours[..whole.len()], "the guard let another request through");
}

/// The whole requests at the beginning of `bytes`, and where they end.
fn as_we_read(bytes: &[u8]) -> (Vec<Seen>, usize) {
    let (mut seen, mut at) = (Vec::new(), 0);
    loop {
        let mut from = at;
        while bytes[from..].starts_with(b"\r\n") {
            from += 2;
        }
        let Ok(Some(size)) = HeadScan::default().scan(&bytes[from..]) else { return (seen, at) };
        let (head, rest) = bytes[from..].split_at(size);
        let Ok(framing) = check_head(head, LIMITS) else { return (seen, at) };
        let mut body = Vec::new();
        let used = match framing {
            Framing::Length(n) if n > rest.len() as u64 => return (seen, at),
            Framing::Length(n) => {
                body.extend_from_slice(&rest[..n as usize]);
                n as usize
            }
            Framing::Chunked => {
                let mut on = |carried: Carried<'_>| {
                    if let Carried::Data(data) = carried {
                        body.extend_from_slice(data);
                    }
                };
                let Ok((n, true)) = Chunks::default().read(rest, &mut on) else { return (seen, at) };
                n
            }
        };
        let line = String::from_utf8_lossy(head);
        let mut words = line.split(' ').map(str::to_owned);
        seen.push((words.next().unwrap(), path_of(&words.next().unwrap()), body));
        at = from + size + used;
    }
}

/// A target without what stands before its path, and without its fragment: the library takes both apart.
fn path_of(target: &str) -> String {
    target.parse::<http::Uri>().map_or_else(|_| "?".to_owned(), |uri| uri.path().to_owned())
}

/// The requests that the library reads whole from `pieces`, behind a guard or not.
fn as_read(pieces: Vec<Vec<u8>>, guarded: bool) -> Vec<Seen> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let watch = Watch::new(Clock::start());
    let service = service_fn(|request: Request<Incoming>| {
        let (seen, watch) = (Rc::clone(&seen), Rc::clone(&watch));
        async move {
            let refused = request.headers().get("host").is_some_and(|h| h == "refused") && watch.has_refused();
            let line = (request.method().to_string(), request.uri().path().to_owned());
            if let Ok(body) = request.into_body().collect().await
                && !refused
            {
                seen.borrow_mut().push((line.0, line.1, body.to_bytes().to_vec()));
            }
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let moved = Rc::new(Cell::new(0));
    let socket = Script { pieces: pieces.into_iter(), rest: Vec::new(), moved: Rc::clone(&moved) };
    let mut server = http1::Builder::new();
    server.header_read_timeout(None).max_headers(LIMITS.headers + 1).max_buf_size(LIMITS.bytes);
    if guarded {
        run(server.serve_connection(Guard::new(socket, LIMITS, false, Rc::clone(&watch)), service), &moved);
    } else {
        run(server.serve_connection(hyper_util::rt::TokioIo::new(socket), service), &moved);
    }
    seen.take()
}

/// Polls until nothing moves any more.
fn run(connection: impl Future, moved: &Cell<usize>) {
    let (mut connection, mut cx) = (pin!(connection), Context::from_waker(Waker::noop()));
    let (mut before, mut still) = (0, 0);
    while still < 4 && connection.as_mut().poll(&mut cx).is_pending() {
        still = if moved.get() == before { still + 1 } else { 0 };
        before = moved.get();
    }
}

/// A socket from which `pieces` come, each by a read of its own, and then nothing: an end would say that the client has left.
struct Script {
    pieces: std::vec::IntoIter<Vec<u8>>,
    rest: Vec<u8>,
    /// Reads and writes.
    moved: Rc<Cell<usize>>,
}

impl AsyncRead for Script {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            let Some(piece) = self.pieces.next() else { return Poll::Pending };
            self.rest = piece;
        }
        self.moved.set(self.moved.get() + 1);
        let n = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..n]);
        self.rest.drain(..n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.moved.set(self.moved.get() + 1);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
