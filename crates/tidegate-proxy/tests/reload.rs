//! A reload under traffic: nothing in flight is lost, and what both configs have keeps its state.
#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

mod common;

use common::Running;
use std::sync::Arc;
use tidegate_core::breaker::Level;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_testkit::{Client, Scripted, eventually};
use tokio::sync::Notify;

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// An endpoint that streams an event, waits for a word, and ends its stream; whether its connection was closed afterwards is told.
async fn streaming(go_on: &Arc<Notify>, closed: &Arc<Notify>) -> Scripted {
    let (go_on, closed) = (Arc::clone(go_on), Arc::clone(closed));
    Scripted::start(move |mut c| {
        let (go_on, closed) = (Arc::clone(&go_on), Arc::clone(&closed));
        async move {
            while c.request().await.is_some() {
                c.send(STREAM).await;
                c.send_chunk("data: 1\n\n").await;
                go_on.notified().await;
                c.send_chunk("data: [DONE]\n\n").await;
                c.send("0\r\n\r\n").await;
            }
            closed.notify_one();
        }
    })
    .await
}

/// A client whose stream has begun.
async fn begun(t: &Running) -> Client {
    let mut client = t.client().await;
    client.post("/v1/chat/completions", "content-type: application/json\r\n", "{\"stream\":true}").await;
    client.read_until("\r\n\r\n").await;
    assert_eq!(client.chunk().await.unwrap().unwrap(), b"data: 1\n\n");
    client
}

/// Ends a stream that has begun.
async fn ends_well(client: &mut Client) {
    assert_eq!(client.chunk().await.unwrap().unwrap(), b"data: [DONE]\n\n");
    assert_eq!(client.chunk().await, Ok(None));
}

async fn ask(t: &Running) -> tidegate_testkit::Reply {
    let mut client = t.client().await;
    client.get("/", "").await;
    client.reply().await
}

fn pool(urls: &[String], rest: &str) -> String {
    let endpoints: Vec<String> = urls.iter().map(|u| format!("{{ url: \"{u}\" }}")).collect();
    format!("pools:\n  p: {{ policy: round_robin, endpoints: [{}], {rest} }}", endpoints.join(", "))
}

