//! A client that leaves, in whatever phase of its request: what was reserved is settled once, nothing stays in flight, and the engine is
//! told at once. Prints a table: `cargo test -p tidegate-proxy --test disconnect -- --nocapture`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: a failed expectation is a failed test"
)]

mod common;

use bytes::Bytes;
use common::Running;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::Request;
use std::time::Duration;
use tidegate_testkit::{PATIENCE, Scripted, eventually, takes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Times that every phase is left.
const ROUNDS: usize = 5;
/// Generous: it is some hundred microseconds on a quiet machine.
const TOLD_WITHIN: Duration = Duration::from_millis(500);
const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const BODY: &str = r#"{"stream":true,"max_tokens":60,"messages":[{"role":"user","content":"hello, hello"}]}"#;
/// A body larger than `limits.sniff_bytes`, which is streamed.
const LARGE: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    HeadHalfSent,
    BodyHalfSent,
    UploadHalfSent,
    Queued,
    AwaitingHead,
    BeforeFirstToken,
    MidStream,
    AfterTheEnd,
}

use Phase::{
    AfterTheEnd, AwaitingHead, BeforeFirstToken, BodyHalfSent, HeadHalfSent, MidStream, Queued, UploadHalfSent,
};

impl Phase {
    const ALL: [Self; 8] =
        [HeadHalfSent, BodyHalfSent, UploadHalfSent, Queued, AwaitingHead, BeforeFirstToken, MidStream, AfterTheEnd];

    /// Whether an engine works on the request when its client leaves.
    fn has_engine(self) -> bool {
        matches!(self, UploadHalfSent | AwaitingHead | BeforeFirstToken | MidStream)
    }

