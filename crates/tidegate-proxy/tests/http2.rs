//! HTTP/2 of clients, by prior knowledge: the same service as over HTTP/1.1, and the same end for a client that leaves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests: a failed expectation is a failed test")]

mod common;

use common::h2_client::{Answer, H2};
use common::{Running, curl};
use http::Request;
use parking_lot::Mutex;
use std::sync::Arc;
use tidegate_testkit::{Asked, PATIENCE, Scripted, eventually};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// An endpoint that notes every request and answers `ok`.
async fn noting() -> (Scripted, Arc<Mutex<Vec<Asked>>>) {
    let seen: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let notes = Arc::clone(&seen);
    let endpoint = Scripted::start(move |mut c| {
        let notes = Arc::clone(&notes);
        async move {
            while let Some(asked) = c.request().await {
                notes.lock().push(asked);
                c.send("HTTP/1.1 200 OK\r\nkeep-alive: timeout=5\r\nx-end: 2\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    (endpoint, seen)
}

/// An endpoint that answers once for each permit of `go`.
async fn gated(go: &Arc<Semaphore>) -> Scripted {
    let go = Arc::clone(go);
    Scripted::start(move |mut c| {
        let go = Arc::clone(&go);
        async move {
            while let Some(_asked) = c.request().await {
                go.acquire().await.expect("open").forget();
                c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_request_is_served_as_one_of_http1_would_be() {
    let (endpoint, seen) = noting().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = H2::connect(t.address()).await;
    let request = Request::post("http://models.example.org/v1/x?q=1")
        .header("x-request-id", "abc")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body("hello")
        .unwrap();
    let answer = client.ask(request).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
    assert_eq!((answer.header("x-request-id"), answer.header("x-end")), (Some("abc"), Some("2")));
    assert_eq!(answer.header("x-tidegate-endpoint"), Some(endpoint.url().as_str()));
    assert_eq!(answer.header("keep-alive"), None, "a header of one hop stays on it");
    let seen = seen.lock();
    assert!(seen[0].head.starts_with("POST /v1/x?q=1 HTTP/1.1\r\n"), "{}", seen[0].head);
    assert_eq!(seen[0].header("host"), Some("models.example.org"));
    assert_eq!(seen[0].header("cookie"), Some("a=1; b=2"), "pieces of a cookie are one line in HTTP/1.1");
    assert_eq!((seen[0].header("content-length"), seen[0].body.as_slice()), (Some("5"), b"hello".as_slice()));
    assert_eq!(t.outcomes(), ["success"]);
}

#[tokio::test]
async fn one_listener_serves_both_protocols_to_curl() {
    let (endpoint, _) = noting().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let url = format!("http://{}/v1/models", t.address());
    for (flag, version) in [("--http2-prior-knowledge", "2"), ("--http1.1", "1.1"), ("--http2", "1.1")] {
        let (told, ok) = curl(&[flag, "-w", " %{http_version} %{http_code}", &url]).await;
        assert!(ok && told == format!("ok {version} 200"), "{flag}: {told}");
    }
}

#[tokio::test]
async fn streams_of_one_connection_do_not_wait_for_each_other() {
    let go = Arc::new(Semaphore::new(0));
    let slow = gated(&go).await;
    let (quick, _) = noting().await;
    let t = Running::from_yaml(&format!(
        "pools:\n  slow: {{ endpoints: [{{ url: \"{}\" }}] }}\n  quick: {{ endpoints: [{{ url: \"{}\" }}] }}\nroutes:\n  - {{ match: {{ path: /slow }}, pool: slow }}\n  - {{ match: {{ path: /quick }}, pool: quick }}",
        slow.url(),
        quick.url()
    ));
    let mut client = H2::connect(t.address()).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(client.begin(Request::get("http://t/slow").body(()).unwrap(), true).await.0);
    }
    eventually("three in flight", || t.in_flight() == 3).await;
    assert_eq!(client.get("http://t/quick").await.status, 200);
    go.add_permits(3);
    for response in held {
        assert_eq!(Answer::read(response.await.unwrap()).await.unwrap().text(), "ok");
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_stops_the_engine_and_gives_back_its_place() {
    let closed = Arc::new(Semaphore::new(0));
    let told = Arc::clone(&closed);
    let endpoint = Scripted::start(move |mut c| {
        let told = Arc::clone(&told);
        async move {
            let Some(asked) = c.request().await else { return };
            if asked.head.starts_with("GET /events") {
                c.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
                    .await;
                c.send_chunk("data: 1\n\n").await;
            }
            c.closed().await;
            told.add_permits(1);
        }
    })
    .await;
    let limits = "concurrency_limits: [{ name: one, max_in_flight: 1 }]";
    let t = Running::with(&[endpoint.url()], "policy: round_robin", limits);
    let mut client = H2::connect(t.address()).await;
    // Before the answer, and in the midst of it.
    for path in ["/silent", "/events"] {
        let request = Request::get(format!("http://t{path}")).body(()).unwrap();
        let (response, mut stream) = client.begin(request, true).await;
        eventually("it is in flight", || t.in_flight() == 1).await;
        let answer = if path == "/events" {
            let mut answer = response.await.unwrap();
            assert_eq!(answer.body_mut().data().await.unwrap().unwrap(), "data: 1\n\n");
            Some(answer)
        } else {
            None
        };
        assert_eq!(client.get("http://t/more").await.status, 429, "the one place is taken");
        stream.send_reset(h2::Reason::CANCEL);
        timeout(PATIENCE, closed.acquire()).await.expect("the engine is stopped").unwrap().forget();
        eventually("its place is free", || t.in_flight() == 0).await;
        drop(answer);
    }
    let outcomes: Vec<_> = t.records().iter().map(|r| (r.path.clone(), r.outcome)).collect();
    for path in ["/silent", "/events"] {
        assert!(outcomes.contains(&(path.to_owned(), "cancelled")), "{outcomes:?}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_cancels_all_its_streams() {
    let endpoint = gated(&Arc::new(Semaphore::new(0))).await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let socket = tokio::net::TcpStream::connect(t.address()).await.unwrap();
    let (client, connection) = h2::client::handshake(socket).await.unwrap();
    let driver = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = || Request::get("http://t/").body(()).unwrap();
    let held = [client.send_request(request(), true).unwrap(), client.send_request(request(), true).unwrap()];
    eventually("both are in flight", || t.in_flight() == 2).await;
    driver.abort();
    eventually("both are cancelled", || t.in_flight() == 0 && t.outcomes() == ["cancelled"; 2]).await;
    drop(held);
}

#[tokio::test]
async fn what_http1_refuses_is_refused() {
    let (endpoint, seen) = noting().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "limits: { max_headers: 8 }");
    let mut client = H2::connect(t.address()).await;
    let code = |answer: &Answer| {
        let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        (answer.status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    let mut many = Request::get("http://t/");
    for n in 0..9 {
        many = many.header(format!("x-{n}"), "1");
    }
    for (request, status, wanted) in [
        (many.body(""), 431, "too_many_headers"),
        (Request::get("http://t/").header("host", "other").body(""), 400, "bad_host"),
        (Request::get("http://t/").header("host", "t").header("host", "t").body(""), 400, "bad_host"),
        (Request::connect("t:443").body(""), 501, "connect_not_supported"),
        (Request::post("http://t/v1/x").header("content-type", "application/json").body("{"), 400, "invalid_json"),
    ] {
        let answer = client.ask(request.unwrap()).await;
        assert_eq!(code(&answer), (status, wanted.to_owned()));
    }
    assert!(seen.lock().is_empty(), "nothing of it reaches an endpoint");
    assert_eq!(client.get("http://t/").await.status, 200, "the connection goes on");
}

#[tokio::test]
async fn switched_off_it_is_refused() {
    let (endpoint, _) = noting().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "limits: { http2: off }");
    let mut client = t.client().await;
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let reply = client.reply().await;
    assert!(reply.status == 400 || reply.status == 505, "{}", reply.head);
    let (told, ok) = curl(&["--http1.1", &format!("http://{}/", t.address())]).await;
    assert!(ok && told == "ok", "{told}");
}

#[tokio::test]
async fn the_preface_may_come_in_pieces() {
    let (endpoint, _) = noting().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    for piece in ["PRI", " * HTTP/2.0\r", "\n\r\nSM", "\r\n\r\n"] {
        client.send(piece).await;
    }
    client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    // The gateway's own SETTINGS: a frame of type 4 on stream 0.
    client.send([0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]).await;
    let told = client.read_until("\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}\u{8}").await;
    assert_eq!(told.as_bytes().get(3), Some(&4), "{told:?}");
}

#[tokio::test]
async fn the_last_request_ends_before_the_gateway_does() {
    let go = Arc::new(Semaphore::new(0));
    let endpoint = gated(&go).await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = H2::connect(t.address()).await;
    let (response, _) = client.begin(Request::get("http://t/").body(()).unwrap(), true).await;
    eventually("it is in flight", || t.in_flight() == 1).await;
    let stopping = tokio::spawn(t.gateway.stop(PATIENCE));
    go.add_permits(1);
    assert_eq!(Answer::read(response.await.unwrap()).await.unwrap().text(), "ok");
    assert!(stopping.await.unwrap(), "all ended in time");
}

#[tokio::test]
async fn a_client_that_is_deaf_does_not_hold_up_a_stop() {
    let (endpoint, _) = noting().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    // The answer to the client's SETTINGS: the connection stands.
    client.read_until("\0\0\0\u{4}\u{1}\0\0\0\0").await;
    assert!(timeout(PATIENCE, t.gateway.stop(4 * PATIENCE)).await.expect("it stops in time"), "nothing was cut off");
}
