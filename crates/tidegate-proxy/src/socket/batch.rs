//! Sockets whose small writes of one turn of the event loop go out together at its end.
//!
//! A stream's event is a small read followed by a small write. Written at once, each write wakes its receiver, which reads the one event
//! and sleeps again: on a machine where both share cores that costs more than everything else the gateway does. So a small write only
//! goes to a buffer, and when all tasks that were ready have run, [`send_at_end_of_turn`] writes every buffer in one pass. Nothing waits
//! for a timer: the pass comes as soon as the core has nothing else to do. The buffers belong to the core, not to the connection; a
//! connection holds one only between its write and the pass, or while its peer does not read.

use crate::socket::buffers;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Bytes a connection may have waiting for the end of the turn; more is written at once.
const SMALL: usize = 16 * 1024;
/// Connections with waiting bytes after which the pass is made in the middle of a turn: it bounds what batching adds to a delay.
const MOST_DUE: usize = 128;

thread_local! {
    static TURN: Turn = const { Turn { due: RefCell::new(Vec::new()), sender: RefCell::new(None), is_due: Cell::new(false) } };
}

/// What one core has to send at the end of its turn.
struct Turn {
    due: RefCell<Vec<Rc<Outgoing>>>,
    /// Wakes the task that makes the pass; `None` on a thread without one, where everything is written at once.
    sender: RefCell<Option<Waker>>,
    is_due: Cell<bool>,
}

impl Turn {
    /// Whether this thread has a task that makes the pass.
    fn is_kept(&self) -> bool {
        self.sender.borrow().is_some()
    }

    fn add(&self, socket: &Rc<Outgoing>) {
        let mut due = self.due.borrow_mut();
        due.push(Rc::clone(socket));
        if due.len() >= MOST_DUE {
            drop(due);
            self.pass();
        } else if !self.is_due.replace(true)
            && let Some(sender) = &*self.sender.borrow()
        {
            sender.wake_by_ref();
        }
    }

    /// Waits until something is to be sent.
    fn poll_due(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut sender = self.sender.borrow_mut();
        if !sender.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *sender = Some(cx.waker().clone());
        }
        if self.is_due.get() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn pass(&self) {
        self.is_due.set(false);
        // Sending wakes tasks at most; none of them runs and adds to the list meanwhile.
        for socket in self.due.borrow_mut().drain(..) {
            socket.send();
        }
    }
}

/// Makes the pass at the end of every turn of this thread in which something was written. Runs for as long as it is polled; one per
/// thread.
pub(crate) async fn send_at_end_of_turn() {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            TURN.with(|turn| {
                turn.pass();
                *turn.sender.borrow_mut() = None;
            });
        }
    }
    let _leave = Leave;
    loop {
        poll_fn(|cx| TURN.with(|turn| turn.poll_due(cx))).await;
        // Once more around: what arrived meanwhile goes out in the same pass.
        tokio::task::yield_now().await;
        TURN.with(Turn::pass);
    }
}

/// The writing side of a socket.
struct Outgoing {
    half: RefCell<OwnedWriteHalf>,
    waiting: RefCell<Bytes>,
}

/// Bytes on their way out.
#[derive(Default)]
struct Bytes {
    buffer: Vec<u8>,
    from: usize,
    /// Stands in the list of the turn.
    is_due: bool,
    /// The peer does not read: the connection's own task waits for it.
    is_blocked: bool,
    /// What went wrong in a pass, for the connection's next call.
    error: Option<io::Error>,
    /// The connection's task, while bytes wait.
    task: Option<Waker>,
}

impl Bytes {
    fn is_empty(&self) -> bool {
        self.from == self.buffer.len()
    }

    fn on_sent(&mut self, n: usize) {
        self.from += n;
        if self.is_empty() {
            self.from = 0;
            self.is_blocked = false;
            self.task = None;
            buffers::give_back(std::mem::take(&mut self.buffer));
        }
    }
}

impl Outgoing {
    /// Writes what waits, as far as it goes.
    fn send(&self) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.is_due = false;
        let half = self.half.borrow();
        while !waiting.is_empty() {
            match half.try_write(&waiting.buffer[waiting.from..]) {
                Ok(n) if n > 0 => waiting.on_sent(n),
                Ok(_) => return waiting.fail(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    waiting.is_blocked = true;
                    if let Some(task) = waiting.task.take() {
                        task.wake();
                    }
                    return;
                }
                Err(error) => return waiting.fail(error),
            }
        }
    }

    /// Writes what waits, and waits itself until all is written.
    fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut waiting = self.waiting.borrow_mut();
        let mut half = self.half.borrow_mut();
        while !waiting.is_empty() {
            let n = ready!(Pin::new(&mut *half).poll_write(cx, &waiting.buffer[waiting.from..]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            waiting.on_sent(n);
        }
        Poll::Ready(Ok(()))
    }
}

impl Bytes {
    fn fail(&mut self, error: io::Error) {
        self.buffer = Vec::new();
        self.from = 0;
        self.error = Some(error);
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }
}

/// A socket whose small writes go out at the end of the turn. Reads are the socket's own.
///
/// `poll_flush` is ready while bytes only wait for the end of the turn; it waits once the peer has stopped reading, which is what
/// carries backpressure. An error of a pass is told by the next call.
pub(crate) struct Batched {
    incoming: OwnedReadHalf,
    outgoing: Rc<Outgoing>,
}

impl Batched {
    pub(crate) fn new(socket: TcpStream) -> Self {
        let (incoming, half) = socket.into_split();
        Self { incoming, outgoing: Rc::new(Outgoing { half: RefCell::new(half), waiting: RefCell::default() }) }
    }

    /// Appends `parts` to what waits if they are few enough bytes; how many they are.
    fn append(&self, parts: &[IoSlice<'_>], cx: &Context<'_>) -> Option<usize> {
        TURN.with(|turn| {
            let mut waiting = self.outgoing.waiting.borrow_mut();
            let n = parts.iter().map(|p| p.len()).sum();
            if n + waiting.buffer.len() > SMALL || waiting.is_blocked || !turn.is_kept() {
                return None;
            }
            if waiting.buffer.capacity() == 0 {
                waiting.buffer = buffers::take();
            }
            for part in parts {
                waiting.buffer.extend_from_slice(part);
            }
            if !waiting.task.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                waiting.task = Some(cx.waker().clone());
            }
            if !std::mem::replace(&mut waiting.is_due, true) {
                drop(waiting);
                turn.add(&self.outgoing);
            }
            Some(n)
        })
    }

    fn take_error(&self) -> Option<io::Error> {
        self.outgoing.waiting.borrow_mut().error.take()
    }
}

impl AsyncRead for Batched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.incoming).poll_read(cx, buf)
    }
}

impl AsyncWrite for Batched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.take_error() {
            return Poll::Ready(Err(error));
        }
        if let Some(n) = self.append(bufs, cx) {
            return Poll::Ready(Ok(n));
        }
        ready!(self.outgoing.poll_send(cx))?;
        let mut half = self.outgoing.half.borrow_mut();
        Pin::new(&mut *half).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.take_error() {
            return Poll::Ready(Err(error));
        }
        let is_blocked = self.outgoing.waiting.borrow().is_blocked;
        if is_blocked { self.outgoing.poll_send(cx) } else { Poll::Ready(Ok(())) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.take_error() {
            return Poll::Ready(Err(error));
        }
        ready!(self.outgoing.poll_send(cx))?;
        let mut half = self.outgoing.half.borrow_mut();
        Pin::new(&mut *half).poll_shutdown(cx)
    }
}
