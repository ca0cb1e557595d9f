//! A client that sends bytes and shows what came.

use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A whole answer.
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Self { status: status(head), head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|l| l.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Reply {
    send(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")).await
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &str) -> Reply {
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json");
    send(address, &format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await
}

/// Sends a request whose answer ends with the connection.
pub(crate) async fn send(address: SocketAddr, request: &str) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // An answer may come before the whole request was read.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    Reply::parse(std::str::from_utf8(&bytes).unwrap())
}

/// An answer without end.
pub(crate) struct Stream {
    stream: TcpStream,
    head: String,
    held: String,
}

impl Stream {
    pub(crate) async fn open(address: SocketAddr, path: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut new = Self { stream, head: String::new(), held: String::new() };
        new.head = new.until("\r\n\r\n").await;
        new
    }

    pub(crate) fn status(&self) -> u16 {
        status(&self.head)
    }

    /// The next event, without its chunk's framing.
    pub(crate) async fn next_event(&mut self) -> String {
        let event = self.until("\n\n").await;
        event[event.find("event:").unwrap()..].to_owned()
    }

    /// Whether the connection ends.
    pub(crate) async fn ends(&mut self) -> bool {
        let mut rest = Vec::new();
        // An abrupt end is one too.
        let _ = self.stream.read_to_end(&mut rest).await;
        true
    }

    async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.held.find(end) {
                return self.held.drain(..at + end.len()).collect();
            }
            let mut bytes = [0; 4096];
            let n = self.stream.read(&mut bytes).await.unwrap();
            assert!(n > 0, "closed after {}", self.held);
            self.held.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
        }
    }
}
