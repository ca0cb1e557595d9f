//! A client that speaks HTTP/2, frame by frame where it has to.

use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// One connection. Clones share it.
#[derive(Clone)]
pub(crate) struct H2(SendRequest<Bytes>);

impl H2 {
    /// By prior knowledge.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.expect("the gateway listens")).await
    }

    /// On a socket that is open.
    pub(crate) async fn over<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(socket: T) -> Self {
        let (client, connection) = h2::client::handshake(socket).await.expect("speaks HTTP/2");
        tokio::spawn(async move { drop(connection.await) });
        Self(client.ready().await.expect("ready"))
    }

    /// Sends a head, and leaves the body to the caller.
    pub(crate) async fn begin(&mut self, request: Request<()>, ends: bool) -> (ResponseFuture, SendStream<Bytes>) {
        let mut ready = self.0.clone().ready().await.expect("a stream");
        ready.send_request(request, ends).expect("sent")
    }

    /// Sends a request and reads all of its answer.
    pub(crate) async fn ask(&mut self, request: Request<&'static str>) -> Answer {
        let (head, body) = request.into_parts();
        let (response, mut stream) = self.begin(Request::from_parts(head, ()), body.is_empty()).await;
        if !body.is_empty() {
            stream.send_data(Bytes::from_static(body.as_bytes()), true).expect("sent");
        }
        Answer::read(response.await.expect("an answer")).await.expect("a whole answer")
    }

    pub(crate) async fn get(&mut self, uri: &str) -> Answer {
        self.ask(Request::get(uri).body("").expect("a request")).await
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) async fn read(response: Response<RecvStream>) -> Result<Self, h2::Error> {
        let (head, mut stream) = response.into_parts();
        let mut body = BytesMut::new();
        while let Some(data) = stream.data().await {
            let data = data?;
            stream.flow_control().release_capacity(data.len())?;
            body.extend_from_slice(&data);
        }
        let trailers = stream.trailers().await?;
        Ok(Self { status: head.status.as_u16(), headers: head.headers, body: body.freeze(), trailers })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
