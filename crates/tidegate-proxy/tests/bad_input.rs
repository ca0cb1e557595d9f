//! What is ambiguous, oversized or late is refused, and never reaches an endpoint.

mod common;

use common::Running;
use tidegate_testkit::{Client, PATIENCE, Scripted};

const LIMITS: &str = "limits: { header_timeout: 200ms, max_header_bytes: 8KiB, max_headers: 20, sniff_bytes: 4KiB, max_body_bytes: 8KiB }";

async fn refused(t: &Running, raw: &str) -> (u16, String) {
    let mut client = t.client().await;
    client.send(raw).await;
    let reply = client.reply().await;
    let code =
        reply.text().split("\"code\":\"").nth(1).and_then(|s| s.split('"').next()).unwrap_or_default().to_owned();
    (reply.status, code)
}

#[tokio::test]
async fn smuggling_vectors_never_reach_an_endpoint() {
    let endpoint = Scripted::answering("e", "ok").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", LIMITS);
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for (headers, code) in [
        ("content-length: 0\r\ncontent-length: 30\r\n", "two_content_lengths"),
        ("content-length: 30\r\ncontent-length: 30\r\n", "two_content_lengths"),
        ("content-length: 4\r\ntransfer-encoding: chunked\r\n", "two_framings"),
        ("transfer-encoding: chunked\t\r\ncontent-length: 4\r\n", "two_framings"),
        ("transfer-encoding: xchunked\r\n", "bad_transfer_encoding"),
        ("transfer-encoding: chunked, identity\r\n", "bad_transfer_encoding"),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", "bad_transfer_encoding"),
        ("content-length : 4\r\n", "bad_header"),
        ("x: y\r\n content-length: 4\r\n", "bad_header"),
        ("x: y\ncontent-length: 4\r\n", "bad_line_ending"),
        ("content-length: 4,4\r\n", "bad_content_length"),
        ("content-length: -1\r\n", "bad_content_length"),
        ("host: b\r\n", "bad_host"),
        ("host : c\r\n", "bad_header"),
    ] {
        let raw = format!("POST / HTTP/1.1\r\nhost: a\r\n{headers}\r\n{smuggled}");
        assert_eq!(refused(&t, &raw).await, (400, code.to_owned()), "{headers:?}");
    }
    assert_eq!(refused(&t, "GET v1/models HTTP/1.1\r\nhost: a\r\n\r\n").await, (400, "bad_target".to_owned()));
    assert_eq!(refused(&t, "GET / HTTP/1.1\r\nhost: a b/@\r\n\r\n").await, (400, "bad_host".to_owned()));
    assert_eq!(refused(&t, "GET / HTTP/2.0\r\nhost: a\r\n\r\n").await, (505, "bad_version".to_owned()));
    assert_eq!(refused(&t, "CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n").await, (501, "connect_not_supported".to_owned()));
    assert_eq!(endpoint.connections(), 0);
}

#[tokio::test]
async fn a_refusal_comes_after_the_answers_before_it_and_ends_the_connection() {
    let endpoint = Scripted::answering("e", "ok").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", LIMITS);
    let mut client = t.client().await;
    client.send("GET /1 HTTP/1.1\r\nhost: a\r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\nGET /3 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(client.reply().await.status, 400);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_chunked_body_with_bad_framing_is_refused() {
    let endpoint = Scripted::answering("e", "ok").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", LIMITS);
    let mut client = t.client().await;
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text().contains("bad_body")), (400, true));
    assert!(client.is_closed().await);
    assert_eq!(endpoint.connections(), 0);
}

#[tokio::test]
async fn sizes_are_bounded() {
    let endpoint = Scripted::answering("e", "ok").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", LIMITS);
    let big = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(10_000));
    assert_eq!(refused(&t, &big).await, (431, "headers_too_large".to_owned()));
    let endless = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}", "y".repeat(10_000));
    assert_eq!(refused(&t, &endless).await, (431, "headers_too_large".to_owned()));
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(30));
    assert_eq!(refused(&t, &many).await, (431, "too_many_headers".to_owned()));
    assert_eq!(
        refused(&t, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9000\r\n\r\n").await,
        (413, "body_too_large".to_owned())
    );
    let chunks = format!(
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{}",
        format!("800\r\n{}\r\n", "z".repeat(0x800)).repeat(8)
    );
    assert_eq!(refused(&t, &chunks).await, (413, "body_too_large".to_owned()));
}

