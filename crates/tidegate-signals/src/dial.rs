//! How a connection is made; tests make theirs in memory, where time can be paused.

use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};
use tidegate_config::{EndpointTls, EndpointUrl, Pool, Protocol};
use tidegate_tls::{Fault, Reloaded};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

/// Opens connections to endpoints.
pub(crate) trait Dial: Send + Sync + 'static {
    /// An open connection.
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Whether HTTP/2 is spoken on it, and not HTTP/1.1.
    fn is_http2(&self) -> bool {
        false
    }

    /// The way to pages beside the endpoints, which speak HTTP/1.1 whatever the engines do.
    fn beside(self: &Arc<Self>) -> Arc<Self>;

    /// Opens one. Dropping the future gives up.
    fn dial(&self, url: &EndpointUrl) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

/// An open connection, in clear or by TLS.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// TCP, and TLS where the URL says so; names resolved by the system each time: an engine that moved is found again.
#[derive(Debug, Default)]
pub(crate) struct Tcp {
    tls: EndpointTls,
    is_http2: bool,
    /// Made when first needed: most pools are spoken to in clear.
    settings: OnceLock<Result<Reloaded<ClientConfig>, Fault>>,
}

impl Tcp {
    /// As a pool's endpoints are spoken to.
    pub(crate) fn to(pool: &Pool) -> Self {
        Self { tls: pool.tls.clone(), is_http2: pool.protocol == Protocol::H2, settings: OnceLock::new() }
    }

    fn settings(&self) -> io::Result<Arc<ClientConfig>> {
        let protocol = if self.is_http2 { Protocol::H2 } else { Protocol::Http1 };
        let made = self.settings.get_or_init(|| tidegate_tls::client(&self.tls, protocol));
        let settings = made.as_ref().map_err(|fault| io::Error::other(fault.clone()))?;
        // Files that changed and cannot be used leave the ones before; the data plane says so.
        let _ = settings.refresh();
        Ok(settings.current())
    }
}

impl Dial for Tcp {
    type Io = Box<dyn Socket>;

    fn is_http2(&self) -> bool {
        self.is_http2
    }

    fn beside(self: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { tls: self.tls.clone(), ..Self::default() })
    }

    async fn dial(&self, url: &EndpointUrl) -> io::Result<Box<dyn Socket>> {
        let socket = TcpStream::connect((url.host(), url.port())).await?;
        socket.set_nodelay(true)?;
        if !url.is_tls() {
            return Ok(Box::new(socket));
        }
        let name = tidegate_tls::server_name(&self.tls, url.host()).map_err(io::Error::other)?;
        let handshake = TlsConnector::from(self.settings()?).connect(name, socket);
        Ok(Box::new(Box::pin(handshake).await?))
    }
}
