//! An engine that speaks HTTP/2, in clear or by TLS, and knows what gRPC looks like.

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// A running engine. Dropping it ends it and its connections.
pub(crate) struct Engine {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Engine {
    /// Runs `answer` once per request; at most `streams` at once on a connection.
    pub(crate) async fn start<F, R>(tls: Option<Arc<ServerConfig>>, streams: u32, answer: F) -> Self
    where
        F: Fn(Request<RecvStream>, SendResponse<Bytes>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            let mut running = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                let (tls, answer) = (tls.clone(), answer.clone());
                running.spawn(async move {
                    match tls {
                        None => serve(socket, streams, answer).await,
                        Some(tls) => {
                            if let Ok(stream) = TlsAcceptor::from(tls).accept(socket).await {
                                serve(stream, streams, answer).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, connections, task }
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }
}

async fn serve<T, F, R>(socket: T, streams: u32, answer: F)
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Request<RecvStream>, SendResponse<Bytes>) -> R,
    R: Future<Output = ()> + Send + 'static,
{
    let built = h2::server::Builder::new().max_concurrent_streams(streams).handshake(socket).await;
    let Ok(mut connection) = built else { return };
    let mut running = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        running.spawn(answer(request, respond));
    }
}

/// All of a body, and what stands behind it.
pub(crate) async fn whole(mut body: RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut read = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        read.extend_from_slice(&data);
    }
    (read, body.trailers().await.ok().flatten())
}

/// Answers `body`.
pub(crate) fn say(mut respond: SendResponse<Bytes>, body: String) {
    if let Ok(mut stream) = respond.send_response(Response::new(()), false) {
        let _ = stream.send_data(body.into(), true);
    }
}