#[tokio::test]
async fn bodies_we_claim_to_understand_must_be_json() {
    let endpoint = Scripted::answering("e", "ok").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", LIMITS);
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    for body in ["{\"model\":", "[1,2]", deep.as_str()] {
        let mut client = t.client().await;
        client.post("/v1/chat/completions", "content-type: application/json\r\n", body).await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text().contains("invalid_json")), (400, true), "{body}");
        client.post("/opaque", "content-type: application/json\r\n", body).await;
        assert_eq!(client.reply().await.status, 200, "an opaque path may carry what it likes");
    }
}

#[tokio::test]
async fn slow_clients_are_told_and_closed() {
    let endpoint = Scripted::answering("e", "ok").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", LIMITS);
    assert_eq!(refused(&t, "GET / HTTP/1.1\r\nhost:").await, (408, "header_timeout".to_owned()));
    assert_eq!(
        refused(&t, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nabc").await,
        (408, "body_timeout".to_owned())
    );
    let idle = Running::with(&[endpoint.url()], "policy: round_robin", "limits: { idle_timeout: 150ms }");
    let mut client = idle.client().await;
    client.get("/", "").await;
    assert_eq!(client.reply().await.status, 200);
    assert!(client.is_closed().await, "an idle connection is closed after its time");
}

#[tokio::test]
async fn heads_that_come_byte_by_byte_are_heads() {
    let endpoint = Scripted::answering("e", "ok").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    for _ in 0..2 {
        for byte in "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".as_bytes()
        {
            client.send([*byte]).await;
        }
        assert_eq!(client.reply().await.text(), "ok");
    }
}

#[tokio::test]
async fn an_empty_line_before_a_request_may_come_in_pieces() {
    // Found by fuzzing: split between its CR and its LF it made the request behind it a bad one.
    let endpoint = Scripted::answering("e", "ok").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    for _ in 0..2 {
        for piece in ["\r", "\n", "\r", "\nGET / HTTP/1.1\r\n", "host: a\r\n\r\n"] {
            client.send(piece).await;
            // Each is read by itself.
            tidegate_testkit::takes(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(client.reply().await.text(), "ok");
    }
    assert_eq!(refused(&t, "\rGET / HTTP/1.1\r\nhost: a\r\n\r\n").await, (400, "bad_line_ending".to_owned()));
}

#[tokio::test]
async fn connections_are_bounded() {
    let endpoint = Scripted::answering("e", "ok").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "limits: { max_connections: 2 }");
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = t.client().await;
        client.get("/", "").await;
        assert_eq!(client.reply().await.status, 200);
        open.push(client);
    }
    let mut third: Client = t.client().await;
    let reply = third.reply().await;
    assert_eq!((reply.status, reply.text().contains("too_many_connections")), (503, true));
}

#[tokio::test]
async fn connections_from_one_address_are_bounded_and_their_places_come_back() {
    let endpoint = Scripted::answering("e", "ok").await;
    let limits = "limits: { max_connections_per_address: 2 }";
    let t = Running::with(&[endpoint.url()], "policy: round_robin", limits);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = t.client().await;
        client.get("/", "").await;
        assert_eq!(client.reply().await.status, 200);
        open.push(client);
    }
    let mut third: Client = t.client().await;
    let reply = third.reply().await;
    assert_eq!((reply.status, reply.text().contains("too_many_connections_from_address")), (429, true));
    assert_eq!(reply.header("retry-after"), Some("1"));
    drop(open);
    let again = async {
        loop {
            let mut client = t.client().await;
            client.get("/", "connection: close\r\n").await;
            if client.reply().await.status == 200 {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("a place for one that comes later");
}
