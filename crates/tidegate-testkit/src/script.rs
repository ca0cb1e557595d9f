//! An endpoint that does what a test says.

use crate::PATIENCE;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A running endpoint. Dropping it refuses further connections and ends those it has.
pub struct Scripted {
    /// Where it listens.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// One connection of an endpoint, from its side.
pub struct Conversation {
    socket: TcpStream,
    buffer: Vec<u8>,
    /// Which connection of the endpoint it is, from 1.
    pub number: usize,
}

/// A request as the endpoint got it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Request line and headers as they came.
    pub head: String,
    /// Body; chunked coding is left as it came.
    pub body: Vec<u8>,
}

impl Asked {
    /// The value of a header by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|l| l.split_once(':'))
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.trim())
    }
}

impl Scripted {
    /// Starts an endpoint that runs `script` once per connection.
    pub async fn start<F, R>(script: F) -> Self
    where
        F: Fn(Conversation) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            let mut running = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let number = count.fetch_add(1, Relaxed) + 1;
                running.spawn(script(Conversation { socket, buffer: Vec::new(), number }));
            }
        });
        Self { address, connections, task }
    }

    /// An endpoint that answers every request with `body` and its own name in `x-name`.
    pub async fn answering(name: &'static str, body: &'static str) -> Self {
        Self::start(move |mut c| async move {
            while let Some(_asked) = c.request().await {
                let n = body.len();
                c.send(format!("HTTP/1.1 200 OK\r\nx-name: {name}\r\ncontent-length: {n}\r\n\r\n{body}")).await;
            }
        })
        .await
    }

    /// An address that refuses connections.
    pub async fn refusing() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        listener.local_addr().expect("bound")
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Conversation {
    /// The next request, `None` when the gateway closes.
    pub async fn request(&mut self) -> Option<Asked> {
        let head_end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.fill().await {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&self.buffer.drain(..head_end).collect::<Vec<u8>>()).into_owned();
        let mut asked = Asked { head, body: Vec::new() };
        if let Some(n) = asked.header("content-length").and_then(|v| v.parse::<usize>().ok()) {
            while self.buffer.len() < n {
                if !self.fill().await {
                    return None;
                }
            }
            asked.body = self.buffer.drain(..n).collect();
        } else if asked.header("transfer-encoding").is_some() {
            let end = loop {
                if let Some(end) = end_of_chunks(&self.buffer) {
                    break end;
                }
                if !self.fill().await {
                    return None;
                }
            };
            asked.body = self.buffer.drain(..end).collect();
        }
        Some(asked)
    }

    async fn fill(&mut self) -> bool {
        self.socket.read_buf(&mut self.buffer).await.is_ok_and(|n| n > 0)
    }

    /// Reads what comes next, as it comes, into `heard`; false when the gateway has no more to say.
    pub async fn hear(&mut self, heard: &mut Vec<u8>) -> bool {
        if self.buffer.is_empty() && !self.fill().await {
            return false;
        }
        heard.append(&mut self.buffer);
        true
    }

    /// Sends bytes as they are; a gateway that has gone is no error.
    pub async fn send(&mut self, raw: impl AsRef<[u8]>) {
        let _ = self.socket.write_all(raw.as_ref()).await;
    }

    /// Sends one chunk of a chunked body.
    pub async fn send_chunk(&mut self, data: &str) {
        self.send(format!("{:x}\r\n{data}\r\n", data.len())).await;
    }

    /// Waits until the gateway closes this connection.
    ///
    /// # Panics
    /// If it does not in time.
    pub async fn closed(&mut self) {
        let gone = async { while self.fill().await {} };
        timeout(PATIENCE, gone).await.expect("the gateway closes the connection");
    }
}

/// Where a chunked body ends, trailers included.
fn end_of_chunks(buffer: &[u8]) -> Option<usize> {
    let find =
        |from: usize, what: &[u8]| buffer[from..].windows(what.len()).position(|w| w == what).map(|at| from + at);
    let last = if buffer.starts_with(b"0\r\n") { 0 } else { find(0, b"\r\n0\r\n")? + 2 };
    Some(find(last + 1, b"\r\n\r\n")? + 4)
}
