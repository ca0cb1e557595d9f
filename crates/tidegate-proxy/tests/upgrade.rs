//! Connections that are upgraded: WebSocket through a pool.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests: a failed expectation is a failed test")]

mod common;

use common::Running;
use std::sync::Arc;
use tidegate_testkit::{Conversation, PATIENCE, Scripted, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

const ASK: &str = "connection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n";
const YES: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// An endpoint that upgrades, says `hello`, and then repeats what it hears until its peer has no more to say.
async fn echo() -> Scripted {
    Scripted::start(|mut c: Conversation| async move {
        let Some(asked) = c.request().await else { return };
        assert_eq!((asked.header("connection"), asked.header("upgrade")), (Some("upgrade"), Some("websocket")));
        // In one piece with the head: what comes behind it must not be lost.
        c.send(format!("{YES}hello ")).await;
        let mut heard = Vec::new();
        while c.hear(&mut heard).await {
            c.send(&heard).await;
            heard.clear();
        }
        c.send("bye").await;
    })
    .await
}

#[tokio::test]
async fn bytes_pass_both_ways_and_each_half_closes_by_itself() {
    let endpoint = echo().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut socket = TcpStream::connect(t.address()).await.unwrap();
    socket.write_all(format!("GET /v1/realtime HTTP/1.1\r\nhost: t\r\n{ASK}\r\n").as_bytes()).await.unwrap();
    let mut had = Vec::new();
    while !had.ends_with(b"hello ") {
        assert!(timeout(PATIENCE, socket.read_buf(&mut had)).await.unwrap().unwrap() > 0);
    }
    let head = String::from_utf8_lossy(&had).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in ["connection: upgrade", "upgrade: websocket", "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="] {
        assert!(head.contains(line), "{head}");
    }
    assert_eq!(t.in_flight(), 1, "it is in flight until it closes");
    socket.write_all(&[0, 1, 2, b'G', b'E', b'T', b' ', 0xff, b'\r', b'\n', b'\r', b'\n']).await.unwrap();
    let mut back = [0; 12];
    timeout(PATIENCE, socket.read_exact(&mut back)).await.unwrap().unwrap();
    assert_eq!(
        back,
        [0, 1, 2, b'G', b'E', b'T', b' ', 0xff, b'\r', b'\n', b'\r', b'\n'],
        "nothing of it is read as HTTP"
    );
    // The client has no more to say, and still hears.
    socket.shutdown().await.unwrap();
    let mut rest = Vec::new();
    timeout(PATIENCE, socket.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(rest, b"bye");
    eventually("its place is free", || t.in_flight() == 0 && !t.records().is_empty()).await;
    let record = t.records().remove(0);
    assert_eq!((record.status, record.outcome, record.bytes_out), (101, "success", 6 + 12 + 3));
}

#[tokio::test]
async fn an_upgraded_connection_holds_its_place_and_a_client_that_leaves_stops_it() {
    let closed = Arc::new(Semaphore::new(0));
    let told = Arc::clone(&closed);
    let endpoint = Scripted::start(move |mut c| {
        let told = Arc::clone(&told);
        async move {
            let Some(_) = c.request().await else { return };
            c.send(YES).await;
            c.closed().await;
            told.add_permits(1);
        }
    })
    .await;
    let url = format!("{{ url: \"{}\", max_in_flight: 1 }}", endpoint.url());
    let t = Running::with(&[url], "policy: round_robin", "");
    let mut client = t.client().await;
    client.get("/", ASK).await;
    client.read_until("\r\n\r\n").await;
    let mut other = t.client().await;
    other.get("/", "").await;
    assert_eq!(other.reply().await.status, 503, "the one place is taken");
    drop(client);
    timeout(PATIENCE, closed.acquire()).await.expect("the engine is told").unwrap().forget();
    eventually("its place is free", || t.in_flight() == 0).await;
}

#[tokio::test]
async fn a_silent_one_is_closed() {
    let endpoint = echo().await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin, timeouts: { upgrade_idle: 200ms }", "");
    let mut client = t.client().await;
    client.get("/", ASK).await;
    client.read_until("hello ").await;
    // It lives while something moves.
    let talk = async {
        loop {
            client.send("x").await;
            client.read_until("x").await;
        }
    };
    let ended = timeout(std::time::Duration::from_millis(600), talk).await;
    assert!(ended.is_err(), "three times as long as its patience");
    timeout(PATIENCE, client.read_to_end()).await.expect("it is closed");
    eventually("it is nobody's fault", || t.outcomes() == ["cancelled"]).await;
}

#[tokio::test]
async fn an_endpoint_that_does_not_upgrade_answers_as_ever() {
    let endpoint = Scripted::answering("a", "no").await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    for _ in 0..2 {
        client.get("/", ASK).await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text().as_str()), (200, "no"));
        assert_eq!(reply.header("upgrade"), None);
    }
    client.get("/", "").await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!((t.in_flight(), t.outcomes()), (0, vec!["success"; 3]));
}

#[tokio::test]
async fn an_endpoint_that_upgrades_unasked_is_malformed() {
    let endpoint = Scripted::start(|mut c| async move {
        while c.request().await.is_some() {
            c.send(YES).await;
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin, retry: { max_attempts: 1 }", "");
    let mut client = t.client().await;
    // The upgrade to HTTP/2 in clear is passed over, and does not count as asking; nor does asking for something else.
    for headers in [
        "",
        "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
        "connection: upgrade\r\nupgrade: websocket, h2c\r\n",
        "connection: upgrade\r\nupgrade: other\r\n",
    ] {
        client.get("/", headers).await;
        let reply = client.reply().await;
        assert!(reply.status == 502 && reply.text().contains("endpoint_malformed"), "{}", reply.text());
    }
}

#[tokio::test]
async fn a_websocket_client_speaks_through_a_pool() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let engine = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(socket).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() || message.is_binary() {
                socket.send(message).await.unwrap();
            }
        }
    });
    let t = Running::with(&[format!("http://{address}")], "policy: round_robin", "");
    let url = format!("ws://{}/v1/realtime?model=voice", t.address());
    let (mut socket, response) = tokio_tungstenite::connect_async(url).await.unwrap();
    assert_eq!(response.headers()["x-tidegate-endpoint"], format!("http://{address}"));
    for message in [Message::text("hello"), Message::binary(vec![7; 100_000])] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap(), message);
    }
    socket.close(None).await.unwrap();
    while let Some(Ok(_)) = socket.next().await {}
    drop(socket);
    timeout(PATIENCE, engine).await.unwrap().unwrap();
    eventually("it has ended well", || t.outcomes() == ["success"]).await;
}
