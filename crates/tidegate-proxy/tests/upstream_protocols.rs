//! What is spoken to endpoints: TLS that is checked, HTTP/2 on connections that are shared, and gRPC through both.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests: a failed expectation is a failed test")]

mod common;

use bytes::Bytes;
use common::Running;
use common::engine::{Engine, say, whole};
use common::h2_client::{Answer, H2};
use common::tls::{Authority, Folder, server};
use http::{HeaderMap, HeaderValue, Request, Response};
use std::sync::Arc;
use tidegate_testkit::{PATIENCE, Scripted, eventually};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// An engine that says what it was asked.
async fn telling(tls: Option<Arc<tokio_rustls::rustls::ServerConfig>>) -> Engine {
    Engine::start(tls, 100, |request, respond| async move {
        let (uri, host) = (request.uri().to_string(), request.headers().contains_key("host"));
        let (body, _) = whole(request.into_body()).await;
        say(respond, format!("{uri} {host} {}", String::from_utf8_lossy(&body)));
    })
    .await
}

#[tokio::test]
async fn tls_is_checked_and_http2_agreed_on() {
    let folder = Folder::new();
    let (own, other) = (Authority::new(&folder, "own"), Authority::new(&folder, "other"));
    let files = own.issue("engine", "engine", &["localhost", "engines.internal"]);
    let engine = telling(Some(server(&files, &["h2", "http/1.1"]))).await;
    let url = format!("https://localhost:{}", engine.address.port());
    let with = |tls: &str| {
        let keys = format!("policy: round_robin, retry: {{ max_attempts: 1 }}, tls: {{ {tls} }}");
        Running::with(std::slice::from_ref(&url), &keys, "")
    };
    for (tls, status) in [
        (format!("ca: \"{}\"", own.file), 200),
        (format!("ca: \"{}\", server_name: engines.internal", own.file), 200),
        (format!("ca: \"{}\", server_name: elsewhere.internal", own.file), 502),
        (format!("ca: \"{}\"", other.file), 502),
        ("verify: true".to_owned(), 502),
        ("verify: false".to_owned(), 200),
    ] {
        let t = with(&tls);
        let mut client = t.client().await;
        client.post("/a?b=c", "content-type: text/plain\r\n", "hello").await;
        let reply = client.reply().await;
        assert_eq!(reply.status, status, "{tls}: {}", reply.text());
        if status == 200 {
            assert_eq!(
                reply.text(),
                "https://test/a?b=c false hello",
                "the host is named once, as the client named it"
            );
        } else {
            assert!(reply.text().contains("endpoint_unreachable"), "{}", reply.text());
        }
    }
}

#[tokio::test]
async fn an_engine_of_http1_is_spoken_to_by_tls_and_knows_our_certificate() {
    let folder = Folder::new();
    let (own, clients) = (Authority::new(&folder, "own"), Authority::new(&folder, "clients"));
    let files = own.issue("engine", "engine", &["127.0.0.1"]);
    let shown = clients.issue("gateway", "gateway", &[]);
    // Another gateway is a server that asks for certificates.
    let last = Scripted::answering("last", "through two").await;
    let listener = format!(
        "{{ address: \"127.0.0.1:0\", tls: {{ certificates: [{{ cert: \"{}\", key: \"{}\" }}], client_ca: \"{}\" }} }}",
        files.0, files.1, clients.file
    );
    let tenants = "tenants: { identify: [{ client_certificate: {} }], named: { gateway: {} } }\nlimits: { http2: off }";
    let second = Running::listening(
        &listener,
        &format!("{tenants}\npools:\n  p: {{ endpoints: [{{ url: \"{}\" }}] }}", last.url()),
    );
    let url = format!("https://{}", second.address());
    let tls = format!("tls: {{ ca: \"{}\", cert: \"{}\", key: \"{}\" }}", own.file, shown.0, shown.1);
    let t = Running::with(std::slice::from_ref(&url), &format!("policy: round_robin, {tls}"), "");
    let mut client = t.client().await;
    for _ in 0..3 {
        client.get("/", "").await;
        assert_eq!(client.reply().await.text(), "through two");
    }
    assert_eq!(second.records().iter().map(|r| &*r.tenant).collect::<Vec<_>>(), ["gateway"; 3]);
    let without = Running::with(
        &[url],
        &format!("policy: round_robin, retry: {{ max_attempts: 1 }}, tls: {{ ca: \"{}\" }}", own.file),
        "",
    );
    let mut client = without.client().await;
    client.get("/", "").await;
    assert_eq!(client.reply().await.status, 502, "it shows no certificate");
}

