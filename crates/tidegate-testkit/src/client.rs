//! A client that sends raw bytes and reads one answer at a time.

use crate::PATIENCE;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// One connection.
pub struct Client {
    socket: TcpStream,
    buffer: Vec<u8>,
}

/// One answer.
#[derive(Debug)]
pub struct Reply {
    /// Status.
    pub status: u16,
    /// Head as it came.
    pub head: String,
    /// Body, chunked coding removed.
    pub body: Vec<u8>,
}

impl Reply {
    /// The value of a header by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|l| l.split_once(':'));
        lines.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.expect("the gateway listens");
        socket.set_nodelay(true).expect("a socket takes nodelay");
        Self { socket, buffer: Vec::new() }
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, raw: impl AsRef<[u8]>) {
        self.socket.write_all(raw.as_ref()).await.expect("the gateway reads");
    }

    /// Sends a request with a body of known length.
    pub async fn post(&mut self, path: &str, headers: &str, body: &str) {
        let n = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {n}\r\n{headers}\r\n");
        self.send(head + body).await;
    }

    /// Sends a GET.
    pub async fn get(&mut self, path: &str, headers: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n{headers}\r\n")).await;
    }

    /// Reads more bytes; false at the end of the connection.
    async fn fill(&mut self) -> bool {
        let read = timeout(PATIENCE, self.socket.read_buf(&mut self.buffer)).await.expect("an answer in time");
        read.is_ok_and(|n| n > 0)
    }

    /// Reads until `wanted` stands in what has come and was not taken yet; takes and returns all up to its end.
    pub async fn read_until(&mut self, wanted: &str) -> String {
        loop {
            if let Some(at) = find(&self.buffer, wanted.as_bytes()) {
                let taken: Vec<u8> = self.buffer.drain(..at + wanted.len()).collect();
                return String::from_utf8_lossy(&taken).into_owned();
            }
            assert!(self.fill().await, "closed before {wanted:?}; had {:?}", String::from_utf8_lossy(&self.buffer));
        }
    }

    /// Whether the peer closes the connection without another byte.
    pub async fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && !self.fill().await
    }

    /// Reads everything until the peer closes.
    pub async fn read_to_end(&mut self) -> Vec<u8> {
        while self.fill().await {}
        std::mem::take(&mut self.buffer)
    }

    /// Reads one answer to a request that was not HEAD. `Err` with what came of the body if it broke off.
    pub async fn try_reply(&mut self) -> Result<Reply, Vec<u8>> {
        let head = self.read_until("\r\n\r\n").await;
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status line");
        let mut reply = Reply { status, head, body: Vec::new() };
        if let Some(n) = reply.header("content-length").map(|v| v.parse::<usize>().expect("a length")) {
            while self.buffer.len() < n {
                if !self.fill().await {
                    return Err(std::mem::take(&mut self.buffer));
                }
            }
            reply.body = self.buffer.drain(..n).collect();
        } else if reply.header("transfer-encoding").is_some() {
            reply.body = self.chunked().await?;
        }
        Ok(reply)
    }

    /// Reads one whole answer to a request that was not HEAD.
    pub async fn reply(&mut self) -> Reply {
        self.try_reply()
            .await
            .unwrap_or_else(|had| panic!("the answer broke off after {:?}", String::from_utf8_lossy(&had)))
    }

    /// Reads the next chunk of a chunked body; `None` is the last, `Err` a broken one.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ()> {
        let line = loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                break self.buffer.drain(..at + 2).collect::<Vec<u8>>();
            }
            if !self.fill().await {
                return Err(());
            }
        };
        let size = String::from_utf8_lossy(&line);
        let n = usize::from_str_radix(size.trim().split(';').next().unwrap_or_default(), 16).expect("a chunk size");
        while self.buffer.len() < n + 2 {
            if !self.fill().await {
                return Err(());
            }
        }
        let data: Vec<u8> = self.buffer.drain(..n + 2).take(n).collect();
        Ok((n > 0).then_some(data))
    }

    async fn chunked(&mut self) -> Result<Vec<u8>, Vec<u8>> {
        let mut body = Vec::new();
        loop {
            match self.chunk().await {
                Ok(Some(data)) => body.extend(data),
                Ok(None) => return Ok(body),
                Err(()) => return Err(body),
            }
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}