    /// What the request counts as. A body that ends before its end is a bad one, whoever is to blame.
    fn outcomes(self) -> &'static [&'static str] {
        match self {
            HeadHalfSent => &[],
            BodyHalfSent | UploadHalfSent => &["cancelled", "bad_body"],
            AfterTheEnd => &["success"],
            _ => &["cancelled"],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Http1Close,
    Http2Reset,
    Http2Close,
}

/// What an engine notices.
enum Noticed {
    Asked,
    Gone(Instant),
}

/// An engine that gets as far as the head of a request tells it to.
async fn engine(tell: UnboundedSender<Noticed>) -> Scripted {
    Scripted::start(move |mut c| {
        let tell = tell.clone();
        async move {
            let mut heard = Vec::new();
            loop {
                while !heard.windows(4).any(|w| w == b"\r\n\r\n") {
                    if !c.hear(&mut heard).await {
                        return;
                    }
                }
                let head = String::from_utf8_lossy(&heard).into_owned();
                let _ = tell.send(Noticed::Asked);
                if head.contains("x-phase: AfterTheEnd") {
                    while !String::from_utf8_lossy(&heard).contains(BODY) && c.hear(&mut heard).await {}
                    c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                    heard.clear();
                    continue;
                }
                if head.contains("x-phase: BeforeFirstToken") || head.contains("x-phase: MidStream") {
                    c.send(STREAM).await;
                }
                if head.contains("x-phase: MidStream") {
                    c.send_chunk("data: {\"n\":1}\n\n").await;
                }
                while c.hear(&mut heard).await {}
                let _ = tell.send(Noticed::Gone(Instant::now()));
                return;
            }
        }
    })
    .await
}

/// A client in the midst of its request.
enum Client {
    Http1(TcpStream),
    Http2 {
        driver: JoinHandle<()>,
        stream: Option<SendStream<Bytes>>,
        _answer: Answer,
        _client: Option<SendRequest<Bytes>>,
    },
}

/// The other half of a stream, which resets it when it is dropped.
enum Answer {
    None,
    Waits(#[allow(dead_code, reason = "held")] ResponseFuture),
    Reads(#[allow(dead_code, reason = "held")] RecvStream),
}

impl Client {
    async fn begin(t: &Running, way: Way, phase: Phase) -> Self {
        let socket = TcpStream::connect(t.address()).await.unwrap();
        socket.set_nodelay(true).unwrap();
        if way == Way::Http1Close { Self::http1(socket, phase).await } else { Self::http2(socket, phase).await }
    }

    async fn http1(mut socket: TcpStream, phase: Phase) -> Self {
        let (size, body) = match phase {
            UploadHalfSent => (LARGE, "x".repeat(LARGE / 2)),
            BodyHalfSent => (BODY.len(), BODY[..BODY.len() / 2].to_owned()),
            _ => (BODY.len(), BODY.to_owned()),
        };
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\nx-phase: {phase:?}\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n"
        );
        let all = if phase == HeadHalfSent { head[..head.len() / 2].to_owned() } else { head + &body };
        socket.write_all(all.as_bytes()).await.unwrap();
        let wanted = match phase {
            MidStream => "data: {\"n\":1}",
            AfterTheEnd => "\r\n\r\nok",
            _ => return Self::Http1(socket),
        };
        let mut had = Vec::new();
        while !String::from_utf8_lossy(&had).contains(wanted) {
            assert!(socket.read_buf(&mut had).await.unwrap() > 0, "closed");
        }
        Self::Http1(socket)
    }

    async fn http2(mut socket: TcpStream, phase: Phase) -> Self {
        if phase == HeadHalfSent {
            // HEADERS without END_HEADERS: the block goes on in a CONTINUATION that never comes.
            let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
            socket.write_all(preface).await.unwrap();
            socket.write_all(b"\x00\x00\x03\x01\x01\x00\x00\x00\x01\x83\x86\x84").await.unwrap();
            let driver = tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(socket);
            });
            return Self::Http2 { driver, stream: None, _answer: Answer::None, _client: None };
        }
        let (client, connection) = h2::client::handshake(socket).await.unwrap();
        let driver = tokio::spawn(async move { drop(connection.await) });
        let mut client = client.ready().await.unwrap();
        let request = Request::post("http://t/v1/chat/completions")
            .header("x-phase", format!("{phase:?}"))
            .header("content-type", "application/json");
        let (response, mut stream) = client.send_request(request.body(()).unwrap(), false).unwrap();
        let (body, ends) = match phase {
            UploadHalfSent => (Bytes::from(vec![b'x'; LARGE / 2]), false),
            BodyHalfSent => (Bytes::from_static(&BODY.as_bytes()[..BODY.len() / 2]), false),
            _ => (Bytes::from_static(BODY.as_bytes()), true),
        };
        stream.send_data(body, ends).unwrap();
        let answer = if matches!(phase, MidStream | AfterTheEnd) {
            let mut body = response.await.unwrap().into_body();
            body.data().await.unwrap().unwrap();
            if phase == AfterTheEnd {
                assert!(body.data().await.is_none());
            }
            Answer::Reads(body)
        } else {
            Answer::Waits(response)
        };
        Self::Http2 { driver, stream: Some(stream), _answer: answer, _client: Some(client) }
    }

    /// Leaves; what must stay open until all is over comes back.
    fn leave(self, way: Way) -> Option<Self> {
        match self {
            Self::Http1(socket) => {
                drop(socket);
                None
            }
            Self::Http2 { driver, stream, _answer, _client } => {
                if way == Way::Http2Close {
                    driver.abort();
                    return None;
                }
                let mut stream = stream.expect("a stream to reset");
                stream.send_reset(h2::Reason::CANCEL);
                Some(Self::Http2 { driver, stream: Some(stream), _answer, _client })
            }
        }
    }
}

async fn asked(told: &mut UnboundedReceiver<Noticed>) {
    let noticed = timeout(PATIENCE, told.recv()).await.expect("the engine is asked").unwrap();
    assert!(matches!(noticed, Noticed::Asked));
}

async fn gone(told: &mut UnboundedReceiver<Noticed>) -> Instant {
    match timeout(PATIENCE, told.recv()).await.expect("the engine is told").unwrap() {
        Noticed::Gone(at) => at,
        Noticed::Asked => panic!("asked twice"),
    }
}

/// What leaving came to: the longest times until the engine was told and until all was settled.
struct Left {
    told: Option<Duration>,
    settled: Duration,
    outcome: &'static str,
}

