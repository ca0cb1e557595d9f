//! How a connection is made; tests make theirs in memory, where time can be paused.

use std::future::Future;
use std::io;
use tidegate_config::EndpointUrl;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Opens connections to endpoints.
pub(crate) trait Dial: Send + Sync + 'static {
    /// An open connection.
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Opens one. Dropping the future gives up.
    fn dial(&self, url: &EndpointUrl) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

/// TCP, names resolved by the system each time: an engine that moved is found again.
#[derive(Debug)]
pub(crate) struct Tcp;

impl Dial for Tcp {
    type Io = TcpStream;

    async fn dial(&self, url: &EndpointUrl) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((url.host(), url.port())).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
