//! A small HTTP client for one endpoint (HTTP/1.1, or HTTP/2 where its pool says so): GET only, one kept connection, bounded answers.
//!
//! Not the data plane's client: probes share no connection, no pool and no limit with requests, so that they measure the engine and not
//! the gateway's own queue.

use crate::dial::Dial;
use crate::miss::Miss;
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, HOST, USER_AGENT};
use http::{HeaderValue, Request, Response, Version};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;
use tidegate_config::EndpointUrl;
use tokio::task::JoinHandle;

/// Bound on the head of an answer, in bytes.
const LIMIT_HEAD_BYTES: usize = 16 << 10;

/// Asks one endpoint, one question at a time.
pub(crate) struct Client<D> {
    dial: Arc<D>,
    url: EndpointUrl,
    host: HeaderValue,
    kept: Option<Connection>,
}

/// An open connection and the task that drives it.
struct Connection {
    sender: Sender,
    task: JoinHandle<()>,
}

enum Sender {
    Http1(SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Sender {
    async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Self::Http1(sender) => sender.ready().await,
            Self::Http2(sender) => sender.ready().await,
        }
    }

    async fn send(&mut self, request: Request<Empty<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => sender.send_request(request).await,
            Self::Http2(sender) => sender.send_request(request).await,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Without this a connection whose answer never comes would outlive the question.
        self.task.abort();
    }
}

impl<D: Dial> Client<D> {
    pub(crate) fn new(dial: Arc<D>, url: EndpointUrl) -> Self {
        // An authority of letters, digits, dots and brackets is always a header value.
        let host = HeaderValue::try_from(url.authority()).unwrap_or(HeaderValue::from_static("localhost"));
        Self { dial, url, host, kept: None }
    }

    pub(crate) fn url(&self) -> &EndpointUrl {
        &self.url
    }

    /// Opens a connection and closes it.
    pub(crate) async fn knock(&self) -> Result<(), Miss> {
        self.dial.dial(&self.url).await.map(drop).map_err(Miss::Connect)
    }

    /// The head of the answer to a GET of `path`. Dropping the future closes the connection.
    pub(crate) async fn head(&mut self, path: &str) -> Result<Response<Incoming>, Miss> {
        if let Some(mut connection) = self.kept.take() {
            // The engine may have closed an idle connection at any moment; that says nothing about its health. A fresh one decides.
            if connection.sender.ready().await.is_ok()
                && let Ok(response) = connection.sender.send(self.request(path)?).await
            {
                self.kept = Some(connection);
                return Ok(response);
            }
        }
        let mut connection = self.connect().await?;
        let response = connection.sender.send(self.request(path)?).await.map_err(Miss::Http)?;
        self.kept = Some(connection);
        Ok(response)
    }

    /// The body of an answer with success, in no coding.
    pub(crate) async fn page(&mut self, response: Response<Incoming>, limit_bytes: usize) -> Result<Bytes, Miss> {
        let status = response.status();
        let coding =
            response.headers().get(CONTENT_ENCODING).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
        let body = self.body(response.into_body(), limit_bytes).await?;
        if !status.is_success() {
            return Err(Miss::Status(status.as_u16()));
        }
        match coding.filter(|coding| !coding.trim().eq_ignore_ascii_case("identity")) {
            Some(coding) => Err(Miss::Encoded(coding)),
            None => Ok(body),
        }
    }

    /// The body of an answer, at most `limit_bytes` of it. A connection whose answer was not read to its end is not used again.
    pub(crate) async fn body(&mut self, body: Incoming, limit_bytes: usize) -> Result<Bytes, Miss> {
        let connection = self.kept.take();
        let whole = Limited::new(body, limit_bytes).collect().await.map_err(|error| match error.downcast() {
            Ok(error) => Miss::Http(*error),
            Err(_) => Miss::TooLarge(limit_bytes),
        })?;
        self.kept = connection;
        Ok(whole.to_bytes())
    }

    /// The page at `path`, at most `limit_bytes` long.
    ///
    /// # Errors
    /// If there is none, or what answers is no success or encoded.
    pub(crate) async fn get(&mut self, path: &str, limit_bytes: usize) -> Result<Bytes, Miss> {
        let response = self.head(path).await?;
        self.page(response, limit_bytes).await
    }

    /// Closes the connection, if one is open.
    pub(crate) fn close(&mut self) {
        self.kept = None;
    }

    fn request(&self, path: &str) -> Result<Request<Empty<Bytes>>, Miss> {
        // HTTP/2 names scheme and host beside the path.
        let request = if self.dial.is_http2() {
            Request::get(format!("{}{path}", self.url)).version(Version::HTTP_2)
        } else {
            Request::get(path).header(HOST, &self.host)
        };
        let request = request
            .header(USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "*/*")
            .header(ACCEPT_ENCODING, "identity")
            .body(Empty::new());
        // The config takes only paths that are paths; were one not, the endpoint could not be asked.
        request.map_err(|error| Miss::Connect(std::io::Error::new(std::io::ErrorKind::InvalidInput, error)))
    }

    async fn connect(&self) -> Result<Connection, Miss> {
        let io = self.dial.dial(&self.url).await.map_err(Miss::Connect)?;
        // Errors of the driver come out at the sender, where somebody asks.
        if self.dial.is_http2() {
            let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await;
            let (sender, driver) = handshake.map_err(Miss::Http)?;
            let task = tokio::spawn(async move { drop(driver.await) });
            return Ok(Connection { sender: Sender::Http2(sender), task });
        }
        let handshake = http1::Builder::new().max_buf_size(LIMIT_HEAD_BYTES).handshake(TokioIo::new(io)).await;
        let (sender, driver) = handshake.map_err(Miss::Http)?;
        let task = tokio::spawn(async move { drop(driver.await) });
        Ok(Connection { sender: Sender::Http1(sender), task })
    }
}
