//! Failures that users of other systems reported of framing and of long answers; docs/cases.md names them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests: a failed expectation is a failed test")]

mod common;

use common::Running;
use tidegate_testkit::{Scripted, eventually};

/// Events of the long stream, and bytes of each.
const EVENTS: usize = 4096;
const SIZE: usize = 8192;

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

#[tokio::test]
async fn a_long_stream_has_no_bound_and_is_not_kept() {
    // gateways.md 55: `response_payload_too_large`; 67: the whole answer was kept while it was streamed.
    let endpoint = Scripted::start(|mut c| async move {
        c.request().await.unwrap();
        c.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await;
        let event = format!("data: {}\n\n", "x".repeat(SIZE));
        for _ in 0..EVENTS {
            c.send_chunk(&event).await;
        }
        c.send_chunk("data: [DONE]\n\n").await;
        c.send("0\r\n\r\n").await;
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "limits: { max_body_bytes: 1MiB }");
    let mut client = t.client().await;
    client.post("/v1/chat/completions", "content-type: application/json\r\n", "{\"stream\":true}").await;
    client.read_until("\r\n\r\n").await;
    let (mut bytes, mut before, mut most) = (0, 0, 0);
    while let Some(chunk) = client.chunk().await.expect("a whole stream") {
        bytes += chunk.len();
        if before == 0 && bytes > 2 << 20 {
            before = resident_kib();
        }
        most = most.max(resident_kib());
    }
    assert!(bytes > EVENTS * SIZE, "{bytes} bytes");
    assert!(most - before < 8 << 10, "32 MiB passed, and memory grew from {before} to {most} KiB");
    eventually("one record", || t.outcomes() == ["success"]).await;
}

#[tokio::test]
async fn a_client_that_waits_with_its_body_reads_an_early_refusal() {
    // governance.md 74: the connection was reset before the client had read the answer.
    let endpoint = Scripted::answering("e", "ok").await;
    let t =
        Running::with(&[endpoint.url()], "policy: round_robin", "limits: { max_body_bytes: 1KiB, sniff_bytes: 1KiB }");
    for sends_anyway in [false, true] {
        let mut client = t.client().await;
        client.send("POST / HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 100000\r\n\r\n").await;
        if sends_anyway {
            client.send("x".repeat(100_000)).await;
        }
        let reply = client.reply().await;
        assert_eq!(reply.status, 413, "{}", reply.head);
    }
    assert_eq!(endpoint.connections(), 0);
}

#[tokio::test]
async fn what_stands_behind_an_announced_length_is_nobodys() {
    // governance.md 75: chunks and trailers behind a body of announced length were read as its end, or as the next answer.
    let endpoint = Scripted::start(|mut c| async move {
        while c.request().await.is_some() {
            c.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntrailer: x-t\r\n\r\nhello0\r\nx-t: 1\r\n\r\n").await;
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    for n in 1..4 {
        client.get("/", "te: trailers\r\n").await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text().as_str(), reply.header("x-t")), (200, "hello", None));
        assert_eq!(endpoint.connections(), n, "what was left on the connection answers nobody");
    }
}