#[tokio::test]
async fn a_websocket_goes_by_tls_to_an_engine_that_prefers_http2() {
    let folder = Folder::new();
    let own = Authority::new(&folder, "own");
    let files = own.issue("engine", "engine", &["127.0.0.1"]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(server(&files, &["h2", "http/1.1"]));
    let engine = tokio::spawn(async move {
        let stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        use futures_util::{SinkExt, StreamExt};
        let message = socket.next().await.unwrap().unwrap();
        socket.send(message).await.unwrap();
    });
    let keys = format!("policy: round_robin, tls: {{ ca: \"{}\" }}", own.file);
    let t = Running::with(&[format!("https://{address}")], &keys, "");
    let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{}/", t.address())).await.unwrap();
    use futures_util::{SinkExt, StreamExt};
    socket.send("hello".into()).await.unwrap();
    assert_eq!(timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap(), "hello".into());
    engine.await.unwrap();
}

#[tokio::test]
async fn requests_share_a_connection_until_its_streams_run_out() {
    let go = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&go);
    let start = move |streams| {
        let wait = Arc::clone(&wait);
        Engine::start(None, streams, move |_request, respond| {
            let wait = Arc::clone(&wait);
            async move {
                wait.acquire().await.expect("open").forget();
                say(respond, "ok".to_owned());
            }
        })
    };
    // The engine allows more than the config; the config more than the engine.
    for (allowed, most, connections) in [(100, 4, 3), (5, 100, 2)] {
        let engine = start(allowed).await;
        let keys = format!("policy: round_robin, protocol: h2, connections: {{ max_streams: {most} }}");
        let t = Running::with(&[format!("http://{}", engine.address)], &keys, "");
        // The first learns what the engine allows.
        let mut first = t.client().await;
        first.get("/", "").await;
        go.add_permits(1);
        assert_eq!(first.reply().await.status, 200);
        let mut clients = Vec::new();
        for _ in 0..10 {
            let mut client = t.client().await;
            client.get("/", "").await;
            clients.push(client);
        }
        eventually("all are at the engine", || t.in_flight() == 10).await;
        eventually("as many connections as it takes", || engine.connections() == connections).await;
        go.add_permits(10);
        for mut client in clients {
            assert_eq!(client.reply().await.text(), "ok");
        }
        assert_eq!((engine.connections(), t.in_flight()), (connections, 0));
    }
}

#[tokio::test]
async fn a_shared_connection_that_ended_or_is_idle_is_replaced() {
    // Leaves after its second answer, as engines do that restart.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ended = Arc::new(Semaphore::new(0));
    let told = Arc::clone(&ended);
    let engine = tokio::spawn(async move {
        let mut connections = 0;
        while let Ok((socket, _)) = listener.accept().await {
            connections += 1;
            let mut connection = h2::server::handshake(socket).await.unwrap();
            let mut served = 0;
            while let Some(Ok((_request, respond))) = connection.accept().await {
                say(respond, connections.to_string());
                served += 1;
                if served == 2 {
                    connection.graceful_shutdown();
                }
            }
            told.add_permits(1);
        }
    });
    let keys = "policy: round_robin, protocol: h2, connections: { idle_timeout: 100ms }";
    let t = Running::with(&[format!("http://{address}")], keys, "");
    let mut client = t.client().await;
    let mut ask = async || {
        client.get("/", "").await;
        client.reply().await.text()
    };
    assert_eq!([ask().await, ask().await], ["1", "1"]);
    timeout(PATIENCE, ended.acquire()).await.expect("it leaves").unwrap().forget();
    assert_eq!(ask().await, "2", "nobody notices");
    timeout(PATIENCE, ended.acquire()).await.expect("idle for too long, it is closed").unwrap().forget();
    assert_eq!(ask().await, "3");
    assert_eq!(t.outcomes(), ["success"; 4]);
    engine.abort();
}

