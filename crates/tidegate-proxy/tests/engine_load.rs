//! What engines tell of themselves with their answers, and prompts that go where their beginning is known.

mod common;

use common::Running;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::id::EndpointId;
use tidegate_core::load::WorkReport;
use tidegate_testkit::Scripted;

const JSON: &str = "content-type: application/json\r\n";

/// An engine that answers with these further header lines and body, and keeps the heads it saw.
async fn engine(headers: &'static str, body: &'static str) -> (Scripted, Arc<Mutex<Vec<Option<String>>>>) {
    let formats: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let kept = Arc::clone(&formats);
    let engine = Scripted::start(move |mut c| {
        let kept = Arc::clone(&kept);
        async move {
            while let Some(asked) = c.request().await {
                kept.lock().push(asked.header("endpoint-load-metrics-format").map(str::to_owned));
                let length = body.len();
                c.send(format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
                ))
                .await;
            }
        }
    })
    .await;
    (engine, formats)
}

#[tokio::test]
async fn load_that_an_answer_tells_reaches_the_pool_and_not_the_client() {
    let header = "endpoint-load-metrics: TEXT named_metrics.kv_cache_usage_perc=0.25,named_metrics.num_requests_waiting=3,application_utilization=0.5\r\n";
    let (e, formats) = engine(header, "{}").await;
    let t = Running::with(&[e.url()], "load: { orca: true }", "");
    let mut client = t.client().await;
    client.post("/v1/completions", JSON, "{\"prompt\":\"x\"}").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.header("endpoint-load-metrics")), (200, None));
    assert_eq!(*formats.lock(), [Some("TEXT".to_owned())]);
    let last = t.gateway.pools()[0].with(|p, _| p.endpoints().loads[0].last().copied()).expect("a report");
    let work = WorkReport { waiting: Some(3.0), kv_usage: Some(0.25), ..WorkReport::default() };
    assert_eq!((last.load, last.work), (Some(0.5), work));
}

#[tokio::test]
async fn beside_pages_an_answer_s_load_waits_for_the_next_of_them() {
    let (e, formats) = engine("endpoint-load-metrics: application_utilization=0.5\r\n", "{}").await;
    let t = Running::with(&[e.url()], "load: { orca: true, metrics: {}, max_age: 5s }", "");
    let mut client = t.client().await;
    client.get("/", "").await;
    assert_eq!(client.reply().await.header("endpoint-load-metrics"), None);
    assert_eq!(*formats.lock(), [Some("TEXT".to_owned())]);
    let (told, later) = t.gateway.pools()[0].with_endpoints(|p, now, all| {
        assert!(p.endpoints().loads[0].last().is_none(), "it takes no page's place");
        let max_age = Duration::from_secs(5);
        (all[0].answered_at(now, max_age), all[0].answered_at(now + max_age, max_age))
    });
    assert_eq!((told.and_then(|r| r.load), later), (Some(0.5), None));
    t.gateway.pools()[0].with_endpoints(|_, _, all| all[0].set_unheard(true));
    let last = || t.gateway.pools()[0].with(|p, _| p.endpoints().loads[0].last().copied());
    // At most ten are heard in a second, so it takes some more of them.
    let heard = async {
        while last().is_none() {
            client.get("/", "").await;
            assert_eq!(client.reply().await.status, 200);
        }
    };
    tokio::time::timeout(Duration::from_secs(20), heard).await.expect("an answer that is told");
    assert_eq!(last().and_then(|r| r.load), Some(0.5), "with pages that fail, answers are all there is");
}

#[tokio::test]
async fn where_nobody_asks_for_load_headers_pass_as_they_are() {
    let (e, formats) = engine("endpoint-load-metrics: cpu_utilization=0.5\r\n", "{}").await;
    let t = Running::with(&[e.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.get("/", "endpoint-load-metrics-format: JSON\r\n").await;
    assert_eq!(client.reply().await.header("endpoint-load-metrics"), Some("cpu_utilization=0.5"));
    assert_eq!(*formats.lock(), [Some("JSON".to_owned())]);
    assert!(t.gateway.pools()[0].with(|p, _| p.endpoints().loads[0].last().is_none()));
}

fn conversation(who: usize, turns: usize) -> String {
    let turn = |k| format!("{{\"role\":\"user\",\"content\":\"{} asks {k}: {}\"}}", who, "a long question ".repeat(40));
    let turns: Vec<String> = (0..turns).map(turn).collect();
    format!("{{\"model\":\"m\",\"messages\":[{}]}}", turns.join(","))
}

/// Eight conversations of four turns, one request after the other: where each request went.
async fn places(t: &Running) -> Vec<Vec<String>> {
    let mut client = t.client().await;
    let mut places = vec![Vec::new(); 8];
    for turns in 1..5 {
        for (who, seen) in places.iter_mut().enumerate() {
            client.post("/v1/chat/completions", JSON, &conversation(who, turns)).await;
            let reply = client.reply().await;
            seen.push(reply.header("x-tidegate-endpoint").unwrap_or_default().to_owned());
        }
    }
    places
}

const CACHE: &str = "policy: { name: prefix_affinity, threshold: 0.3 }, warm_up: off, prefix_cache: { block: 16 }";

#[tokio::test]
async fn a_conversation_stays_where_its_beginning_was_computed() {
    let (a, b) = (engine("", "{}").await.0, engine("", "{}").await.0);
    let places = places(&Running::with(&[a.url(), b.url()], CACHE, "")).await;
    assert!(places.iter().all(|seen| seen.iter().all(|at| *at == seen[0])), "{places:?}");
    let both: std::collections::BTreeSet<_> = places.iter().flatten().collect();
    assert_eq!(both.len(), 2, "each engine has some: {places:?}");
}

#[tokio::test]
async fn an_engine_whose_answers_tell_of_no_cached_tokens_is_believed_less() {
    let told =
        "{\"usage\":{\"prompt_tokens\":400,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":0}}}";
    for (body, is_believed) in [(told, false), ("{\"usage\":{\"prompt_tokens\":400,\"completion_tokens\":1}}", true)] {
        let e = engine("", body).await.0;
        let t = Running::with(&[e.url()], CACHE, "");
        places(&t).await;
        let trust = t.gateway.pools()[0].with(|p, _| p.prefixes().map(|i| i.trust(EndpointId(0)))).expect("an index");
        assert_eq!(trust >= 1.0, is_believed, "{trust}");
    }
}

#[tokio::test]
async fn where_nothing_is_remembered_no_prompt_is_looked_at() {
    let e = engine("", "{}").await.0;
    let t = Running::with(&[e.url()], "policy: adaptive", "");
    places(&t).await;
    assert!(t.gateway.pools()[0].with(|p, _| p.prefixes().is_none()));
}
