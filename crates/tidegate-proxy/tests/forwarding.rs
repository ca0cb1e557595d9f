//! What goes up is what was asked, what comes down is what was answered.

mod common;

use common::Running;
use parking_lot::Mutex;
use std::sync::Arc;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::load::{LoadReport, Unfit};
use tidegate_testkit::{Asked, Scripted};

/// An endpoint that notes every request and answers `ok`.
async fn noting() -> (Scripted, Arc<Mutex<Vec<Asked>>>) {
    let seen: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let notes = Arc::clone(&seen);
    let endpoint = Scripted::start(move |mut c| {
        let notes = Arc::clone(&notes);
        async move {
            while let Some(asked) = c.request().await {
                notes.lock().push(asked);
                c.send("HTTP/1.1 200 OK\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nx-end: 2\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    (endpoint, seen)
}

#[tokio::test]
async fn requests_and_answers_pass_whole_on_kept_connections() {
    let (endpoint, seen) = noting().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    for n in 0..3 {
        client.post(&format!("/a/b?q={n}"), "x-request-id: abc\r\ncontent-type: text/plain\r\n", "hello").await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text().as_str()), (200, "ok"));
        assert_eq!(reply.header("x-request-id"), Some("abc"));
        assert_eq!(reply.header("x-tidegate-endpoint"), Some(endpoint.url().as_str()));
        assert_eq!(reply.header("x-tidegate-reason"), Some("round_robin"));
        assert_eq!((reply.header("x-hop"), reply.header("keep-alive"), reply.header("x-end")), (None, None, Some("2")));
    }
    assert_eq!(endpoint.connections(), 1, "one upstream connection carries them all");
    let seen = seen.lock();
    assert!(seen[2].head.starts_with("POST /a/b?q=2 HTTP/1.1\r\n"));
    assert_eq!((seen[2].body.as_slice(), seen[2].header("host")), (b"hello".as_slice(), Some("test")));
    assert_eq!(seen[2].header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen[2].header("x-request-id"), Some("abc"));
    assert_eq!(t.outcomes(), ["success"; 3]);
}

#[tokio::test]
async fn a_request_without_an_id_gets_a_uuid_of_its_own() {
    let (endpoint, seen) = noting().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    for _ in 0..2 {
        client.get("/", "").await;
        client.reply().await;
    }
    let seen = seen.lock();
    let ids: Vec<&str> = seen.iter().filter_map(|r| r.header("x-request-id")).collect();
    assert!(ids.len() == 2 && ids[0] != ids[1], "{ids:?}");
    for id in ids {
        let parts: Vec<&str> = id.split('-').collect();
        assert_eq!(parts.iter().map(|p| p.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{id}");
        assert!(parts.iter().all(|p| u64::from_str_radix(p, 16).is_ok()), "{id}");
        assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']), "version 4: {id}");
    }
}

#[tokio::test]
async fn hop_by_hop_headers_stay_on_their_hop() {
    let (endpoint, seen) = noting().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    let headers = "connection: x-private, keep-alive\r\nx-private: 1\r\nte: trailers\r\nupgrade: h2c\r\nproxy-connection: x\r\nx-kept: 1\r\n";
    client.get("/", headers).await;
    client.reply().await;
    let seen = seen.lock();
    // Trailers are relayed, so they may be asked for; on our own hop, and in our own words.
    assert_eq!((seen[0].header("te"), seen[0].header("connection")), (Some("trailers"), Some("te")));
    for gone in ["x-private", "upgrade", "proxy-connection"] {
        assert_eq!(seen[0].header(gone), None, "{gone}");
    }
    assert_eq!(seen[0].header("x-kept"), Some("1"));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let endpoint = Scripted::start(|mut c| async move {
        while let Some(asked) = c.request().await {
            let path = asked.head.split(' ').nth(1).unwrap().to_owned();
            c.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len())).await;
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.send("GET /1 HTTP/1.1\r\nhost: a\r\n\r\nPOST /2 HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\nGET /3 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    for expected in ["/1", "/2", "/3"] {
        assert_eq!(client.reply().await.text(), expected);
    }
}

#[tokio::test]
async fn a_body_larger_than_the_sniff_limit_is_streamed_whole() {
    let (endpoint, seen) = noting().await;
    let t =
        Running::with(&[endpoint.url()], "policy: round_robin", "limits: { sniff_bytes: 1KiB, max_body_bytes: 64KiB }");
    let mut client = t.client().await;
    let body = "x".repeat(50_000);
    client.post("/v1/chat/completions", "content-type: application/json\r\n", &body).await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(seen.lock()[0].body.len(), 50_000);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await;
    for _ in 0..5 {
        client.send(format!("2000\r\n{}\r\n", "y".repeat(0x2000))).await;
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(seen.lock()[1].body.iter().filter(|&&b| b == b'y').count(), 5 * 0x2000);
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let endpoint = Scripted::start(|mut c| async move {
        while let Some(asked) = c.request().await {
            if asked.head.starts_with("HEAD") {
                c.send("HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n").await;
            } else {
                c.send("HTTP/1.1 204 No Content\r\n\r\n").await;
            }
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.send("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(client.read_until("\r\n\r\n").await.contains("content-length: 500"));
    client.get("/", "").await;
    assert!(client.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 204"));
    assert_eq!(endpoint.connections(), 1);
    assert_eq!(t.outcomes(), ["success"; 2]);
}

#[tokio::test]
async fn routes_go_by_path_model_and_header() {
    let (chat, code, gold) = (
        Scripted::answering("chat", "chat").await,
        Scripted::answering("code", "code").await,
        Scripted::answering("gold", "gold").await,
    );
    let t = Running::from_yaml(&format!(
        "routes:\n- {{ match: {{ headers: {{ x-tier: gold }} }}, pool: gold }}\n- {{ match: {{ path: /v1/, models: ['code-*'] }}, pool: code }}\n- {{ match: {{ path: /v1/ }}, pool: chat }}\npools:\n  chat: {{ endpoints: [{{ url: '{}' }}] }}\n  code: {{ endpoints: [{{ url: '{}' }}] }}\n  gold: {{ endpoints: [{{ url: '{}' }}] }}",
        chat.url(),
        code.url(),
        gold.url()
    ));
    let mut client = t.client().await;
    for (headers, model, expected) in
        [("", "llama", "chat"), ("", "code-7b", "code"), ("x-tier: gold\r\n", "code-7b", "gold")]
    {
        client
            .post(
                "/v1/completions",
                &format!("content-type: application/json\r\n{headers}"),
                &format!("{{\"model\":\"{model}\"}}"),
            )
            .await;
        assert_eq!(client.reply().await.text(), expected);
    }
    client.get("/elsewhere", "").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text().contains("\"no_route\"")), (404, true));
}

#[tokio::test]
async fn sessions_keep_their_endpoint() {
    let endpoints =
        [Scripted::answering("a", "a").await, Scripted::answering("b", "b").await, Scripted::answering("c", "c").await];
    let urls: Vec<String> = endpoints.iter().map(Scripted::url).collect();
    let t = Running::with(&urls, "policy: random, affinity: { key: { header: x-session-id } }", "");
    let mut client = t.client().await;
    for session in 0..10 {
        let mut homes = std::collections::BTreeSet::new();
        for n in 0..5 {
            client.get("/", &format!("x-session-id: {session}\r\n")).await;
            let reply = client.reply().await;
            homes.insert(reply.text());
            assert_eq!(reply.header("x-tidegate-reason"), Some(if n == 0 { "random" } else { "affinity" }));
        }
        assert_eq!(homes.len(), 1);
    }
}

#[tokio::test]
async fn a_caller_can_ask_why() {
    let endpoints = [Scripted::answering("a", "a").await, Scripted::answering("b", "b").await];
    let urls: Vec<String> = endpoints.iter().map(Scripted::url).collect();
    let t = Running::with(&urls, "policy: least_connections, load: { accelerator: {} }", "");
    let mut client = t.client().await;
    client.get("/", "x-tidegate-explain: 1\r\n").await;
    let explain = client.reply().await.header("x-tidegate-explain").unwrap().to_owned();
    assert!(urls.iter().all(|u| explain.contains(u)), "{explain}");
    client.get("/", "").await;
    assert_eq!(client.reply().await.header("x-tidegate-explain"), None);
    client.get("/", "x-tidegate-explain: 0\r\n").await;
    let silent = client.reply().await;
    assert_eq!((silent.status, silent.header("x-tidegate-explain")), (200, None));
    for bad in ["x-tidegate-explain: yes\r\n", "x-tidegate-explain: 1\r\nx-tidegate-explain: 0\r\n"] {
        client.get("/", bad).await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 400);
        assert!(reply.text().contains("x-tidegate-explain is 1 or 0, given once"), "{}", reply.text());
    }
    let pool = &t.gateway.pools()[0];
    pool.with(|p, now| {
        let report = LoadReport { sampled_at: now, unfit: Some(Unfit::GpuTooHot), ..LoadReport::default() };
        p.on_event(now, Event::LoadReported { endpoint: EndpointId(0), report });
    });
    client.get("/", "x-tidegate-explain: 1\r\n").await;
    let reply = client.reply().await;
    let explain: serde_json::Value = serde_json::from_str(reply.header("x-tidegate-explain").unwrap()).unwrap();
    assert_eq!(reply.header("x-tidegate-endpoint"), Some(&*urls[1]), "a rule without max_load");
    assert_eq!(explain["excluded"][&urls[0]], "unfit:gpu_too_hot", "{explain}");
    assert_eq!(explain.get("left_out"), None, "{explain}");
}

#[tokio::test]
async fn an_explanation_says_how_many_it_leaves_out() {
    let mut urls = Vec::new();
    let mut endpoints = Vec::new();
    for _ in 0..35 {
        endpoints.push(Scripted::answering("a", "a").await);
        urls.push(endpoints.last().unwrap().url());
    }
    let t = Running::with(&urls, "policy: least_response_time", "");
    let mut client = t.client().await;
    client.get("/", "x-tidegate-explain: 1\r\n").await;
    let reply = client.reply().await;
    let explain: serde_json::Value = serde_json::from_str(reply.header("x-tidegate-explain").unwrap()).unwrap();
    assert_eq!(explain["candidates"].as_object().unwrap().len(), 32);
    assert_eq!(explain["left_out"], serde_json::json!({ "candidates": 3, "excluded": 0, "held_back": 0 }));
}

#[tokio::test]
async fn an_absolute_target_decides_the_host_and_an_empty_line_before_it_is_ignored() {
    let (endpoint, seen) = noting().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.send("\r\nGET http://real:81/a?b HTTP/1.1\r\nhost: pretended\r\n\r\n").await;
    assert_eq!(client.reply().await.status, 200);
    let seen = seen.lock();
    assert!(seen[0].head.starts_with("GET /a?b HTTP/1.1"), "{}", seen[0].head);
    assert_eq!(seen[0].header("host"), Some("real:81"));
}