#[tokio::test]
async fn a_client_that_leaves_resets_its_stream_and_no_other() {
    let (came, reset) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let told = (Arc::clone(&came), Arc::clone(&reset));
    let engine = Engine::start(None, 100, move |request, mut respond| {
        let (came, reset) = told.clone();
        async move {
            if request.uri().path() == "/leaves" {
                came.add_permits(1);
                let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
                reset.add_permits(1);
            } else {
                say(respond, "ok".to_owned());
            }
        }
    })
    .await;
    let t = Running::with(&[format!("http://{}", engine.address)], "policy: round_robin, protocol: h2", "");
    let mut client = t.client().await;
    client.get("/leaves", "").await;
    timeout(PATIENCE, came.acquire()).await.expect("it is at the engine").unwrap().forget();
    drop(client);
    timeout(PATIENCE, reset.acquire()).await.expect("the stream is reset").unwrap().forget();
    let mut other = t.client().await;
    other.get("/", "").await;
    assert_eq!(other.reply().await.text(), "ok");
    assert_eq!(engine.connections(), 1);
    assert_eq!(t.outcomes(), ["cancelled", "success"]);
}

#[tokio::test]
async fn a_stream_that_was_refused_is_sent_again_and_a_broken_one_is_not() {
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let engine = Engine::start(None, 100, move |request, mut respond| {
        let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            match (request.uri().path(), n) {
                ("/refused", 1) => respond.send_reset(h2::Reason::REFUSED_STREAM),
                ("/broken", _) => respond.send_reset(h2::Reason::INTERNAL_ERROR),
                _ => say(respond, "ok".to_owned()),
            }
        }
    })
    .await;
    let keys = "policy: round_robin, protocol: h2, retry: { max_attempts: 1 }";
    let t = Running::with(&[format!("http://{}", engine.address)], keys, "");
    let mut client = t.client().await;
    for (path, status, tried) in [("/", 200, 1), ("/refused", 200, 3), ("/broken", 502, 4)] {
        client.get(path, "").await;
        assert_eq!(client.reply().await.status, status, "{path}");
        assert_eq!(tries.load(std::sync::atomic::Ordering::Relaxed), tried, "{path}");
    }
}

#[tokio::test]
async fn an_upload_that_the_client_spoils_is_the_clients_fault() {
    let engine = telling(None).await;
    let limits = "limits: { sniff_bytes: 1KiB, max_body_bytes: 64KiB }";
    let t = Running::with(&[format!("http://{}", engine.address)], "policy: round_robin, protocol: h2", limits);
    let chunk = format!("{:x}\r\n{}\r\n", 20_000, "x".repeat(20_000));
    let head = "POST / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n";
    for (rest, status, code) in
        [(chunk.repeat(4) + "0\r\n\r\n", 413, "body_too_large"), (chunk.repeat(2) + "no chunk\r\n", 400, "bad_body")]
    {
        let mut client = t.client().await;
        client.send(format!("{head}{rest}")).await;
        let reply = client.reply().await;
        assert!(reply.status == status && reply.text().contains(code), "{}", reply.text());
    }
    assert!(!t.outcomes().contains(&"reset"), "{:?}", t.outcomes());
}