#[tokio::test]
async fn an_endpoint_that_is_taken_out_ends_its_streams_gets_no_more_and_loses_its_connections() {
    let (go_on, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let old = streaming(&go_on, &closed).await;
    let new = Scripted::answering("new", "ok").await;
    let t = Running::from_yaml(&pool(&[old.url()], ""));
    let mut client = begun(&t).await;
    assert_eq!(t.reload(&pool(&[new.url()], "")), 2);
    for _ in 0..3 {
        assert_eq!(ask(&t).await.header("x-name"), Some("new"));
    }
    assert_eq!(t.in_flight(), 1, "the stream is still counted");
    go_on.notify_one();
    ends_well(&mut client).await;
    closed.notified().await;
    assert_eq!(t.in_flight(), 0);
    assert_eq!(t.outcomes().iter().filter(|o| **o == "success").count(), 4);
    // The place of the one that left is free for the next.
    let third = Scripted::answering("third", "ok").await;
    t.reload(&pool(&[new.url(), third.url()], ""));
    let names: Vec<String> =
        [ask(&t).await, ask(&t).await].iter().filter_map(|r| r.header("x-name").map(str::to_owned)).collect();
    assert!(names.contains(&"third".to_owned()), "{names:?}");
    assert_eq!(t.gateway.pools()[0].ids(), [EndpointId(1), EndpointId(0)]);
}

#[tokio::test]
async fn what_is_known_of_an_endpoint_that_stays_survives_another_policy() {
    let [a, b] = [Scripted::answering("a", "ok").await, Scripted::answering("b", "ok").await];
    let t = Running::from_yaml(&pool(&[a.url(), b.url()], ""));
    for _ in 0..4 {
        ask(&t).await;
    }
    let known = || {
        t.gateway.pools()[0].with(|p, _| {
            let stats = &p.endpoints().stats[1];
            (stats.dispatched, stats.succeeded, stats.response_times.mean())
        })
    };
    let before = known();
    assert_eq!((before.0, before.1), (2, 2));
    let pool_before = Arc::clone(&t.gateway.pools()[0]);
    // Another policy, another breaker setting, other order; an operator's drain and weight of what did not change stay.
    pool_before.on_event(Event::Drain { endpoint: EndpointId(0), draining: true });
    t.reload(&format!(
        "pools:\n  p: {{ policy: least_connections, endpoints: [{{ url: \"{}\" }}, {{ url: \"{}\" }}] }}",
        b.url(),
        a.url()
    ));
    assert_eq!(known(), before);
    let pool = Arc::clone(&t.gateway.pools()[0]);
    assert_eq!(pool.ids(), [EndpointId(1), EndpointId(0)], "the ids stay, the order is the file's");
    assert_eq!(pool.with(|p, _| p.config().policy.label()), "least_connections");
    for _ in 0..3 {
        assert_eq!(ask(&t).await.header("x-name"), Some("b"), "a is drained still");
    }
    assert_eq!(pool.with(|p, _| p.level(EndpointId(1), 0)), Level::Full);
}

#[tokio::test]
async fn a_new_endpoint_warms_up_beside_one_that_is_in_use() {
    let [a, b] = [Scripted::answering("a", "ok").await, Scripted::answering("b", "ok").await];
    let t = Running::from_yaml(&pool(&[a.url()], ""));
    ask(&t).await;
    t.reload(&pool(&[a.url(), b.url()], ""));
    let shares = t.gateway.pools()[0].with(|p, now| [0, 1].map(|k| p.share_at(EndpointId(k), now)));
    assert_eq!(shares, [1.0, 0.25]);
}

#[tokio::test]
async fn a_request_in_flight_keeps_the_time_outs_it_started_with() {
    let asked = Arc::new(Notify::new());
    let told = Arc::clone(&asked);
    let silent = Scripted::start(move |mut c| {
        let told = Arc::clone(&told);
        async move {
            while c.request().await.is_some() {
                told.notify_one();
                c.closed().await;
            }
        }
    })
    .await;
    let timeouts = |first_byte: &str| pool(&[silent.url()], &format!("timeouts: {{ first_byte: {first_byte} }}"));
    let t = Running::from_yaml(&timeouts("400ms"));
    let mut old = t.client().await;
    old.get("/", "").await;
    asked.notified().await;
    t.reload(&timeouts("1h"));
    let mut new = t.client().await;
    new.get("/", "").await;
    asked.notified().await;
    assert_eq!(old.reply().await.status, 504, "its own 400 ms");
    assert_eq!(t.in_flight(), 1, "the other goes on waiting");
}

#[tokio::test]
async fn whoever_waits_in_the_queue_stays_there_and_is_served() {
    let (go_on, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let engine = streaming(&go_on, &closed).await;
    let one = |rest: &str| {
        let url = engine.url();
        format!(
            "pools:\n  p: {{ policy: round_robin, endpoints: [{{ url: \"{url}\", max_in_flight: 1 }}], queue: {{ {rest} }} }}"
        )
    };
    let t = Running::from_yaml(&one("max_waiting: 10"));
    let mut first = begun(&t).await;
    let mut second = t.client().await;
    second.post("/v1/chat/completions", "content-type: application/json\r\n", "{\"stream\":true}").await;
    let waiting = || t.gateway.pools()[0].with(|p, _| p.waiting());
    eventually("one waits", || waiting() == 1).await;
    t.reload(&one("max_waiting: 20"));
    assert_eq!(waiting(), 1);
    go_on.notify_one();
    ends_well(&mut first).await;
    second.read_until("\r\n\r\n").await;
    second.chunk().await.unwrap();
    go_on.notify_one();
    ends_well(&mut second).await;
    assert_eq!((t.in_flight(), waiting()), (0, 0));
}

#[tokio::test]
async fn another_rate_neither_mints_tokens_nor_loses_them() {
    let engine = Scripted::answering("a", "ok").await;
    // Refills so slowly that nothing comes back while the test runs.
    let limited = |limit: &str| {
        format!("rate_limits: [{{ name: all, limit: {limit}, burst: 10 }}]\n{}", pool(&[engine.url()], ""))
    };
    let t = Running::from_yaml(&limited("10 requests/h"));
    for _ in 0..7 {
        assert_eq!(ask(&t).await.status, 200);
    }
    t.reload(&limited("11 requests/h"));
    let level = t.gateway.governor().with(|limits, now| limits.levels_at(now)[0].level);
    assert!((2.99..3.1).contains(&level), "{level}: three are left, whatever the rate");
    for _ in 0..3 {
        assert_eq!(ask(&t).await.status, 200);
    }
    assert_eq!(ask(&t).await.status, 429);
    t.reload(&limited("12 requests/h"));
    assert_eq!(ask(&t).await.status, 429);
    assert_eq!(t.gateway.governor().with(|limits, _| limits.outstanding()), 0);
}

#[tokio::test]
async fn a_pool_that_is_gone_ends_with_its_last_stream_and_a_new_one_serves() {
    let (go_on, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let old = streaming(&go_on, &closed).await;
    let new = Scripted::answering("new", "ok").await;
    let t = Running::from_yaml(&pool(&[old.url()], ""));
    let mut client = begun(&t).await;
    let left = Arc::downgrade(&t.gateway.pools()[0]);
    t.reload(&format!(
        "routes: [{{ match: {{ path: /v2/ }}, pool: q }}]\npools:\n  q: {{ endpoints: [{{ url: \"{}\" }}] }}",
        new.url()
    ));
    assert_eq!(ask(&t).await.status, 404, "its routes are gone at once");
    let mut other = t.client().await;
    other.get("/v2/x", "").await;
    assert_eq!(other.reply().await.header("x-name"), Some("new"));
    go_on.notify_one();
    ends_well(&mut client).await;
    closed.notified().await;
    eventually("the pool is gone", || left.upgrade().is_none()).await;
    assert_eq!(t.outcomes().iter().filter(|o| **o == "success").count(), 2);
}

#[tokio::test]
async fn tenants_come_and_go_between_two_requests_of_a_connection() {
    let engine = Scripted::answering("a", "ok").await;
    let known = |name: &str| {
        let ways = "identify: [{ header: { name: x-tenant, trust: [127.0.0.1] } }]";
        format!("tenants: {{ {ways}, named: {{ {name}: {{}} }} }}\n{}", pool(&[engine.url()], ""))
    };
    let t = Running::from_yaml(&known("acme"));
    let mut client = t.client().await;
    client.get("/", "x-tenant: acme\r\n").await;
    assert_eq!(client.reply().await.status, 200);
    t.reload(&known("other"));
    client.get("/", "x-tenant: acme\r\n").await;
    assert_eq!(client.reply().await.status, 401);
    client.get("/", "x-tenant: other\r\n").await;
    assert_eq!(client.reply().await.status, 200);
}

#[tokio::test]
async fn a_journal_of_a_run_with_reloads_can_be_replayed() {
    let folder = std::env::temp_dir().join(format!("tidegate-reloaded-{}", std::process::id()));
    let [a, b, c] = [
        Scripted::answering("a", "ok").await,
        Scripted::answering("b", "ok").await,
        Scripted::answering("c", "ok").await,
    ];
    let journal = |rest: String| format!("journal: {{ folder: '{}' }}\n{rest}", folder.display());
    let t = Running::from_yaml(&journal(pool(&[a.url(), b.url()], "")));
    for urls in [[b.url(), c.url()], [c.url(), a.url()]] {
        for _ in 0..10 {
            assert_eq!(ask(&t).await.status, 200);
        }
        t.reload(&journal(pool(&urls, "queue: {}")).replace("round_robin", "adaptive"));
    }
    for _ in 0..10 {
        assert_eq!(ask(&t).await.status, 200);
    }
    assert!(t.gateway.stop(tidegate_testkit::PATIENCE).await);
    let file = std::fs::File::open(folder.join("p.jsonl")).unwrap();
    let again = tidegate_telemetry::replay(std::io::BufReader::new(file)).unwrap();
    assert_eq!((again.decisions, again.mismatch), (30, None));
    std::fs::remove_dir_all(&folder).unwrap();
}
