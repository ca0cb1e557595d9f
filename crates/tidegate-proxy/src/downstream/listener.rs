//! Listening sockets: one per core on the same address, so that the kernel spreads connections and no core hands work to another.

use crate::downstream::connection;
use crate::downstream::http2;
use crate::downstream::peer::Peer;
use crate::gateway::Core;
use crate::socket::batch::Batched;
use crate::state::phase::Phase;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tidegate_tls::{Names, Reloaded};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Connections waiting to be accepted, per socket.
const BACKLOG: i32 = 4096;
/// What a client over `limits.max_connections` reads, if it speaks in clear.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 138\r\nconnection: close\r\nretry-after: 1\r\n\r\n{\"error\":{\"message\":\"too many connections (limits.max_connections)\",\"type\":\"overloaded_error\",\"param\":null,\"code\":\"too_many_connections\"}}";
/// What a client over `limits.max_connections_per_address` reads, if it speaks in clear.
const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\ncontent-length: 181\r\nconnection: close\r\nretry-after: 1\r\n\r\n{\"error\":{\"message\":\"too many connections from this address (limits.max_connections_per_address)\",\"type\":\"rate_limit_error\",\"param\":null,\"code\":\"too_many_connections_from_address\"}}";

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

/// A listener as its cores share it.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Connections that are open.
    pub(crate) open: Arc<AtomicUsize>,
    /// How it speaks TLS; `None` in clear.
    pub(crate) secure: Option<Arc<Reloaded<ServerConfig>>>,
}

/// Accepts until the gateway stops. Connections that were made before and only wait to be accepted are taken still: closing the socket would
/// reset them.
pub(crate) async fn accept(core: Rc<Core>, listener: TcpListener, shared: Shared) {
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
            Ok((socket, peer)) => on_accepted(&core, &shared, socket, peer.ip()),
            Err(error) => {
                // Out of file descriptors, most likely: accepting again at once would only spin.
                tracing::error!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn on_accepted(core: &Rc<Core>, shared: &Shared, socket: TcpStream, address: IpAddr) {
    let counted = Counted(Arc::clone(&shared.open));
    let words = shared.secure.is_none();
    if shared.open.fetch_add(1, Relaxed) >= core.shared.current.limits().max_connections {
        tokio::task::spawn_local(refuse(socket, words.then_some(FULL), counted));
        return;
    }
    let Ok(of_address) = core.shared.addresses.count(address) else {
        tokio::task::spawn_local(refuse(socket, words.then_some(TOO_MANY), counted));
        return;
    };
    // Small events must not wait for more to come.
    let _ = socket.set_nodelay(true);
    let (core, alive) = (Rc::clone(core), core.alive.clone());
    match shared.secure.as_ref().map(|s| s.current()) {
        None => drop(tokio::task::spawn_local(async move {
            connection::serve(core, Batched::new(socket), Rc::new(Peer::clear(address))).await;
            drop((counted, of_address, alive));
        })),
        Some(settings) => drop(tokio::task::spawn_local(async move {
            serve_tls(core, socket, address, settings).await;
            drop((counted, of_address, alive));
        })),
    }
}

/// Shakes hands, and serves what was agreed on.
async fn serve_tls(core: Rc<Core>, socket: TcpStream, address: IpAddr, settings: Arc<ServerConfig>) {
    let handshake = Box::pin(TlsAcceptor::from(settings).accept(Batched::new(socket)));
    let in_time = tokio::time::timeout(core.shared.current.limits().handshake_timeout, handshake);
    let mut stop = core.stop.clone();
    let shaken = tokio::select! {
        shaken = in_time => shaken,
        // Nothing was asked yet: nothing is lost.
        _ = stop.wait_for(|phase| *phase >= Phase::Closing) => return,
    };
    let stream = match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(client = %address, %error, "TLS handshake failed");
            return;
        }
        Err(_) => {
            tracing::debug!(client = %address, "TLS handshake took too long");
            return;
        }
    };
    let session = stream.get_ref().1;
    let names = session.peer_certificates().and_then(|chain| Names::of(chain.first()?));
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let peer = Rc::new(Peer::new(address, true, names));
    if is_http2 {
        Box::pin(http2::serve(core, Box::new(stream), peer)).await;
    } else {
        Box::pin(connection::serve(core, stream, peer)).await;
    }
}

async fn refuse(mut socket: TcpStream, words: Option<&'static [u8]>, counted: Counted) {
    let _ = tokio::time::timeout(Duration::from_secs(1), socket.write_all(words.unwrap_or_default())).await;
    drop(counted);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_refusal_announces_its_length() {
        for refusal in [super::FULL, super::TOO_MANY] {
            let text = std::str::from_utf8(refusal).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
        }
    }
}
