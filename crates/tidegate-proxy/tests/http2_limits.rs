//! Bounds on HTTP/2 connections: each keeps one client from costing more than it should.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests: a failed expectation is a failed test")]

mod common;

use common::Running;
use common::h2_client::H2;
use http::Request;
use tidegate_testkit::{PATIENCE, Scripted, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
/// `:method: GET`, `:scheme: http`, `:path: /` of HPACK's static table, and `:authority: t`.
const HEADERS: &[u8] = &[0x82, 0x86, 0x84, 0x01, 0x01, b't'];

/// A frame of RFC 9113, 4.1.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Whether the gateway closes, whatever it says before.
async fn is_closed(socket: &mut TcpStream) -> bool {
    let mut sink = [0; 4096];
    let gone = async { while socket.read(&mut sink).await.is_ok_and(|n| n > 0) {} };
    timeout(PATIENCE, gone).await.is_ok()
}

async fn silent() -> Scripted {
    Scripted::start(|mut c| async move {
        let _ = c.request().await;
        c.closed().await;
    })
    .await
}

fn with_limits(endpoint: &Scripted, limits: &str) -> Running {
    Running::with(&[endpoint.url()], "policy: round_robin", &format!("limits: {{ {limits} }}"))
}

#[tokio::test]
async fn streams_at_once_are_bounded() {
    let endpoint = silent().await;
    let t = with_limits(&endpoint, "http2: { max_concurrent_streams: 2 }");
    let mut socket = TcpStream::connect(t.address()).await.unwrap();
    socket.write_all(PREFACE).await.unwrap();
    for stream in [1, 3, 5] {
        socket.write_all(&frame(1, 5, stream, HEADERS)).await.unwrap();
    }
    // RST_STREAM of stream 5: REFUSED_STREAM (7).
    let wanted = frame(3, 0, 5, &[0, 0, 0, 7]);
    let mut had = Vec::new();
    let told = async {
        while !had.windows(wanted.len()).any(|w| w == wanted) {
            assert!(socket.read_buf(&mut had).await.unwrap() > 0, "closed");
        }
    };
    timeout(PATIENCE, told).await.expect("the third stream is refused");
    eventually("two are served", || t.in_flight() == 2).await;
}

/// Whether the connection still answers a PING.
async fn is_alive(socket: &mut TcpStream) -> bool {
    let ping = frame(6, 0, 0, b"is-there");
    let _ = socket.write_all(&ping).await;
    let pong = frame(6, 1, 0, b"is-there");
    let mut had = Vec::new();
    let told = async {
        while !had.windows(pong.len()).any(|w| w == pong) {
            if !socket.read_buf(&mut had).await.is_ok_and(|n| n > 0) {
                return false;
            }
        }
        true
    };
    timeout(PATIENCE, told).await.expect("an answer or an end")
}

#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let endpoint = silent().await;
    for (bound, lives) in [(5, false), (1000, true)] {
        let t = with_limits(&endpoint, &format!("http2: {{ max_pending_resets: {bound} }}"));
        let mut socket = TcpStream::connect(t.address()).await.unwrap();
        let mut flood = PREFACE.to_vec();
        for n in 0..50 {
            flood.extend(frame(1, 5, 2 * n + 1, HEADERS));
            flood.extend(frame(3, 0, 2 * n + 1, &[0, 0, 0, 8]));
        }
        socket.write_all(&flood).await.unwrap();
        assert_eq!(is_alive(&mut socket).await, lives, "{bound}");
        eventually("nothing of it is left", || t.in_flight() == 0).await;
    }
}

#[tokio::test]
async fn faults_of_streams_end_the_connection_when_they_are_too_many() {
    let endpoint = silent().await;
    for (bound, lives) in [(3, false), (1000, true)] {
        let t = with_limits(&endpoint, &format!("http2: {{ max_error_resets: {bound} }}"));
        let mut socket = TcpStream::connect(t.address()).await.unwrap();
        let mut faults = PREFACE.to_vec();
        for n in 0..8 {
            // A head, and then a window that grows beyond what RFC 9113, 6.9.1 allows: a fault of the stream.
            faults.extend(frame(1, 5, 2 * n + 1, HEADERS));
            faults.extend(frame(8, 0, 2 * n + 1, &[0x7f, 0xff, 0xff, 0xff]));
        }
        socket.write_all(&faults).await.unwrap();
        assert_eq!(is_alive(&mut socket).await, lives, "{bound}");
    }
}