async fn leaves(way: Way, phase: Phase) -> Left {
    let (tell, mut told) = unbounded_channel();
    let engine = engine(tell).await;
    let endpoint = format!("{{ url: '{}', max_in_flight: 1 }}", engine.url());
    let top = "limits: { sniff_bytes: 1KiB }\nrate_limits: [{ name: all, limit: 100_000 tokens/1000000s }]";
    let t = Running::with(&[endpoint], "policy: round_robin, queue: {}", top);
    let outstanding = || t.gateway.governor().with(|l, _| l.outstanding());
    let level = || t.gateway.governor().with(|l, now| l.levels_at(now).first().map_or(100_000.0, |l| l.level));
    let waiting = || t.gateway.pools()[0].with(|p, _| p.waiting());
    let (mut told_after, mut settled_after) = (None, Duration::ZERO);
    for round in 0..ROUNDS {
        let holder = if phase == Queued { Some(Client::begin(&t, Way::Http1Close, AwaitingHead).await) } else { None };
        if holder.is_some() {
            asked(&mut told).await;
        }
        let held = outstanding();
        let full = level();
        let client = Client::begin(&t, way, phase).await;
        match phase {
            // What came of it can be read before anything is decided: nothing to see from outside.
            HeadHalfSent | BodyHalfSent => takes(Duration::from_millis(20)).await,
            Queued => eventually("it waits", || waiting() == 1).await,
            _ => asked(&mut told).await,
        }
        if phase == BeforeFirstToken {
            takes(Duration::from_millis(20)).await;
        }
        if phase.has_engine() {
            assert_eq!((t.in_flight(), outstanding()), (1, held + 1), "{way:?} {phase:?}");
        }
        let left = Instant::now();
        let open = client.leave(way);
        if phase.has_engine() {
            let at = gone(&mut told).await;
            told_after = told_after.max(Some(at.duration_since(left)));
        }
        let recorded = (round + 1) * phase.outcomes().len().min(1);
        let in_flight = usize::from(holder.is_some());
        eventually("all is settled", || {
            let is_recorded = holder.is_some() || t.records().len() == recorded;
            t.in_flight() == in_flight && outstanding() == held && waiting() == 0 && is_recorded
        })
        .await;
        settled_after = settled_after.max(left.elapsed());
        // What an engine has read and said so far may be owed; nothing comes back twice.
        assert!(level() <= full + 1.0 && level() >= full - 200.0, "{way:?} {phase:?}: {full} before, {} now", level());
        if let Some(holder) = holder {
            drop(holder);
            gone(&mut told).await;
            eventually("the place is free", || t.in_flight() == 0 && outstanding() == 0).await;
        }
        drop(open);
    }
    let per_round = if phase == Queued { 2 } else { phase.outcomes().len().min(1) };
    eventually("one record each", || t.records().len() == ROUNDS * per_round).await;
    for outcome in t.outcomes() {
        assert!(phase.outcomes().contains(&outcome), "{way:?} {phase:?}: {outcome}");
    }
    let outcome = t.outcomes().first().copied().unwrap_or("-");
    Left { told: told_after, settled: settled_after, outcome }
}

#[tokio::test]
async fn whenever_a_client_leaves_all_is_settled_once_and_the_engine_is_told() {
    println!("{:<18} {:<12} {:>14} {:>14}  recorded", "phase", "left by", "engine told", "settled");
    for phase in Phase::ALL {
        for way in [Way::Http1Close, Way::Http2Reset, Way::Http2Close] {
            if way == Way::Http2Reset && matches!(phase, HeadHalfSent | AfterTheEnd) {
                // There is no stream yet, or none any more.
                continue;
            }
            let left = leaves(way, phase).await;
            let show = |t: Duration| format!("{:.1} ms", t.as_secs_f64() * 1e3);
            let (phase, by, settled) = (format!("{phase:?}"), format!("{way:?}"), show(left.settled));
            let told = left.told.map_or("not asked".to_owned(), show);
            println!("{phase:<18} {by:<12} {told:>14} {settled:>14}  {}", left.outcome);
            assert!(left.told.is_none_or(|t| t < TOLD_WITHIN), "{by} {phase}: {told}");
        }
    }
}
