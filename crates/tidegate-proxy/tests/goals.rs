//! Goals for the first token: who has one, what is recorded of it, and requests that cannot meet theirs.

mod common;

use common::Running;
use std::time::Duration;
use tidegate_proxy::digest;
use tidegate_testkit::{Reply, Scripted, eventually};

const JSON: &str = "content-type: application/json\r\n";

/// An engine that takes a while, and tells whether it saw the header.
async fn engine(takes: Duration) -> Scripted {
    Scripted::start(move |mut c| async move {
        while let Some(asked) = c.request().await {
            let is_slow = asked.header("x-slow").is_some();
            tidegate_testkit::takes(if is_slow { takes * 50 } else { takes }).await;
            let saw = if asked.header("x-tidegate-ttft-ms").is_some() { "seen" } else { "none" };
            c.send(format!("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{saw}")).await;
        }
    })
    .await
}

async fn ask(t: &Running, headers: &str) -> Reply {
    let mut client = t.client().await;
    client.post("/v1/completions", &format!("{JSON}{headers}"), "{\"prompt\":\"a short one\"}").await;
    client.reply().await
}

#[tokio::test]
async fn a_request_s_goal_comes_before_its_tenant_s_and_that_before_the_pool_s() {
    let e = engine(Duration::ZERO).await;
    let key = |key: &str| digest(key).iter().map(|b| format!("{b:02x}")).collect::<String>();
    let tenants = format!(
        "tenants: {{ identify: [{{ api_key: {{}} }}], named: {{ a: {{ keys: ['sha256:{}'], slo: {{ ttft: 3s }} }}, b: {{ keys: ['sha256:{}'] }} }} }}",
        key("key-a"),
        key("key-b")
    );
    let t = Running::with(&[e.url()], "slo: { ttft: 2s, tpot: 100ms }", &tenants);
    for (headers, goal) in [
        ("authorization: Bearer key-b\r\n", 2.0),
        ("authorization: Bearer key-a\r\n", 3.0),
        ("authorization: Bearer key-a\r\nx-tidegate-ttft-ms: 1500\r\n", 1.5),
    ] {
        let before = t.records.len();
        let reply = ask(&t, headers).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, "none"));
        eventually("it is recorded", || t.records.len() > before).await;
        let record = t.records().pop().expect("a record");
        assert_eq!((record.ttft_goal_s, record.tpot_goal_s), (goal, 0.1), "{headers}");
    }
    let before = t.records.len();
    ask(&t, "authorization: Bearer key-a\r\nx-tidegate-tpot-ms: 40\r\n").await;
    eventually("it is recorded", || t.records.len() > before).await;
    let record = t.records().pop().expect("a record");
    assert_eq!((record.ttft_goal_s, record.tpot_goal_s), (3.0, 0.04), "each goal for itself");
}

#[tokio::test]
async fn a_goal_that_is_none_is_refused_and_without_slo_the_header_passes() {
    let e = engine(Duration::ZERO).await;
    let t = Running::with(&[e.url()], "slo: {}", "");
    for bad in [
        "0",
        "soon",
        "-5",
        "3600001",
        "1.5",
        "100\r\nx-tidegate-ttft-ms: 100",
        "100\r\nX-Tidegate-TTFT-ms: 200",
        "100, 200",
    ] {
        let reply = ask(&t, &format!("x-tidegate-ttft-ms: {bad}\r\n")).await;
        assert_eq!(reply.status, 400, "{bad}");
        let text = reply.text();
        assert!(
            text.contains("\"code\":\"invalid_header\"") && text.contains("\"param\":\"x-tidegate-ttft-ms\""),
            "{text}"
        );
    }
    let outcomes = t.outcomes();
    assert_eq!(outcomes, ["invalid_header"; 8]);
    for bad in ["0", "60001"] {
        let reply = ask(&t, &format!("x-tidegate-tpot-ms: {bad}\r\n")).await;
        assert!(reply.status == 400 && reply.text().contains("x-tidegate-tpot-ms is"), "{}", reply.text());
    }
    let t = Running::with(&[e.url()], "policy: adaptive", "");
    assert_eq!(ask(&t, "x-tidegate-ttft-ms: soon\r\n").await.text(), "seen");
}

#[tokio::test]
async fn a_request_that_would_come_too_late_is_refused_at_once_and_told_when_to_come_back() {
    let e = engine(Duration::from_millis(200)).await;
    let t = Running::with(&[e.url()], "slo: { ttft: 10s, refuse_late: true }", "");
    for _ in 0..3 {
        assert_eq!(ask(&t, "").await.status, 200, "its goal is far away");
    }
    assert_eq!(ask(&t, "x-tidegate-ttft-ms: 1\r\n").await.status, 200, "an idle endpoint is always tried");
    let mut slow = t.client().await;
    slow.get("/", "x-slow: 1\r\n").await;
    eventually("one is there", || t.in_flight() == 1).await;
    let reply = ask(&t, "x-tidegate-ttft-ms: 1\r\n").await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.text().contains("\"code\":\"ttft_goal_unreachable\""), "{}", reply.text());
    assert!(reply.header("retry-after").is_some_and(|v| v.parse::<u64>().is_ok_and(|s| s >= 1)));
    eventually("all are recorded", || t.records.len() == 5).await;
    let record = t.records().pop().expect("a record");
    assert_eq!((record.outcome, record.met_goal()), ("ttft_goal_unreachable", Some(false)));
    assert_eq!(ask(&t, "").await.status, 200);
    drop(slow);
}
