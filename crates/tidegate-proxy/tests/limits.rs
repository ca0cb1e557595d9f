//! Limits as clients meet them.

mod common;

use common::Running;
use std::time::Duration;
use tidegate_testkit::{Client, Reply, Scripted, eventually};

/// A request that is estimated at 100 tokens: 160 bytes of prompt and up to 60 of output.
fn body(max_tokens: u32) -> String {
    format!("{{\"model\":\"m\",\"max_tokens\":{max_tokens},\"prompt\":\"{}\"}}", "x".repeat(158))
}

const JSON: &str = "content-type: application/json\r\n";

async fn engine(output_tokens: u32) -> Scripted {
    Scripted::start(move |mut c| async move {
        while c.request().await.is_some() {
            let text = format!("{{\"usage\":{{\"prompt_tokens\":40,\"completion_tokens\":{output_tokens}}}}}");
            c.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len())).await;
        }
    })
    .await
}

async fn ask(t: &Running, extra: &str, body: &str) -> Reply {
    let mut client = t.client().await;
    client.post("/v1/completions", &format!("{JSON}{extra}"), body).await;
    client.reply().await
}

/// A thousand at once: how many were admitted, and the refusals.
async fn thousand(t: &Running) -> (usize, Vec<Reply>) {
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..1000 {
        clients.push(t.client().await);
    }
    for client in &mut clients {
        client.post("/v1/completions", JSON, &body(60)).await;
    }
    let (mut admitted, mut refused) = (0, Vec::new());
    for mut client in clients {
        let reply = client.reply().await;
        match reply.status {
            200 => admitted += 1,
            _ => refused.push(reply),
        }
    }
    (admitted, refused)
}

fn seconds(reply: &Reply, header: &str) -> u64 {
    reply.header(header).and_then(|v| v.parse().ok()).unwrap_or_else(|| unreachable!("no {header}: {}", reply.head))
}

#[tokio::test]
async fn concurrent_requests_do_not_slip_past_a_token_limit() {
    // gateways.md 38: with 100 tokens per minute and five at once, all five were let through.
    let e = engine(60).await;
    // Slow enough that nothing flows back while a thousand requests arrive.
    let t =
        Running::with(&[e.url()], "policy: round_robin", "rate_limits: [{ name: all, limit: 10_000 tokens/1000s }]");
    let (admitted, refused) = thousand(&t).await;
    assert_eq!((admitted, refused.len()), (100, 900));
    for reply in &refused {
        assert_eq!(reply.status, 429);
        assert!(reply.text().contains("\"global_rate_limit_exceeded\""), "{}", reply.text());
        assert_eq!(reply.header("ratelimit-limit"), Some("10000"));
        assert!(seconds(reply, "retry-after") <= 10, "a hundred tokens flow in ten seconds");
    }
    assert_eq!(t.gateway.governor().with(|l, _| l.outstanding()), 0);
}

#[tokio::test]
async fn a_retry_after_is_true_when_tried() {
    let e = engine(60).await;
    let t = Running::with(&[e.url()], "policy: round_robin", "rate_limits: [{ name: all, limit: 300 tokens/3s }]");
    for _ in 0..3 {
        assert_eq!(ask(&t, "", &body(60)).await.status, 200);
    }
    let reply = ask(&t, "", &body(60)).await;
    assert_eq!((reply.status, seconds(&reply, "retry-after")), (429, 1));
    let then = t.gateway.clock().now() + Duration::from_secs(1);
    eventually("the time it was told has passed", || t.gateway.clock().now() >= then).await;
    assert_eq!(ask(&t, "", &body(60)).await.status, 200);
}

#[tokio::test]
async fn what_was_used_beyond_the_estimate_is_a_debt_that_is_paid_before_more_is_let_in() {
    // gateways.md 66: 1,200 tokens from a bucket of 1,000 forgave 200.
    let e = engine(160).await;
    let t =
        Running::with(&[e.url()], "policy: round_robin", "rate_limits: [{ name: all, limit: 10_000 tokens/1000s }]");
    let (admitted, refused) = thousand(&t).await;
    assert_eq!(admitted + refused.len(), 1000);
    assert!(admitted <= 100, "{admitted}");
    let level = t.gateway.governor().with(|l, now| l.levels_at(now)[0].level);
    let owed = 10_000.0 - 200.0 * admitted as f64;
    assert!((level - owed).abs() < 60.0, "{level} tokens left, {owed} expected");
    let reply = ask(&t, "", &body(60)).await;
    let wait = seconds(&reply, "retry-after") as f64;
    assert!((wait - (100.0 - level) / 10.0).abs() <= 2.0, "{wait} s to repay {level}");
}

#[tokio::test]
async fn a_request_that_can_never_fit_is_told_so_once() {
    // smg#1397: a request larger than the bucket was told to come again, for ever.
    let e = engine(60).await;
    let t = Running::with(&[e.url()], "policy: round_robin", "rate_limits: [{ name: all, limit: 1000 tokens/min }]");
    let reply = ask(&t, "", &body(5000)).await;
    assert_eq!((reply.status, reply.header("x-should-retry"), reply.header("retry-after")), (413, Some("false"), None));
    assert!(reply.text().contains("\"request_exceeds_limit\"") && reply.text().contains("`all`"), "{}", reply.text());
}

