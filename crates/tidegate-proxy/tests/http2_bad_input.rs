//! What would be another request once written as HTTP/1.1 never reaches an endpoint.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests: a failed expectation is a failed test")]

mod common;

use common::Running;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tidegate_testkit::{PATIENCE, Scripted};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// A frame of RFC 9113, 4.1.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header field as HPACK writes it when it compresses nothing.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| vec![u8::try_from(text.len()).expect("short")];
    [vec![0], length(name), name.as_bytes().to_vec(), length(value), value.as_bytes().to_vec()].concat()
}

/// What the gateway says to a request of these fields and this body: the status, or `None` if it resets the stream or closes.
async fn ask(t: &Running, fields: &[(&str, &str)], body: &str) -> Option<u16> {
    let mut socket = TcpStream::connect(t.address()).await.unwrap();
    socket.write_all(PREFACE).await.unwrap();
    let head: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    let ends = u8::from(body.is_empty());
    socket.write_all(&frame(1, 4 | ends, 1, &head)).await.unwrap();
    if !body.is_empty() {
        socket.write_all(&frame(0, 1, 1, body.as_bytes())).await.unwrap();
    }
    let mut had = Vec::new();
    let told = async {
        loop {
            let (mut at, mut said) = (0, None);
            while had.len() >= at + 9 {
                let frame: &[u8] = &had[at..];
                let size = usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2]);
                if frame.len() < 9 + size {
                    break;
                }
                match frame[3] {
                    // HEADERS: the status comes first, from HPACK's static table (8 is 200, 12 is 400) or as three digits behind it.
                    1 => said = Some(Some(status(&frame[9..9 + size]))),
                    // RST_STREAM and GOAWAY.
                    3 | 7 => said = said.or(Some(None)),
                    _ => {}
                }
                at += 9 + size;
            }
            if let Some(said) = said {
                return said;
            }
            if !socket.read_buf(&mut had).await.is_ok_and(|n| n > 0) {
                return None;
            }
        }
    };
    timeout(PATIENCE, told).await.expect("an answer or a reset")
}

fn status(block: &[u8]) -> u16 {
    // A new size of the dynamic table may stand in front.
    let block = if block[0] & 0xe0 == 0x20 { &block[1..] } else { block };
    match block[0] {
        0x88 => 200,
        0x8c => 400,
        0x8d => 404,
        _ => 0,
    }
}

#[tokio::test]
async fn smuggling_vectors_never_reach_an_endpoint() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let endpoint = Scripted::start(move |mut c| {
        let count = Arc::clone(&count);
        async move {
            while c.request().await.is_some() {
                count.fetch_add(1, Relaxed);
                c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let post = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "t")];
    let with = |more: &[(&'static str, &'static str)]| [&post[..], more].concat();
    assert_eq!(ask(&t, &post, "hello").await, Some(200), "a good one passes");
    assert_eq!(ask(&t, &with(&[("content-length", "5"), ("te", "trailers")]), "hello").await, Some(200));
    assert_eq!(asked.swap(0, Relaxed), 2);
    for (what, fields) in [
        ("a coding", with(&[("transfer-encoding", "chunked")])),
        ("a hop's header", with(&[("connection", "close")])),
        ("an upgrade", with(&[("upgrade", "websocket")])),
        ("a line break in a value", with(&[("x-a", "1\r\nx-b: 2")])),
        ("a NUL in a value", with(&[("x-a", "1\0")])),
        ("a colon in a name", with(&[("x-a: 1\r\nx-b", "2")])),
        ("capitals in a name", with(&[("X-Upper", "1")])),
        ("a space in a name", with(&[("x a", "1")])),
        ("a length that is not the body's", with(&[("content-length", "4")])),
        ("a length that is no number", with(&[("content-length", "+5")])),
        ("two lengths", with(&[("content-length", "5"), ("content-length", "6")])),
        ("another host", with(&[("host", "other")])),
        ("a te that is not ours", with(&[("te", "gzip")])),
        ("two paths", with(&[(":path", "/other")])),
        ("a path behind the headers", [&post[..2], &[("x-a", "1")], &post[2..]].concat()),
        ("a path with a line break", [&post[..2], &[(":path", "/ HTTP/1.1\r\nx: y")], &post[3..]].concat()),
        ("a path that is none", [&post[..2], &[(":path", "other")], &post[3..]].concat()),
        ("no path", [&post[..2], &post[3..]].concat()),
        ("no method", post[1..].to_vec()),
        ("a method with a space", [&[(":method", "GET /x HTTP/1.1\r\n")], &post[1..]].concat()),
        ("no host", post[..3].to_vec()),
    ] {
        let said = ask(&t, &fields, "hello").await;
        assert!(said != Some(200), "{what}: {said:?}");
        assert_eq!(asked.swap(0, Relaxed), 0, "{what} reached the endpoint");
    }
}
