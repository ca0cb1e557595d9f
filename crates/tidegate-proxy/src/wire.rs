//! A socket to an endpoint, in clear or by TLS.

use crate::batch::Batched;
use crate::pool::EndpointHandle;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_tls::Reloaded;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// How an endpoint is spoken to by TLS.
#[derive(Clone, Debug)]
pub(crate) struct Secure {
    pub(crate) settings: Arc<Reloaded<ClientConfig>>,
    /// The name its certificate must have.
    pub(crate) name: ServerName<'static>,
}

/// An open socket.
pub(crate) enum Wire {
    Clear(Batched),
    Tls(Box<TlsStream<Batched>>),
}

impl Wire {
    /// Opens one within `timeout`, handshake included. `only_http1` keeps HTTP/2 from being agreed on.
    pub(crate) async fn open(endpoint: &EndpointHandle, timeout: Duration, only_http1: bool) -> io::Result<Self> {
        let open = async {
            let socket = match endpoint.address {
                Some(address) => TcpStream::connect(address).await?,
                None => TcpStream::connect(&endpoint.authority).await?,
            };
            socket.set_nodelay(true)?;
            let socket = Batched::new(socket);
            let Some(secure) = &endpoint.secure else { return Ok(Self::Clear(socket)) };
            let mut settings = secure.settings.current();
            if only_http1 && settings.alpn_protocols.iter().any(|p| p == b"h2") {
                let mut own = ClientConfig::clone(&settings);
                own.alpn_protocols = vec![b"http/1.1".to_vec()];
                settings = Arc::new(own);
            }
            let handshake = TlsConnector::from(settings).connect(secure.name.clone(), socket);
            Ok(Self::Tls(Box::new(Box::pin(handshake).await?)))
        };
        tokio::time::timeout(timeout, open).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Whether both sides agreed on HTTP/2.
    pub(crate) fn agreed_on_http2(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Clear(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Clear(socket) => Pin::new(socket).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Clear(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Clear(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Clear(socket) => socket.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Clear(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }
}
