//! Queues, retries and tenants as clients meet them.

mod common;

use common::Running;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tidegate_proxy::digest;
use tidegate_testkit::{Client, Scripted, eventually};
use tokio::sync::Semaphore;

/// An engine that answers one request per permit.
async fn gated(go: &Arc<Semaphore>) -> Scripted {
    let go = Arc::clone(go);
    Scripted::start(move |mut c| {
        let go = Arc::clone(&go);
        async move {
            while c.request().await.is_some() {
                let Ok(permit) = go.acquire().await else { return };
                permit.forget();
                c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await
}

async fn sent(t: &Running) -> Client {
    let mut client = t.client().await;
    client.get("/", "").await;
    client
}

fn waiting(t: &Running) -> usize {
    t.gateway.pools()[0].with(|p, _| p.waiting())
}

#[tokio::test]
async fn a_full_pool_lets_requests_wait_for_their_turn() {
    let go = Arc::new(Semaphore::new(0));
    let e = gated(&go).await;
    let t =
        Running::with(&[format!("{{ url: '{}', max_in_flight: 1 }}", e.url())], "policy: round_robin, queue: {}", "");
    let (mut first, mut second) = (sent(&t).await, sent(&t).await);
    eventually("one waits", || waiting(&t) == 1).await;
    go.add_permits(2);
    let replies = [first.reply().await, second.reply().await];
    assert_eq!(replies.each_ref().map(|r| r.status), [200, 200]);
    let queued = |r: &&tidegate_testkit::Reply| r.header("x-tidegate-reason") == Some("queued;round_robin");
    assert_eq!(replies.iter().filter(queued).count(), 1);
    assert_eq!((t.in_flight(), waiting(&t)), (0, 0));
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_is_gone_at_once() {
    let go = Arc::new(Semaphore::new(0));
    let e = gated(&go).await;
    let t =
        Running::with(&[format!("{{ url: '{}', max_in_flight: 1 }}", e.url())], "policy: round_robin, queue: {}", "");
    let mut first = sent(&t).await;
    let gone = sent(&t).await;
    eventually("one waits", || waiting(&t) == 1).await;
    drop(gone);
    eventually("nobody waits", || waiting(&t) == 0).await;
    go.add_permits(1);
    assert_eq!(first.reply().await.status, 200);
    assert_eq!(t.in_flight(), 0);
}

#[tokio::test]
async fn a_wait_that_is_over_and_a_queue_that_is_full_are_told_apart() {
    let go = Arc::new(Semaphore::new(0));
    let e = gated(&go).await;
    let pool = "policy: round_robin, queue: { max_waiting: 1, max_wait: 300ms }";
    let t = Running::with(&[format!("{{ url: '{}', max_in_flight: 1 }}", e.url())], pool, "");
    let _first = sent(&t).await;
    eventually("it is in", || t.in_flight() == 1).await;
    let mut second = sent(&t).await;
    eventually("one waits", || waiting(&t) == 1).await;
    let mut third = sent(&t).await;
    let full = third.reply().await;
    assert_eq!((full.status, full.text().contains("\"queue_full\"")), (503, true), "{}", full.text());
    let late = second.reply().await;
    assert_eq!((late.status, late.text().contains("\"queue_timeout\"")), (503, true), "{}", late.text());
    assert!(full.header("retry-after").is_some() && late.header("retry-after").is_some());
}

/// An engine that answers with this status line and headers, and counts what it is asked.
async fn failing(answer: &'static str) -> (Scripted, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let engine = Scripted::start(move |mut c| {
        let count = Arc::clone(&count);
        async move {
            while c.request().await.is_some() {
                count.fetch_add(1, Relaxed);
                c.send(format!("HTTP/1.1 {answer}\r\ncontent-length: 3\r\n\r\nbad")).await;
            }
        }
    })
    .await;
    (engine, asked)
}

#[tokio::test]
async fn an_answer_of_500_is_had_elsewhere_and_passed_on_where_there_is_no_elsewhere() {
    let (bad, asked) = failing("500 No").await;
    let good = Scripted::answering("good", "fine").await;
    let t = Running::with(&[bad.url(), good.url()], "policy: round_robin, breaker: classic", "");
    let mut client = t.client().await;
    for _ in 0..20 {
        client.post("/v1/x", "", "body").await;
        assert_eq!(client.reply().await.status, 200);
    }
    assert!(asked.load(Relaxed) > 0);
    let alone = Running::with(&[bad.url()], "policy: round_robin", "");
    let mut client = alone.client().await;
    client.post("/v1/x", "", "body").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text().as_str()), (500, "bad"), "the engine's own words");
}

#[tokio::test]
async fn an_engine_that_forbids_another_try_is_obeyed() {
    let (bad, asked) = failing("429 No\r\nx-should-retry: false").await;
    let (other, asked_other) = failing("429 No\r\nx-should-retry: false").await;
    let t = Running::with(&[bad.url(), other.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.post("/v1/x", "", "body").await;
    assert_eq!(client.reply().await.status, 429);
    assert_eq!(asked.load(Relaxed) + asked_other.load(Relaxed), 1);
}

#[tokio::test]
async fn when_every_engine_fails_attempts_stay_within_the_budget() {
    let mut engines = Vec::new();
    for _ in 0..4 {
        engines.push(failing("500 No").await);
    }
    let urls: Vec<String> = engines.iter().map(|(e, _)| e.url()).collect();
    let t = Running::with(&urls, "policy: round_robin, retry: { budget: 0.2 }", "");
    let mut client = t.client().await;
    const REQUESTS: usize = 1000;
    for _ in 0..REQUESTS {
        client.post("/v1/x", "", "body").await;
        client.reply().await;
    }
    let attempts: usize = engines.iter().map(|(_, n)| n.load(Relaxed)).sum();
    assert!(attempts <= REQUESTS * 12 / 10, "{attempts} attempts of {REQUESTS} requests");
}

fn hex(key: &str) -> String {
    digest(key).iter().map(|b| format!("{b:02x}")).collect()
}

#[tokio::test]
async fn tenants_have_keys_models_and_pools_of_their_own() {
    let (chat, embed) = (Scripted::answering("chat", "chat").await, Scripted::answering("embed", "embed").await);
    let t = Running::from_yaml(&format!(
        "tenants:
  identify: [{{ api_key: {{}} }}]
  named:
    acme: {{ keys: [\"sha256:{}\"], models: [\"llama-*\"] }}
    rag: {{ keys: [\"sha256:{}\"], pools: [embed] }}
routes:
  - {{ match: {{ path: /embed }}, pool: embed }}
  - {{ match: {{ tenants: [rag] }}, pool: embed }}
  - {{ pool: chat }}
pools:
  chat: {{ endpoints: [{{ url: '{}' }}] }}
  embed: {{ endpoints: [{{ url: '{}' }}] }}",
        hex("acme-key"),
        hex("rag-key"),
        chat.url(),
        embed.url()
    ));
    let ask = async |auth: &str, path: &str, model: &str| {
        let mut client = t.client().await;
        let headers = format!("content-type: application/json\r\n{auth}");
        client.post(path, &headers, &format!("{{\"model\":\"{model}\",\"prompt\":\"hi\"}}")).await;
        let reply = client.reply().await;
        (reply.status, reply.text())
    };
    let acme = "authorization: Bearer acme-key\r\n";
    let rag = "authorization: Bearer rag-key\r\n";
    assert_eq!(ask(acme, "/v1/completions", "llama-3").await, (200, "chat".to_owned()));
    assert_eq!(ask(rag, "/v1/completions", "any").await, (200, "embed".to_owned()), "its namespace");
    let (status, text) = ask(acme, "/v1/completions", "gpt").await;
    assert!(status == 403 && text.contains("\"model_not_allowed\""), "{text}");
    let (status, text) = ask("authorization: Bearer wrong\r\n", "/v1/completions", "llama-3").await;
    assert!(status == 401 && text.contains("\"invalid_api_key\""), "{text}");
    assert_eq!(ask("", "/v1/completions", "llama-3").await.0, 401);
    assert!(!text.contains("wrong"), "a key is never shown");
}

#[tokio::test]
async fn a_slow_first_byte_is_hedged_and_the_slow_attempt_is_cancelled() {
    // Endpoint 0 answers thirty requests and then one no more; its connection is closed when the other has won.
    let (served, closed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, seen) = (Arc::clone(&served), Arc::clone(&closed));
    let slow = Scripted::start(move |mut c| {
        let (count, seen) = (Arc::clone(&count), Arc::clone(&seen));
        async move {
            while c.request().await.is_some() {
                if count.fetch_add(1, Relaxed) >= 30 {
                    c.closed().await;
                    seen.fetch_add(1, Relaxed);
                    return;
                }
                c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    let good = Scripted::answering("good", "ok").await;
    let pool = "policy: round_robin, breaker: off, retry: { hedge_after: 95% }";
    let t = Running::with(&[slow.url(), good.url()], pool, "");
    let mut client = t.client().await;
    let mut hedged = 0;
    for _ in 0..70 {
        client.post("/v1/x", "", "body").await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 200);
        hedged += usize::from(reply.header("x-tidegate-reason") == Some("hedge;round_robin"));
    }
    assert!(hedged >= 1, "{hedged}");
    eventually("the slow attempts were cancelled", || closed.load(Relaxed) >= 1).await;
    assert_eq!(t.in_flight(), 0);
}
#[tokio::test]
async fn a_request_that_waits_at_an_endpoint_that_hangs_goes_elsewhere() {
    // Endpoint 0 hangs from its 30th request on; the breaker finds out and sends those who wait elsewhere.
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let hanging = Scripted::start(move |mut c| {
        let count = Arc::clone(&count);
        async move {
            while c.request().await.is_some() {
                if count.fetch_add(1, Relaxed) >= 30 {
                    return c.closed().await;
                }
                c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    let good = Scripted::answering("good", "ok").await;
    let other = Scripted::answering("other", "ok").await;
    let pool = "policy: round_robin, breaker: { name: adaptive, stall_after: 300ms }";
    let t = Running::with(&[hanging.url(), good.url(), other.url()], pool, "");
    // Clients that come whatever becomes of those before them.
    let mut tasks = Vec::new();
    let mut every = tokio::time::interval(std::time::Duration::from_millis(5));
    for _ in 0..400 {
        every.tick().await;
        let mut client = t.client().await;
        tasks.push(tokio::spawn(async move {
            client.post("/v1/x", "", "body").await;
            let reply = client.reply().await;
            (reply.status, reply.header("x-tidegate-reason").is_some_and(|r| r.starts_with("retry;endpoint_hung")))
        }));
    }
    let mut hung = 0;
    for task in tasks {
        let Ok((status, went_elsewhere)) = task.await else { unreachable!("a client that could not ask") };
        assert_eq!(status, 200);
        hung += usize::from(went_elsewhere);
    }
    assert!(hung > 0, "those who waited were sent elsewhere");
    assert_eq!(t.in_flight(), 0);
}
