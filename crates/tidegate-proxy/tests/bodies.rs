//! Bodies: trailers, answers that come early or have no body, uploads larger than what is held, and clients that close their half.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests: a failed expectation is a failed test")]

mod common;

use bytes::Bytes;
use common::h2_client::{Answer, H2};
use common::{Running, curl};
use http::{HeaderMap, HeaderValue, Request};
use parking_lot::Mutex;
use std::sync::Arc;
use tidegate_testkit::{Asked, PATIENCE, Scripted, eventually};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// An endpoint that notes every request and gives `answer`.
async fn giving(answer: &'static str) -> (Scripted, Arc<Mutex<Vec<Asked>>>) {
    let seen: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let notes = Arc::clone(&seen);
    let endpoint = Scripted::start(move |mut c| {
        let notes = Arc::clone(&notes);
        async move {
            while let Some(asked) = c.request().await {
                notes.lock().push(asked);
                c.send(answer).await;
            }
        }
    })
    .await;
    (endpoint, seen)
}

const TRAILED: &str = "HTTP/1.1 200 OK\r\ntrailer: x-checksum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-checksum: 7\r\nset-cookie: a=1\r\n\r\n";

#[tokio::test]
async fn trailers_of_an_answer_pass_to_clients_that_want_them() {
    let (endpoint, seen) = giving(TRAILED).await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.get("/", "te: trailers\r\nconnection: te\r\n").await;
    let whole = client.read_until("\r\n0\r\nx-checksum: 7\r\n\r\n").await;
    assert!(whole.to_ascii_lowercase().contains("trailer: x-checksum\r\n"), "{whole}");
    assert_eq!(seen.lock()[0].header("te"), Some("trailers"));
    client.get("/", "").await;
    assert!(!client.read_until("\r\n0\r\n\r\n").await.contains("x-checksum: 7"), "one that does not say so gets none");
    let mut client = H2::connect(t.address()).await;
    let answer = client.get("http://t/").await;
    let trailers = answer.trailers.expect("trailers");
    assert_eq!(trailers["x-checksum"], "7");
    assert!(!trailers.contains_key("set-cookie"), "what may not stand behind a body is taken out");
    assert_eq!(t.outcomes(), ["success"; 3]);
}

#[tokio::test]
async fn trailers_of_a_request_pass_whether_its_body_is_held_or_streamed() {
    let (endpoint, seen) = giving("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    for limits in ["", "limits: { sniff_bytes: 1KiB }"] {
        let t = Running::with(&[endpoint.url()], "policy: round_robin", limits);
        let body = "x".repeat(2000);
        let mut client = t.client().await;
        let head = "POST / HTTP/1.1\r\nhost: t\r\ntrailer: x-checksum\r\ntransfer-encoding: chunked\r\n\r\n";
        client.send(format!("{head}7d0\r\n{body}\r\n0\r\nx-checksum: 7\r\nhost: other\r\n\r\n")).await;
        assert_eq!(client.reply().await.status, 200);
        let mut client = H2::connect(t.address()).await;
        let request = Request::post("http://t/").header("trailer", "x-checksum").body(()).unwrap();
        let (response, mut stream) = client.begin(request, false).await;
        stream.send_data(Bytes::from(body.clone()), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", HeaderValue::from_static("8"));
        stream.send_trailers(trailers).unwrap();
        assert_eq!(Answer::read(response.await.unwrap()).await.unwrap().text(), "ok");
        for wanted in ["7", "8"] {
            let asked = seen.lock().remove(0);
            let body = String::from_utf8_lossy(&asked.body).into_owned();
            assert_eq!(asked.header("transfer-encoding"), Some("chunked"), "{}", asked.head);
            assert!(body.ends_with(&format!("\r\n0\r\nx-checksum: {wanted}\r\n\r\n")), "{limits} {body}");
        }
    }
}

#[tokio::test]
async fn a_head_request_gets_the_headers_of_a_body_and_none() {
    let (endpoint, seen) = giving("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\netag: x\r\n\r\n").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let url = format!("http://{}/file", t.address());
    for flag in ["--http1.1", "--http2-prior-knowledge"] {
        let (told, ok) = curl(&[flag, "--head", &url]).await;
        assert!(ok && told.to_ascii_lowercase().contains("content-length: 1234\r\n"), "{flag}: {told}");
    }
    // The connection goes on.
    let mut client = t.client().await;
    for _ in 0..2 {
        client.send("HEAD /file HTTP/1.1\r\nhost: t\r\n\r\n").await;
        client.read_until("\r\n\r\n").await;
    }
    assert!(seen.lock().iter().all(|a| a.head.starts_with("HEAD /file ")));
    eventually("all are told", || t.outcomes() == ["success"; 4]).await;
}

#[tokio::test]
async fn a_client_that_asks_whether_to_send_is_told() {
    let (endpoint, seen) = giving("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let limits = "limits: { max_body_bytes: 1KiB, sniff_bytes: 1KiB }";
    let t = Running::with(&[endpoint.url()], "policy: round_robin", limits);
    let mut client = t.client().await;
    client.send("POST / HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n").await;
    assert!(client.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 100 "));
    client.send("hello").await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(seen.lock()[0].header("expect"), None, "it was answered here");
    // Refused before a byte of it was sent.
    client.send("POST / HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 5000\r\n\r\n").await;
    let reply = client.reply().await;
    assert!(reply.status == 413 && reply.text().contains("body_too_large"), "{}", reply.head);
}

/// An endpoint that answers once a request's head has come, and reads no more of it.
async fn hasty() -> Scripted {
    Scripted::start(|mut c| async move {
        let mut heard = Vec::new();
        while !heard.windows(4).any(|w| w == b"\r\n\r\n") {
            if !c.hear(&mut heard).await {
                return;
            }
        }
        c.send("HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 6\r\n\r\nno way").await;
        c.closed().await;
    })
    .await
}

#[tokio::test]
async fn an_answer_that_comes_before_the_upload_has_ended_is_passed_on() {
    let endpoint = hasty().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "limits: { sniff_bytes: 1KiB }");
    let mut client = t.client().await;
    client.send("POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 1000000\r\n\r\n").await;
    client.send("x".repeat(10_000)).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text().as_str()), (403, "no way"));
    // The same with HTTP/2, where the stream ends and the connection goes on.
    let mut client = H2::connect(t.address()).await;
    for _ in 0..2 {
        let (response, mut stream) = client.begin(Request::post("http://t/").body(()).unwrap(), false).await;
        stream.send_data(vec![b'x'; 10_000].into(), false).unwrap();
        let answer = timeout(PATIENCE, response).await.expect("an answer").unwrap();
        let answer = Answer::read(answer).await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (403, "no way"));
    }
    eventually("all are told", || t.outcomes() == ["client_error"; 3] && t.in_flight() == 0).await;
}