#[tokio::test]
async fn successes_carry_what_is_left() {
    let e = engine(60).await;
    let t = Running::with(&[e.url()], "policy: round_robin", "rate_limits: [{ name: all, limit: 5 requests/h }]");
    for left in ["4", "3"] {
        let reply = ask(&t, "", &body(60)).await;
        assert_eq!((reply.status, reply.header("ratelimit-remaining")), (200, Some(left)));
    }
}

#[tokio::test]
async fn a_client_that_leaves_gives_back_what_it_reserved() {
    let silent = Scripted::start(|mut c| async move { c.closed().await }).await;
    let t = Running::with(&[silent.url()], "policy: round_robin", "rate_limits: [{ name: all, limit: 1000 tokens/h }]");
    let mut client = t.client().await;
    client.post("/v1/completions", JSON, &body(60)).await;
    eventually("reserved", || t.gateway.governor().with(|l, _| l.outstanding()) == 1).await;
    assert!((t.gateway.governor().with(|l, now| l.levels_at(now)[0].level) - 900.0).abs() < 1.0);
    drop(client);
    eventually("released", || t.gateway.governor().with(|l, _| l.outstanding()) == 0).await;
    assert!((t.gateway.governor().with(|l, now| l.levels_at(now)[0].level) - 1000.0).abs() < 1.0);
}

#[tokio::test]
async fn each_tenant_has_its_own_limit_and_nobody_elses() {
    let e = engine(60).await;
    let tenants = "tenants: { identify: [{ header: { name: x-tenant, trust: [127.0.0.1] } }], unknown: accept }\n\
                   rate_limits: [{ name: each, limit: 2 requests/h, per: tenant, overrides: { big: { amount: 4 } } }]";
    let t = Running::with(&[e.url()], "policy: round_robin", tenants);
    for (tenant, admitted) in [("a", 2), ("b", 2), ("big", 4)] {
        let mut statuses = Vec::new();
        for _ in 0..admitted + 1 {
            let reply = ask(&t, &format!("x-tenant: {tenant}\r\n"), &body(60)).await;
            statuses.push(reply.status);
            assert!(reply.status == 200 || reply.text().contains("\"tenant_rate_limit_exceeded\""));
        }
        assert_eq!(statuses.iter().filter(|s| **s == 200).count(), admitted, "{tenant}");
    }
}

#[tokio::test]
async fn a_leaky_bucket_spaces_requests_out_instead_of_refusing_them() {
    let e = engine(60).await;
    let limit = "rate_limits: [{ name: paced, limit: 20 requests/s, max_wait: 2s }]";
    let t = Running::with(&[e.url()], "policy: round_robin", limit);
    let begin = t.gateway.clock().now();
    let replies = futures_join((0..10).map(|_| async { ask(&t, "", &body(60)).await.status })).await;
    assert_eq!(replies, [200; 10]);
    let took = t.gateway.clock().now().since(begin);
    assert!(took >= Duration::from_millis(400), "{took:?}");
}

/// Runs all futures at once on this task.
async fn futures_join<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = futures.map(|f| (Box::pin(f), None)).collect();
    std::future::poll_fn(|cx| {
        for (future, done) in &mut all {
            if done.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(cx)
            {
                *done = Some(value);
            }
        }
        if all.iter().all(|(_, d)| d.is_some()) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|(_, d)| d).collect()
}

#[tokio::test]
async fn a_share_that_is_short_waits_in_line_where_the_limit_says_so() {
    let e = engine(60).await;
    let top = "tenants: { identify: [{ header: { name: x-tenant, trust: [127.0.0.1] } }], unknown: accept }\n\
               rate_limits: [{ name: shared, limit: 50 requests/s, max_wait: 3s, shares: { a: { assured: 20 requests/s } } }]";
    let t = Running::with(&[e.url()], "policy: round_robin", top);
    let replies = futures_join((0..60).map(|_| async { ask(&t, "x-tenant: a\r\n", &body(60)).await.status })).await;
    assert_eq!(replies, [200; 60]);
}

#[tokio::test]
async fn requests_in_flight_are_limited_and_their_places_come_back() {
    // governance.md 47: a slot of a cancelled request was never returned.
    let silent = Scripted::start(|mut c| async move { c.closed().await }).await;
    let top = "concurrency_limits: [{ name: streams, max_in_flight: 2 }]";
    let t = Running::with(&[silent.url()], "policy: round_robin", top);
    let outstanding = || t.gateway.governor().with(|l, _| l.outstanding());
    for _ in 0..20 {
        let (mut one, mut two) = (t.client().await, t.client().await);
        one.get("/", "").await;
        two.get("/", "").await;
        eventually("both are in", || outstanding() == 2).await;
        let mut three = t.client().await;
        three.get("/", "").await;
        let reply = three.reply().await;
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{}", reply.text());
        drop((one, two));
        eventually("both have left", || outstanding() == 0).await;
    }
}
