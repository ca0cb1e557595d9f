//! Streams pass unbuffered and byte-exact, and end when their client does.

mod common;

use common::Running;
use std::sync::Arc;
use tidegate_testkit::{Scripted, eventually};
use tokio::sync::Notify;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn each_event_passes_before_the_next_is_made() {
    // gateways.md 54: SSE buffered. The endpoint makes an event only once the client holds the one before.
    let held = Arc::new(Notify::new());
    let told = Arc::clone(&held);
    let endpoint = Scripted::start(move |mut c| {
        let told = Arc::clone(&told);
        async move {
            while c.request().await.is_some() {
                c.send(HEAD).await;
                for n in 0..5 {
                    c.send_chunk(&format!("data: {{\"n\":{n},\"text\":\"\u{e9}\"}}\n\n")).await;
                    told.notified().await;
                }
                c.send_chunk("data: [DONE]\n\n").await;
                c.send("0\r\n\r\n").await;
            }
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.post("/v1/chat/completions", "content-type: application/json\r\n", "{\"stream\":true}").await;
    client.read_until("\r\n\r\n").await;
    for n in 0..5 {
        let event = client.chunk().await.unwrap().unwrap();
        assert_eq!(String::from_utf8(event).unwrap(), format!("data: {{\"n\":{n},\"text\":\"\u{e9}\"}}\n\n"));
        held.notify_one();
    }
    assert_eq!(client.chunk().await.unwrap().unwrap(), b"data: [DONE]\n\n");
    assert_eq!(client.chunk().await, Ok(None));
    assert_eq!(t.outcomes(), ["success"]);
    assert_eq!(t.in_flight(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_a_silent_stream_stops_the_engine() {
    // gateways.md 49, 63: the engine worked on for minutes, since only the next chunk would have shown that nobody reads.
    let gone = Arc::new(Notify::new());
    let told = Arc::clone(&gone);
    let endpoint = Scripted::start(move |mut c| {
        let told = Arc::clone(&told);
        async move {
            c.request().await.unwrap();
            c.send(HEAD).await;
            c.send_chunk("data: 1\n\n").await;
            c.closed().await;
            told.notify_one();
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.post("/v1/chat/completions", "", "").await;
    client.read_until("data: 1").await;
    assert_eq!(t.in_flight(), 1);
    drop(client);
    tokio::time::timeout(tidegate_testkit::PATIENCE, gone.notified()).await.unwrap();
    eventually("in flight returns to 0", || t.in_flight() == 0).await;
    eventually("one record", || t.outcomes() == ["cancelled"]).await;
}

#[tokio::test]
async fn a_client_that_sent_more_and_left_is_noticed() {
    // Bytes behind a request kept the library from reading on: whoever sent one empty line and left held its place until a time-out.
    for more in ["\r\n", "GET /next HTTP/1.1\r\nhost: t\r\n\r\n", "x"] {
        let gone = Arc::new(Notify::new());
        let told = Arc::clone(&gone);
        let endpoint = Scripted::start(move |mut c| {
            let told = Arc::clone(&told);
            async move {
                c.request().await.unwrap();
                c.closed().await;
                told.notify_one();
            }
        })
        .await;
        let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
        let mut client = t.client().await;
        client.get("/", "").await;
        eventually("it is at the engine", || t.in_flight() == 1).await;
        client.send(more).await;
        drop(client);
        tokio::time::timeout(tidegate_testkit::PATIENCE, gone.notified()).await.unwrap();
        eventually("in flight returns to 0", || t.in_flight() == 0).await;
        eventually("one record", || t.outcomes() == ["cancelled"]).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_stops_the_engine() {
    // gateways.md 2: one in-flight count leaked per client that aborted while the gateway awaited headers.
    let (asked, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell_asked, tell_gone) = (Arc::clone(&asked), Arc::clone(&gone));
    let endpoint = Scripted::start(move |mut c| {
        let (asked, gone) = (Arc::clone(&tell_asked), Arc::clone(&tell_gone));
        async move {
            c.request().await.unwrap();
            asked.notify_one();
            c.closed().await;
            gone.notify_one();
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.post("/v1/chat/completions", "", "").await;
    asked.notified().await;
    assert_eq!(t.in_flight(), 1);
    drop(client);
    tokio::time::timeout(tidegate_testkit::PATIENCE, gone.notified()).await.unwrap();
    eventually("in flight returns to 0", || t.in_flight() == 0).await;
    eventually("one record", || t.outcomes() == ["cancelled"]).await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_never_looks_complete() {
    // gateways.md 29: the client saw a clean end after 40 of 60 tokens.
    let endpoint = Scripted::start(|mut c| async move {
        c.request().await.unwrap();
        c.send(HEAD).await;
        c.send_chunk("data: 1\n\n").await;
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.post("/v1/chat/completions", "", "").await;
    let had = client.try_reply().await.unwrap_err();
    assert!(had.starts_with(b"data: 1\n\nevent: error\n"), "{}", String::from_utf8_lossy(&had));
    eventually("one record", || t.outcomes() == ["truncated"]).await;
    assert_eq!(t.in_flight(), 0);
}

#[tokio::test]
async fn an_answer_shorter_than_announced_never_looks_complete() {
    let endpoint = Scripted::start(|mut c| async move {
        c.request().await.unwrap();
        c.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc").await;
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.get("/", "").await;
    assert_eq!(client.try_reply().await.unwrap_err(), b"abc");
    eventually("one record", || t.outcomes() == ["truncated"]).await;
}

#[tokio::test]
async fn a_stream_that_stalls_ends_and_one_that_moves_does_not() {
    // gateways.md 53: a total timeout killed live streams. Time without progress is what counts.
    let endpoint = Scripted::start(|mut c| async move {
        c.request().await.unwrap();
        c.send(HEAD).await;
        let mut every = tokio::time::interval(std::time::Duration::from_millis(60));
        for n in 0..8 {
            every.tick().await;
            c.send_chunk(&format!("data: {n}\n\n")).await;
        }
        c.closed().await;
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin, timeouts: { between_tokens: 250ms }", "");
    let mut client = t.client().await;
    client.post("/v1/chat/completions", "", "").await;
    let had = client.try_reply().await.unwrap_err();
    let had = String::from_utf8(had).unwrap();
    assert!(had.contains("data: 7\n\nevent: error\n"), "480 ms of a stream that moves are no stall: {had}");
    eventually("one record", || t.outcomes() == ["stalled"]).await;
}
