//! A socket to an endpoint, in clear or by TLS.

use crate::socket::batch::Batched;
use crate::upstream::endpoint_handle::EndpointHandle;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_config::{EndpointTls, EndpointUrl, Pool, Protocol};
use tidegate_tls::{Fault, Reloaded};
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

/// How the endpoints of a pool are spoken to.
#[derive(Clone, Debug)]
pub(crate) struct Spoken {
    pub(crate) protocol: Protocol,
    tls: EndpointTls,
    /// `None` where all are spoken to in clear.
    pub(crate) settings: Option<Arc<Reloaded<ClientConfig>>>,
}

impl Spoken {
    /// As `pool` says; what it has in common with `before` is used on, connections and all.
    ///
    /// # Errors
    /// If its files cannot be used, or an endpoint's name is none.
    pub(crate) fn new(pool: &Pool, before: Option<&Self>) -> Result<Self, Fault> {
        let secure = || pool.endpoints.iter().map(|e| &e.url).filter(|url| url.is_tls());
        for url in secure() {
            tidegate_tls::server_name(&pool.tls, url.host())?;
        }
        let known = before.filter(|b| b.protocol == pool.protocol && b.tls == pool.tls);
        let settings = match known.and_then(|b| b.settings.clone()) {
            None if secure().next().is_some() => Some(Arc::new(tidegate_tls::client(&pool.tls, pool.protocol)?)),
            known => known,
        };
        Ok(Self { protocol: pool.protocol, tls: pool.tls.clone(), settings })
    }

    /// How the endpoint at `url` is spoken to by TLS; `None` in clear.
    pub(crate) fn secure(&self, url: &EndpointUrl) -> Option<Secure> {
        let settings = self.settings.as_ref().filter(|_| url.is_tls())?;
        let name = tidegate_tls::server_name(&self.tls, url.host()).ok()?;
        Some(Secure { settings: Arc::clone(settings), name })
    }
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