/// A call of gRPC as its clients send it.
async fn call(client: &mut H2, path: &str, message: &'static [u8]) -> Answer {
    let request = Request::post(format!("http://engine{path}"))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
        .header("grpc-timeout", "5S")
        .body(())
        .unwrap();
    let (response, mut stream) = client.begin(request, false).await;
    stream.send_data(Bytes::from_static(message), true).unwrap();
    Answer::read(response.await.unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_grpc_call_passes_with_its_trailers() {
    let engine = Engine::start(None, 100, |request, mut respond| async move {
        assert_eq!(request.headers().get("te").map(HeaderValue::as_bytes), Some(b"trailers".as_slice()));
        let path = request.uri().path().to_owned();
        let (message, _) = whole(request.into_body()).await;
        let head = Response::builder().header("content-type", "application/grpc+proto");
        if path == "/engine.V1/Missing" {
            let head = head.header("grpc-status", "12").header("grpc-message", "no such method").body(()).unwrap();
            respond.send_response(head, true).unwrap();
            return;
        }
        let mut stream = respond.send_response(head.body(()).unwrap(), false).unwrap();
        stream.send_data(message.into(), false).unwrap();
        let mut trailers = HeaderMap::new();
        let status = if path == "/engine.V1/Fails" { "14" } else { "0" };
        trailers.insert("grpc-status", HeaderValue::from_static(status));
        trailers.insert("x-usage", HeaderValue::from_static("7"));
        stream.send_trailers(trailers).unwrap();
    })
    .await;
    let t = Running::with(&[format!("http://{}", engine.address)], "policy: round_robin, protocol: h2", "");
    let mut client = H2::connect(t.address()).await;
    let message = b"\x00\x00\x00\x00\x03\x0a\x01x";
    for (method, status) in [("Ask", "0"), ("Fails", "14")] {
        let answer = call(&mut client, &format!("/engine.V1/{method}"), message).await;
        assert_eq!((answer.status, &answer.body[..]), (200, message.as_slice()));
        let trailers = answer.trailers.expect("trailers");
        assert_eq!((trailers["grpc-status"].to_str().unwrap(), trailers["x-usage"].to_str().unwrap()), (status, "7"));
    }
    let answer = call(&mut client, "/engine.V1/Missing", message).await;
    assert_eq!((answer.header("grpc-status"), answer.body.len()), (Some("12"), 0));
    assert_eq!(t.outcomes(), ["success", "status", "client_error"], "what a call came to stands in its trailers");
}

#[tokio::test]
async fn a_grpc_call_is_refused_in_its_own_words() {
    let t = Running::from_yaml(&format!(
        "tenants: {{ identify: [{{ api_key: {{}} }}], named: {{ acme: {{}} }} }}\npools:\n  p: {{ endpoints: [{{ url: \"http://{}\" }}], protocol: h2 }}",
        Scripted::refusing().await
    ));
    let mut client = H2::connect(t.address()).await;
    let answer = call(&mut client, "/engine.V1/Ask", b"").await;
    assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("16")));
    assert!(answer.header("grpc-message").unwrap().starts_with("missing_credentials: "));
    assert_eq!((answer.header("content-type"), answer.body.len()), (Some("application/grpc"), 0));
}

#[tokio::test]
async fn both_sides_of_a_call_can_speak_before_the_other_has_ended() {
    let engine = Engine::start(None, 100, |request, mut respond| async move {
        let mut body = request.into_body();
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        while let Some(Ok(data)) = body.data().await {
            let _ = body.flow_control().release_capacity(data.len());
            stream.send_data(data, false).unwrap();
        }
        stream.send_data(Bytes::from_static(b"end"), true).unwrap();
    })
    .await;
    let t = Running::with(&[format!("http://{}", engine.address)], "policy: round_robin, protocol: h2", "");
    let mut client = H2::connect(t.address()).await;
    let request = Request::post("http://e/x").header("content-type", "application/grpc").body(()).unwrap();
    let (response, mut stream) = client.begin(request, false).await;
    let mut body = timeout(PATIENCE, response).await.expect("an answer before the call has ended").unwrap().into_body();
    for word in ["one", "two"] {
        stream.send_data(word.into(), false).unwrap();
        assert_eq!(timeout(PATIENCE, body.data()).await.unwrap().unwrap().unwrap(), word);
    }
    stream.send_data(Bytes::new(), true).unwrap();
    assert_eq!(timeout(PATIENCE, body.data()).await.unwrap().unwrap().unwrap(), "end");
}
