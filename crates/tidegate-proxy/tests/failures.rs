//! Endpoints that fail, and requests that do not.

mod common;

use common::Running;
use std::sync::Arc;
use tidegate_core::endpoint::Gate;
use tidegate_testkit::{Scripted, eventually};
use tokio::sync::Notify;

#[tokio::test]
async fn a_refused_connection_is_tried_elsewhere() {
    let good = Scripted::answering("good", "fine").await;
    let dead = format!("http://{}", Scripted::refusing().await);
    let t = Running::with(&[dead, good.url()], "policy: round_robin, breaker: classic", "");
    let mut client = t.client().await;
    let mut retried = 0;
    for _ in 0..20 {
        client.post("/v1/x", "", "body").await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text().as_str()), (200, "fine"));
        retried += usize::from(reply.header("x-tidegate-reason") == Some("retry;endpoint_connect;round_robin"));
    }
    assert_eq!(retried, 5, "five errors in a row eject it; then nobody pays for finding out again");
    assert_eq!(t.gateway.pools()[0].with(|p, _| p.count(Gate::Open)), 1);
}

#[tokio::test]
async fn a_connection_closed_while_idle_costs_nobody_a_request() {
    // governance.md 50: 502 for a request written to a connection that the endpoint had just closed.
    let endpoint = Scripted::start(|mut c| async move {
        if c.request().await.is_some() {
            c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        }
        if c.number % 2 == 0 {
            // This one closes only once the next request is on its way.
            c.request().await;
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    for _ in 0..10 {
        client.post("/v1/x", "", "body").await;
        assert_eq!(client.reply().await.status, 200);
    }
    assert_eq!(t.outcomes(), ["success"; 10]);
}

#[tokio::test]
async fn when_all_fail_the_error_names_endpoint_and_cause() {
    let closing = Scripted::start(|mut c| async move {
        c.request().await;
    })
    .await;
    let t = Running::with(&[closing.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    client.get("/", "").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.header("x-tidegate-endpoint")), (502, Some(closing.url().as_str())));
    assert!(reply.text().contains("\"endpoint_reset\"") && reply.text().contains(&closing.url()), "{}", reply.text());
    assert_eq!(t.in_flight(), 0);
}

#[tokio::test]
async fn an_endpoint_that_does_not_answer_is_a_504() {
    let silent = Scripted::start(|mut c| async move { c.closed().await }).await;
    let t = Running::with(&[silent.url()], "policy: round_robin, timeouts: { first_byte: 100ms }", "");
    let mut client = t.client().await;
    client.get("/", "").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text().contains("\"endpoint_timeout\"")), (504, true));
    assert_eq!(t.in_flight(), 0);
}

#[tokio::test]
async fn errors_of_the_engine_pass_as_they_are() {
    let endpoint = Scripted::start(|mut c| async move {
        while c.request().await.is_some() {
            c.send("HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\ncontent-length: 4\r\n\r\nbusy").await;
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    for _ in 0..10 {
        client.get("/", "").await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.header("retry-after"), reply.text().as_str()), (429, Some("3"), "busy"));
    }
    assert_eq!(t.gateway.pools()[0].with(|p, _| p.count(Gate::Open)), 0, "throttling is no sickness");
}

#[tokio::test]
async fn an_engine_that_says_it_is_full_is_not_sick() {
    let endpoint = Scripted::start(|mut c| async move {
        while c.request().await.is_some() {
            let body = "{\"error\":{\"code\":\"overloaded\"}}";
            c.send(format!("HTTP/1.1 503 No\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
        }
    })
    .await;
    let other = Scripted::answering("other", "ok").await;
    let t = Running::with(&[endpoint.url(), other.url()], "policy: round_robin", "");
    let mut client = t.client().await;
    let mut full = 0;
    for _ in 0..30 {
        client.get("/", "").await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        full +=
            usize::from(reply.header("x-tidegate-reason").is_some_and(|r| r.starts_with("retry;endpoint_throttled")));
    }
    assert_eq!(full, 1, "left alone for a moment after it said so");
    assert_eq!(t.gateway.pools()[0].with(|p, _| p.count(Gate::Open)), 0);
}

#[tokio::test]
async fn over_max_in_flight_there_is_a_clear_503() {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (Arc::clone(&asked), Arc::clone(&go));
    let endpoint = Scripted::start(move |mut c| {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        async move {
            while c.request().await.is_some() {
                tell.notify_one();
                wait.notified().await;
                c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    let t =
        Running::with(&[format!("{{ url: '{}', max_in_flight: 1 }}", endpoint.url())], "policy: least_connections", "");
    let (mut first, mut second) = (t.client().await, t.client().await);
    first.get("/", "").await;
    asked.notified().await;
    second.get("/", "").await;
    let reply = second.reply().await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert!(reply.text().contains("\"endpoint_limit_exceeded\""), "{}", reply.text());
    go.notify_one();
    assert_eq!(first.reply().await.status, 200);
    go.notify_one();
    second.get("/", "").await;
    assert_eq!(second.reply().await.status, 200);
}

#[tokio::test]
async fn the_last_request_ends_before_the_gateway_does() {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (Arc::clone(&asked), Arc::clone(&go));
    let endpoint = Scripted::start(move |mut c| {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        async move {
            c.request().await.unwrap();
            tell.notify_one();
            wait.notified().await;
            c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
    let (mut busy, mut idle) = (t.client().await, t.client().await);
    idle.get("/none", "connection: keep-alive\r\n").await;
    asked.notified().await;
    go.notify_one();
    idle.reply().await;
    busy.get("/", "").await;
    asked.notified().await;
    let address = t.gateway.addresses()[0];
    let stopping = tokio::spawn(t.gateway.stop(tidegate_testkit::PATIENCE));
    assert!(idle.is_closed().await, "idle connections close at once");
    go.notify_one();
    assert_eq!(busy.reply().await.status, 200);
    assert!(stopping.await.unwrap(), "all ended in time");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let text = format!(
        "listeners: [{{ address: '{address}' }}]\nadmin: off\npools: {{ p: {{ endpoints: [{{ url: 'http://127.0.0.1:1' }}] }} }}"
    );
    let (config, _) = tidegate_config::Config::parse(&text, "test", &|_| None).unwrap();
    let error = tidegate_proxy::Gateway::start(&config, Arc::new(common::Records::default())).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("another process has port"), "{error}");
}

#[tokio::test]
async fn a_second_gateway_on_the_same_port_leaves_the_journal_alone() {
    let folder = std::env::temp_dir().join(format!("tidegate-second-{}", std::process::id()));
    let endpoint = Scripted::answering("e", "ok").await;
    let journal = format!("journal: {{ folder: '{}' }}", folder.display());
    let t = Running::with(&[endpoint.url()], "policy: round_robin", &journal);
    let mut client = t.client().await;
    for _ in 0..20 {
        client.get("/", "").await;
        client.reply().await;
    }
    let address = t.gateway.addresses()[0];
    let text = format!(
        "listeners: [{{ address: '{address}' }}]\nadmin: off\n{journal}\npools: {{ p: {{ endpoints: [{{ url: '{}' }}] }} }}",
        endpoint.url()
    );
    let (config, _) = tidegate_config::Config::parse(&text, "test", &|_| None).unwrap();
    tidegate_proxy::Gateway::start(&config, Arc::new(common::Records::default())).unwrap_err();
    drop(client);
    assert!(t.gateway.stop(tidegate_testkit::PATIENCE).await);
    let file = std::fs::File::open(folder.join("p.jsonl")).unwrap();
    let again = tidegate_telemetry::replay(std::io::BufReader::new(file)).unwrap();
    assert_eq!((again.decisions, again.mismatch), (20, None));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn in_flight_returns_to_zero_whatever_happens() {
    let endpoint = Scripted::start(|mut c| async move {
        let n = c.number;
        while c.request().await.is_some() {
            match n % 4 {
                0 => return,
                1 => c.send("HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno").await,
                2 => {
                    c.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab").await;
                    return;
                }
                _ => c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await,
            }
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: adaptive, retry: { max_attempts: 2 }", "");
    for n in 0..60 {
        let mut client = t.client().await;
        client.post("/v1/x", "", "body").await;
        if n % 3 > 0 {
            client.read_until("\r\n\r\n").await;
        } else {
            // Leaves once its request is known; one that leaves before is none.
            eventually("the request is known", || t.outcomes().len() + t.in_flight() > n).await;
        }
    }
    eventually("in flight returns to 0", || t.in_flight() == 0).await;
    eventually("every request has one record", || t.outcomes().len() == 60).await;
}

/// An endpoint that answers every request with these bytes and closes.
async fn saying(answer: &'static str) -> Scripted {
    Scripted::start(move |mut c| async move {
        if c.request().await.is_some() {
            c.send(answer).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_length_beside_a_coding_reaches_nobody() {
    // Whoever believed the length would cut the answer short, or wait for bytes that never come.
    for length in [0, 3, 900] {
        let text = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        );
        let endpoint = saying(text.leak()).await;
        let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
        let mut client = t.client().await;
        client.get("/", "").await;
        let reply = client.reply().await;
        assert_eq!((reply.header("content-length"), reply.text().as_str()), (None, "hello"));
        eventually("one record", || t.outcomes() == ["success"]).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_not_proper_http_is_said_to_be() {
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        "garbage\r\n\r\n",
    ] {
        let endpoint = saying(answer).await;
        let t = Running::with(&[endpoint.url()], "policy: round_robin", "");
        let mut client = t.client().await;
        client.get("/", "").await;
        let reply = client.reply().await;
        assert_eq!(
            (reply.status, reply.text().contains("\"endpoint_malformed\"")),
            (502, true),
            "{answer:?}: {}",
            reply.text()
        );
        assert_eq!(t.in_flight(), 0);
    }
}
