//! Clients that send their bodies too slowly are told and let go, and no endpoint is blamed for them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests: a failed expectation is a failed test")]

mod common;

use common::Running;
use std::time::Duration;
use tidegate_testkit::{PATIENCE, Scripted, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEAD: &str = "POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 20000\r\n\r\n";

/// What is answered to a body of 20,000 bytes of which `begins` come at once, and then one byte every 20 ms, or nothing.
async fn answer(t: &Running, begins: usize, trickles: bool) -> String {
    let (mut read, mut write) = TcpStream::connect(t.address()).await.unwrap().into_split();
    write.write_all((HEAD.to_owned() + &"x".repeat(begins)).as_bytes()).await.unwrap();
    let trickle = tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        while !trickles || write.write_all(b"x").await.is_ok() {
            pace.tick().await;
        }
    });
    let mut said = Vec::new();
    let reading = async { while read.read_buf(&mut said).await.is_ok_and(|n| n > 0) {} };
    tokio::time::timeout(PATIENCE, reading).await.expect("an answer, and the end of the connection");
    trickle.abort();
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn a_body_that_comes_byte_by_byte_has_its_time_as_a_whole() {
    // Each piece came within limits.header_timeout of the one before, so a body could take as long as its client liked.
    let endpoint = Scripted::answering("e", "ok").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "limits: { header_timeout: 200ms }");
    for trickles in [false, true] {
        let said = answer(&t, 100, trickles).await;
        assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("body_timeout"), "{said}");
    }
    assert_eq!(endpoint.connections(), 0, "no endpoint was kept waiting");
}

#[tokio::test]
async fn an_upload_that_its_client_leaves_lying_is_not_the_endpoints_fault() {
    // It was: a few clients that stopped in the midst of large bodies opened the breakers of sound endpoints.
    let endpoint = Scripted::start(|mut c| async move {
        while c.request().await.is_some() {
            c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let pool =
        "policy: round_robin, timeouts: { first_byte: 300ms }, breaker: { name: classic, consecutive_errors: 2 }";
    let t = Running::with(
        &[endpoint.url(), endpoint.url().replace("127.0.0.1", "localhost")],
        pool,
        "limits: { sniff_bytes: 1KiB }",
    );
    for trickles in [false, true, false, true, false, true] {
        let said = answer(&t, 4000, trickles).await;
        assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("body_timeout"), "{said}");
    }
    eventually("nothing is in flight", || t.in_flight() == 0).await;
    assert!(t.records().iter().all(|r| r.outcome != "first_byte_timeout"), "{:?}", t.outcomes());
    for _ in 0..4 {
        let mut client = t.client().await;
        client.get("/", "").await;
        assert_eq!(client.reply().await.status, 200);
    }
}
