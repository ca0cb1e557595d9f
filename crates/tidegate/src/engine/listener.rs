//! Accepts connections, and closes or resets them when a fault says so.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{Domain, SockRef, Socket, Type};
use tidegate_sim::fault::FaultKind;
use tokio::net::{TcpListener, TcpStream};

use super::state::{OpenConnection, Shared};
use super::{control, routes};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// How long to wait before binding again when somebody took the address while it was refused.
const REBIND: Duration = Duration::from_millis(50);

/// A listening socket at `address`; port 0 lets the system choose.
pub(super) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Serves users at `listener` until the engine stops.
pub(super) async fn serve_users(shared: Rc<Shared>, listener: std::net::TcpListener) -> io::Result<()> {
    let address = listener.local_addr()?;
    let mut listener = Some(TcpListener::from_std(listener)?);
    loop {
        let changed = shared.fault_changed.notified();
        let (kind, change) = (shared.fault_kind(), shared.fault_changes());
        if kind == FaultKind::Refuse {
            listener = None;
            shared.on_listener_follows(change);
            changed.await;
            continue;
        }
        let Some(open) = &listener else {
            match bind(address).and_then(TcpListener::from_std) {
                Ok(again) => listener = Some(again),
                Err(_) => tokio::time::sleep(REBIND).await,
            }
            continue;
        };
        shared.on_listener_follows(change);
        tokio::select! {
            () = changed => {}
            accepted = open.accept() => match accepted {
                Ok((stream, _)) => on_accepted(&shared, stream, kind),
                // Out of descriptors, or the client already left: neither may end the engine.
                Err(_) => tokio::time::sleep(REBIND).await,
            },
        }
    }
}

fn on_accepted(shared: &Rc<Shared>, stream: TcpStream, kind: FaultKind) {
    shared.stats(|s| s.connections += 1);
    let _ = stream.set_nodelay(true);
    if kind == FaultKind::Reset {
        let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        return;
    }
    tokio::task::spawn_local(serve_connection(shared.clone(), OpenConnection::new(shared), stream));
}

/// `open` comes before `stream` so that the connection is closed by the time it counts as closed.
async fn serve_connection(shared: Rc<Shared>, open: OpenConnection, stream: TcpStream) {
    let _open = open;
    let reset = Rc::new(Cell::new(false));
    let io = Resettable { io: TokioIo::new(stream), reset: reset.clone() };
    let service = service_fn(|request| routes::answer(shared.clone(), request));
    // No limit on idle time: a gateway's pooled connection must not end for a reason that no fault was set for.
    let connection = http1::Builder::new().header_read_timeout(None).serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    loop {
        let changed = shared.fault_changed.notified();
        match shared.fault_kind() {
            FaultKind::Refuse => return,
            FaultKind::Reset => return reset.set(true),
            _ => {}
        }
        tokio::select! {
            _ = connection.as_mut() => return,
            () = changed => {}
        }
    }
}

/// Serves the control address until the engine stops; faults do not touch it.
pub(super) async fn serve_control(shared: Rc<Shared>, listener: std::net::TcpListener) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(REBIND).await;
            continue;
        };
        let shared = shared.clone();
        tokio::task::spawn_local(async move {
            let service = service_fn(|request| control::answer(shared.clone(), request));
            // The client's trouble only: a control connection has nobody to report it to.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// A connection that is closed by RST instead of FIN if so told: SO_LINGER 0, set at the last moment.
struct Resettable {
    io: TokioIo<TcpStream>,
    reset: Rc<Cell<bool>>,
}

impl Drop for Resettable {
    fn drop(&mut self) {
        if self.reset.get() {
            let _ = SockRef::from(self.io.inner()).set_linger(Some(Duration::ZERO));
        }
    }
}

impl Read for Resettable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Resettable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}
