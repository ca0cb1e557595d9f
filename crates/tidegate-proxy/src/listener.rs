//! Listening sockets: one per core on the same address, so that the kernel spreads connections and no core hands work to another.

use crate::connection;
use crate::gateway::Core;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// Connections waiting to be accepted, per socket.
const BACKLOG: i32 = 4096;
/// What a client over `limits.max_connections` reads.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 138\r\nconnection: close\r\nretry-after: 1\r\n\r\n{\"error\":{\"message\":\"too many connections (limits.max_connections)\",\"type\":\"overloaded_error\",\"param\":null,\"code\":\"too_many_connections\"}}";

/// Binds one socket of `address`.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A connection counted against its listener's bound.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Accepts until the gateway stops. Connections that were made before and only wait to be accepted are taken still: closing the socket would
/// reset them.
pub(crate) async fn accept(core: Rc<Core>, listener: TcpListener, open: Arc<AtomicUsize>) {
    let mut stop = core.stop.clone();
    let mut stopping = false;
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = std::future::ready(()), if stopping => return,
            _ = stop.wait_for(|phase| phase.is_stopping()), if !stopping => {
                stopping = true;
                continue;
            }
        };
        match accepted {
            Ok((socket, peer)) => {
                let counted = Counted(Arc::clone(&open));
                if open.fetch_add(1, Relaxed) >= core.shared.current.limits().max_connections {
                    tokio::task::spawn_local(refuse(socket, counted));
                    continue;
                }
                // Small events must not wait for more to come.
                let _ = socket.set_nodelay(true);
                let alive = core.alive.clone();
                let core = Rc::clone(&core);
                tokio::task::spawn_local(async move {
                    connection::serve(core, socket, peer.ip()).await;
                    drop((counted, alive));
                });
            }
            Err(error) => {
                // Out of file descriptors, most likely: accepting again at once would only spin.
                tracing::error!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn refuse(mut socket: TcpStream, counted: Counted) {
    let _ = tokio::time::timeout(Duration::from_secs(1), socket.write_all(FULL)).await;
    drop(counted);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_refusal_announces_its_length() {
        let text = std::str::from_utf8(super::FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
    }
}
