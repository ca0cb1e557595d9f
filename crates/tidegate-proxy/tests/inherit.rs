//! A gateway that goes on from another: its sockets, its balances, and what the other still uses.

mod common;

use common::{Records, parse};
use std::sync::Arc;
use tidegate_config::Config;
use tidegate_proxy::{Clock, Gateway, Inherited};
use tidegate_testkit::{Client, PATIENCE, Scripted};
use tokio::sync::{Notify, mpsc};

/// An endpoint whose streams wait for a word and then say that they used 30 tokens; and the config in front of it.
async fn engine(go_on: &Arc<Notify>) -> (Scripted, Config) {
    let go_on = Arc::clone(go_on);
    let endpoint = Scripted::start(move |mut c| {
        let go_on = Arc::clone(&go_on);
        async move {
            while c.request().await.is_some() {
                c.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
                    .await;
                c.send_chunk("data: 1\n\n").await;
                go_on.notified().await;
                c.send_chunk("data: {\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":30}}\n\ndata: [DONE]\n\n")
                    .await;
                c.send("0\r\n\r\n").await;
            }
        }
    })
    .await;
    let limit = "rate_limits: [{ name: out, limit: 10 output_tokens/h, burst: 1000 }]";
    let config = parse(&format!("{limit}\npools:\n  p: {{ endpoints: [{{ url: \"{}\" }}] }}", endpoint.url()));
    (endpoint, config)
}

fn level(gateway: &Gateway) -> f64 {
    gateway.governor().with(|limits, now| limits.levels_at(now)[0].level)
}

#[tokio::test]
async fn balances_are_the_same_in_both_until_the_last_request_of_the_old_has_ended() {
    let go_on = Arc::new(Notify::new());
    let (_endpoint, config) = engine(&go_on).await;
    let old = Gateway::start(&config, Arc::new(Records::default())).unwrap();
    let address = old.addresses()[0];
    let mut client = Client::connect(address).await;
    client
        .post(
            "/v1/chat/completions",
            "content-type: application/json\r\n",
            "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":100}",
        )
        .await;
    client.read_until("data: 1").await;
    let (heir, mut told) = mpsc::channel(100);
    let saved = old.save(heir);
    let sockets = old.sockets().iter().map(|(a, s)| (*a, s.try_clone().unwrap())).collect();
    let clock = Clock::at(tidegate_core::time::Instant::from_nanos(saved.at));
    // What is handed over is written down in between.
    let saved = serde_json::from_str(&serde_json::to_string(&saved).unwrap()).unwrap();
    let inherited = Inherited { sockets, known: Some((saved, clock)) };
    let new = Gateway::start_from(&config, Arc::new(Records::default()), inherited).unwrap();
    assert_eq!(new.addresses(), [address], "the same socket");
    let same = || (level(&old) - level(&new)).abs() < 0.1;
    assert!(same() && (899.0..901.0).contains(&level(&new)), "{} and {}: 100 are reserved", level(&old), level(&new));
    go_on.notify_one();
    client.read_until("[DONE]").await;
    new.governor().charge(&told.recv().await.unwrap());
    assert!(same() && (969.0..971.0).contains(&level(&new)), "{} and {}: 30 were used", level(&old), level(&new));
    // A last request of a connection that the old one keeps.
    client.read_until("0\r\n\r\n").await;
    client
        .post(
            "/v1/chat/completions",
            "content-type: application/json\r\n",
            "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":50}",
        )
        .await;
    client.read_until("data: 1").await;
    new.governor().charge(&told.recv().await.unwrap());
    assert!(same() && (919.0..921.0).contains(&level(&new)), "{} and {}", level(&old), level(&new));
    drop(client);
    assert!(old.stop(PATIENCE).await);
    // A client that leaves has used what came.
    new.governor().charge(&told.recv().await.unwrap());
    assert!((967.0..971.0).contains(&level(&new)), "{}", level(&new));
    assert!(told.recv().await.is_none(), "nothing is told after the end");
    // And the new one serves where the old one did.
    let mut client = Client::connect(address).await;
    // The engine still has the script of the client that left.
    go_on.notify_one();
    go_on.notify_one();
    client
        .post(
            "/v1/chat/completions",
            "content-type: application/json\r\n",
            "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":1}",
        )
        .await;
    assert_eq!(client.reply().await.status, 200);
}

#[tokio::test]
async fn who_is_kept_tells_nobody() {
    let go_on = Arc::new(Notify::new());
    let (_endpoint, config) = engine(&go_on).await;
    let gateway = Gateway::start(&config, Arc::new(Records::default())).unwrap();
    let (heir, mut told) = mpsc::channel(100);
    let _ = gateway.save(heir);
    gateway.keep();
    assert!(told.recv().await.is_none());
}
