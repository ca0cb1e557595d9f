//! The end of a gateway: whoever is served is served to the end, or told that time is up.

mod common;

use common::Running;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::Shutdown;
use tidegate_core::id::EndpointId;
use tidegate_testkit::{PATIENCE, Scripted};
use tokio::sync::Notify;

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn shutdown(drain_timeout: Duration, keep_alive: Duration) -> Shutdown {
    Shutdown { delay: Duration::ZERO, drain_timeout, keep_alive }
}

#[tokio::test]
async fn a_connection_without_a_request_gets_one_last_answer() {
    // Closing it at once would race with the request its client is about to send.
    let endpoint = Scripted::answering("e", "ok").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.get("/", "").await;
    assert_eq!(client.reply().await.header("connection"), None);
    let address = t.gateway.addresses()[0];
    let records = Arc::clone(&t.records);
    let stopping = tokio::spawn(async move { t.gateway.drain(&shutdown(PATIENCE, PATIENCE)).await });
    // The sockets are closed once nobody can connect any more.
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    client.get("/", "").await;
    let last = client.reply().await;
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(client.is_closed().await);
    assert!(stopping.await.unwrap(), "it does not wait for the rest of keep_alive");
    assert_eq!(records.len(), 2);
}

#[tokio::test]
async fn a_stream_that_does_not_end_in_time_is_told_and_nobody_upstream_is_blamed() {
    let gone = Arc::new(Notify::new());
    let told = Arc::clone(&gone);
    let endpoint = Scripted::start(move |mut c| {
        let told = Arc::clone(&told);
        async move {
            c.request().await.unwrap();
            c.send(STREAM).await;
            c.send_chunk("data: 1\n\n").await;
            c.closed().await;
            told.notify_one();
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.post("/v1/chat/completions", "content-type: application/json\r\n", "{\"stream\":true}").await;
    client.read_until("\r\n\r\n").await;
    client.chunk().await.unwrap();
    let (records, pool) = (Arc::clone(&t.records), Arc::clone(&t.gateway.pools()[0]));
    let all_ended = t.gateway.drain(&shutdown(Duration::from_millis(50), Duration::ZERO)).await;
    assert!(!all_ended);
    let last = String::from_utf8(client.chunk().await.unwrap().unwrap()).unwrap();
    let data = last.split("data: ").nth(1).unwrap().trim();
    let error: serde_json::Value = serde_json::from_str(data).unwrap();
    assert!(last.starts_with("\n\nevent: error\n") && last.ends_with("\n\n"), "{last:?}");
    assert_eq!(error["error"]["code"], "gateway_stopping");
    assert_eq!(client.chunk().await, Err(()), "it never looks whole");
    gone.notified().await;
    assert_eq!(records.outcomes(), ["gateway_stopping"]);
    let stats = pool.with(|p, _| (p.in_flight(), p.endpoints().stats[0].failed, p.endpoints().stats[0].neutral));
    assert_eq!(stats, (0, 0, 1));
    assert_eq!(pool.ids(), [EndpointId(0)]);
}

#[tokio::test]
async fn a_request_without_an_answer_is_refused_when_time_is_up() {
    let asked = Arc::new(Notify::new());
    let told = Arc::clone(&asked);
    let endpoint = Scripted::start(move |mut c| {
        let told = Arc::clone(&told);
        async move {
            c.request().await.unwrap();
            told.notify_one();
            c.closed().await;
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.get("/", "").await;
    asked.notified().await;
    let pool = Arc::clone(&t.gateway.pools()[0]);
    assert!(!t.gateway.drain(&shutdown(Duration::from_millis(50), Duration::ZERO)).await);
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert!(reply.text().contains("\"gateway_stopping\""), "{}", reply.text());
    assert_eq!(pool.with(|p, _| p.in_flight()), 0);
}

#[tokio::test]
async fn a_last_answer_that_is_an_upgrade_stays_one() {
    let endpoint = Scripted::start(|mut c| async move {
        while let Some(asked) = c.request().await {
            let upgrades = asked.header("upgrade").is_some();
            c.send(if upgrades {
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello"
            } else {
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
            })
            .await;
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.get("/", "").await;
    client.reply().await;
    let address = t.gateway.addresses()[0];
    let stopping = tokio::spawn(async move { t.gateway.drain(&shutdown(PATIENCE, PATIENCE)).await });
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    client.get("/", "connection: upgrade\r\nupgrade: websocket\r\n").await;
    let head = client.read_until("\r\n\r\n").await.to_ascii_lowercase();
    assert!(
        head.starts_with("http/1.1 101") && head.contains("connection: upgrade") && !head.contains("close"),
        "{head}"
    );
    client.read_until("hello").await;
    drop(client);
    assert!(stopping.await.unwrap());
}