#[tokio::test]
async fn a_client_of_http1_that_closes_its_half_has_left() {
    let closed = Arc::new(Semaphore::new(0));
    let told = Arc::clone(&closed);
    let endpoint = Scripted::start(move |mut c| {
        let told = Arc::clone(&told);
        async move {
            let _ = c.request().await;
            c.closed().await;
            told.add_permits(1);
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut socket = tokio::net::TcpStream::connect(t.address()).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, b"GET / HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    eventually("it is in flight", || t.in_flight() == 1).await;
    // Nobody can tell a half-closed connection from a closed one before writing to it, and by then the engine has worked for nothing.
    tokio::io::AsyncWriteExt::shutdown(&mut socket).await.unwrap();
    timeout(PATIENCE, closed.acquire()).await.expect("the engine is stopped").unwrap().forget();
    eventually("its place is free", || t.outcomes() == ["cancelled"]).await;
}

#[tokio::test]
async fn a_body_that_was_begun_is_not_sent_again() {
    let resetting = Scripted::start(|mut c| async move {
        let mut heard = Vec::new();
        // A part of the body has come: then the connection breaks.
        while heard.len() < 20_000 && c.hear(&mut heard).await {}
    })
    .await;
    let (other, seen) = giving("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let limits = "limits: { sniff_bytes: 1KiB }";
    let t = Running::with(&[resetting.url(), other.url()], "policy: round_robin", limits);
    let body = "x".repeat(100_000);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let mut client = t.client().await;
        client.post("/", "content-type: text/plain\r\n", &body).await;
        statuses.push(client.reply().await.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 502], "each went to one endpoint only");
    assert_eq!(seen.lock().len(), 1);
}

#[tokio::test]
async fn a_coding_of_the_body_is_left_as_it_is() {
    let (endpoint, seen) =
        giving("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x0b\x08\x00").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.post("/x", "accept-encoding: gzip, br\r\ncontent-encoding: br\r\n", "\x0b\x02\x7f").await;
    let reply = client.reply().await;
    assert_eq!(
        (reply.header("content-encoding"), reply.body.as_slice()),
        (Some("gzip"), b"\x1f\x0b\x08\x00".as_slice())
    );
    let seen = seen.lock();
    assert_eq!((seen[0].header("accept-encoding"), seen[0].header("content-encoding")), (Some("gzip, br"), Some("br")));
    assert_eq!(seen[0].body, b"\x0b\x02\x7f");
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_left() {
    let endpoint = Scripted::start(|mut c| async move {
        let Some(_) = c.request().await else { return };
        // More than all sockets on the way hold.
        c.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 48 << 20)).await;
        let piece = "x".repeat(1 << 20);
        for _ in 0..48 {
            c.send(&piece).await;
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "limits: { send_timeout: 200ms }");
    let mut deaf = t.client().await;
    deaf.get("/", "").await;
    // One that reads, however much there is, is served meanwhile.
    let mut client = t.client().await;
    client.get("/", "").await;
    assert_eq!(client.reply().await.body.len(), 48 << 20);
    eventually("the other is left", || t.outcomes().contains(&"cancelled") && t.in_flight() == 0).await;
    assert!(t.outcomes().contains(&"success"), "{:?}", t.outcomes());
    drop(deaf);
}

#[tokio::test]
async fn a_long_upload_is_no_silence() {
    let endpoint = Scripted::start(|mut c| async move {
        while let Some(asked) = c.request().await {
            if asked.head.starts_with("POST /answered") {
                c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    let keys = "policy: round_robin, timeouts: { first_byte: 300ms }";
    let t = Running::with(&[endpoint.url()], keys, "limits: { sniff_bytes: 1KiB }");
    for (path, status) in [("/answered", 200), ("/silent", 504)] {
        let mut client = t.client().await;
        client.send(format!("POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: 20000\r\n\r\n")).await;
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(100));
        for _ in 0..10 {
            pace.tick().await;
            client.send("x".repeat(2000)).await;
        }
        assert_eq!(client.reply().await.status, status, "{path}, after three times as long as the first byte may take");
    }
}