#[tokio::test]
async fn a_flood_of_continuations_ends_the_connection() {
    let endpoint = silent().await;
    let t = with_limits(&endpoint, "max_header_bytes: 8KiB");
    let mut socket = TcpStream::connect(t.address()).await.unwrap();
    socket.write_all(PREFACE).await.unwrap();
    // HEADERS without END_HEADERS, and CONTINUATION frames that never end it.
    socket.write_all(&frame(1, 1, 1, HEADERS)).await.unwrap();
    let mut value = vec![0x00, 0x01, b'x', 0x7f, 0x81, 0x07];
    value.extend([b'a'; 1024]);
    let more = frame(9, 0, 1, &value);
    for _ in 0..100_000 {
        if socket.write_all(&more).await.is_err() {
            break;
        }
    }
    assert!(is_closed(&mut socket).await);
    assert_eq!(t.in_flight(), 0);
}

#[tokio::test]
async fn headers_larger_than_the_bound_are_a_431() {
    let endpoint = silent().await;
    let t = with_limits(&endpoint, "max_header_bytes: 8KiB");
    let mut client = H2::connect(t.address()).await;
    let request = Request::get("http://t/").header("x-large", "a".repeat(9000)).body(()).unwrap();
    let (response, _) = client.begin(request, true).await;
    assert_eq!(response.await.unwrap().status(), 431);
    assert_eq!(t.in_flight(), 0);
}

#[tokio::test]
async fn what_a_client_may_send_ahead_is_told_to_it() {
    let endpoint = silent().await;
    let limits =
        "max_header_bytes: 8KiB, http2: { stream_window: 32KiB, connection_window: 96KiB, max_concurrent_streams: 7 }";
    let t = with_limits(&endpoint, limits);
    let mut socket = TcpStream::connect(t.address()).await.unwrap();
    socket.write_all(PREFACE).await.unwrap();
    let window = frame(8, 0, 0, &(96u32 * 1024 - 65_535).to_be_bytes());
    let mut had = Vec::new();
    let told = async {
        while !had.windows(window.len()).any(|w| w == window) {
            assert!(socket.read_buf(&mut had).await.unwrap() > 0, "closed");
        }
    };
    timeout(PATIENCE, told).await.expect("the connection's window");
    // SETTINGS of RFC 9113, 6.5.2: streams at once, the window of each, the size of a head.
    for (setting, value) in [(3u16, 7u32), (4, 32 << 10), (6, 8 << 10)] {
        let wanted = [&setting.to_be_bytes()[..], &value.to_be_bytes()].concat();
        assert!(had.windows(wanted.len()).any(|w| w == wanted), "{setting}");
    }
}

#[tokio::test]
async fn a_client_that_answers_no_ping_is_gone() {
    let endpoint = silent().await;
    let t = with_limits(&endpoint, "http2: { ping_interval: 50ms, ping_timeout: 100ms }");
    let mut socket = TcpStream::connect(t.address()).await.unwrap();
    socket.write_all(PREFACE).await.unwrap();
    socket.write_all(&frame(1, 5, 1, HEADERS)).await.unwrap();
    eventually("it is in flight", || t.in_flight() == 1).await;
    assert!(is_closed(&mut socket).await);
    eventually("its request is cancelled", || t.in_flight() == 0 && t.outcomes() == ["cancelled"]).await;
}

#[tokio::test]
async fn an_idle_client_is_asked_to_leave_and_a_deaf_one_is_left() {
    let endpoint = silent().await;
    let t = with_limits(&endpoint, "idle_timeout: 100ms, header_timeout: 200ms, http2: { ping_interval: off }");
    // One that understands: it is told by GOAWAY, and goes.
    let socket = TcpStream::connect(t.address()).await.unwrap();
    let (client, connection) = h2::client::handshake(socket).await.unwrap();
    timeout(PATIENCE, connection).await.expect("it is asked to leave").unwrap();
    drop(client);
    // One that says nothing after its preface, and one that leaves a head unfinished.
    for rest in [Vec::new(), frame(1, 1, 1, HEADERS)] {
        let mut socket = TcpStream::connect(t.address()).await.unwrap();
        socket.write_all(PREFACE).await.unwrap();
        socket.write_all(&rest).await.unwrap();
        assert!(is_closed(&mut socket).await);
    }
}
