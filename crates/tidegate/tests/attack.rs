//! Attacks on a gateway process, with its memory and the latency of a client that behaves meanwhile.
//!
//! By default small ones that every test run can afford. `make attack` runs the full sizes on a release build and prints the table.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of a test, which is there to fail")]

#[path = "attack/arena.rs"]
mod arena;
#[path = "attack/frames.rs"]
mod frames;
mod lifecycle;

use arena::{Arena, Outcome, connect, sized};
use frames::{PREFACE, REQUEST, frame};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

/// Generous, for machines that are busy with something else.
fn is_unharmed(outcome: &Outcome, growth_kib: usize) {
    assert_eq!(outcome.during.failures, 0, "{outcome:?}");
    assert!(outcome.during.at(0.99) < 1000.0, "{} ms", outcome.during.at(0.99));
    assert!(outcome.growth < growth_kib, "grew by {} KiB", outcome.growth);
}

const MIB: usize = 1024;

/// How long a flood lasts.
fn lasting() -> Duration {
    sized(Duration::from_millis(1500), Duration::from_secs(10))
}

/// `begin`, then `more` again and again, on four connections that are opened anew whenever the gateway closes one.
async fn flood(address: SocketAddr, begin: &[u8], more: &[u8]) -> (usize, usize) {
    let until = Instant::now() + lasting();
    let mut running = JoinSet::new();
    for _ in 0..4 {
        let (begin, more) = (begin.to_vec(), more.to_vec());
        running.spawn(async move {
            let (mut sent, mut closed) = (0, 0);
            while Instant::now() < until {
                let (mut read, mut write) = connect(address).await.into_split();
                let reads = tokio::spawn(async move {
                    let mut sink = vec![0; 16 << 10];
                    while read.read(&mut sink).await.is_ok_and(|n| n > 0) {}
                });
                let mut is_open = write.write_all(&begin).await.is_ok();
                while is_open && Instant::now() < until && !reads.is_finished() {
                    is_open = !more.is_empty() && write.write_all(&more).await.is_ok();
                    sent += 1;
                }
                if more.is_empty() {
                    // One blow: what comes of it is waited for.
                    let _ = reads.await;
                } else {
                    reads.abort();
                }
                closed += usize::from(Instant::now() < until);
            }
            (sent, closed)
        });
    }
    let mut total = (0, 0);
    while let Some(Ok((sent, closed))) = running.join_next().await {
        total = (total.0 + sent, total.1 + closed);
    }
    total
}

#[tokio::test(flavor = "multi_thread")]
async fn rapid_resets_cost_nobody_else() {
    let arena = Arena::start("attack-reset", "").await;
    // The connection is closed within the first hundred streams.
    let streams =
        (0..100u32).flat_map(|n| [frame(1, 5, 2 * n + 1, REQUEST), frame(3, 0, 2 * n + 1, &[0, 0, 0, 8])].concat());
    let blow = [PREFACE.to_vec(), streams.collect()].concat();
    let attack = async {
        let (_, closed) = flood(arena.address(), &blow, b"").await;
        assert!(closed > 0);
        format!("{closed} connections of 100 streams, each reset at once; all closed by us")
    };
    is_unharmed(&arena.under("rapid reset", attack).await, 64 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn continuations_without_end_cost_nobody_else() {
    let arena = Arena::start("attack-continuation", "").await;
    let begin = [PREFACE.to_vec(), frame(1, 1, 1, REQUEST)].concat();
    let piece = [&[0x00, 0x01, b'x', 0x7f, 0x81, 0x07][..], &[b'a'; 1024]].concat();
    let attack = async {
        let (sent, closed) = flood(arena.address(), &begin, &frame(9, 0, 1, &piece)).await;
        assert!(closed > 0);
        format!("{sent} CONTINUATION frames of 1 KiB; {closed} connections closed by us")
    };
    is_unharmed(&arena.under("CONTINUATION flood", attack).await, 64 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_answered_under_a_flood() {
    let arena = Arena::start("attack-health", "").await;
    let blow =
        "GET /ok HTTP/1.1\r\nhost: t\r\n\r\n".repeat(200) + "GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
    let attack = async {
        let asking = arena.health(lasting());
        let (slowest, (_, floods)) = tokio::join!(asking, flood(arena.address(), blow.as_bytes(), b""));
        assert!(slowest < 1.0, "{slowest} s");
        format!("{} pipelined requests; /healthz at most {:.1} ms", 201 * floods, slowest * 1e3)
    };
    is_unharmed(&arena.under("pipelines", attack).await, 64 * MIB);
}

/// Opens `count` connections that begin with `head` and send a byte of `rest` every half second, until the gateway has closed all.
async fn dribble(arena: &Arena, count: usize, head: &str, rest: u8) -> String {
    let began = Instant::now();
    let mut open = Vec::new();
    for _ in 0..count {
        let mut socket = arena.connect().await;
        socket.write_all(head.as_bytes()).await.unwrap();
        open.push(socket);
    }
    let most = arena.resident();
    let mut told = 0;
    let mut pace = interval(Duration::from_millis(500));
    while !open.is_empty() {
        pace.tick().await;
        assert!(began.elapsed() < Duration::from_secs(120), "{} are still open", open.len());
        open.retain(|socket: &TcpStream| {
            let mut said = [0; 512];
            match socket.try_read(&mut said) {
                Ok(n) if n > 0 => told += usize::from(said.starts_with(b"HTTP/1.1 408 ")),
                Ok(_) => return false,
                Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => return false,
                Err(_) => {}
            }
            let _ = socket.try_write(&[rest]);
            true
        });
    }
    let lasted = began.elapsed().as_secs_f64();
    format!(
        "{count} connections, {told} told 408, the last closed after {lasted:.1} s; {:.1} MiB with all open",
        most as f64 / 1024.0
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_come_byte_by_byte_cost_nobody_else() {
    let arena = Arena::start("attack-heads", sized("header_timeout: 1s", "header_timeout: 10s")).await;
    let count = sized(200, 5000);
    let attack = dribble(&arena, count, "GET / HTTP/1.1\r\nhost: t\r\nx-slow: ", b'a');
    is_unharmed(&arena.under("slowloris, heads", attack).await, 32 * MIB + 16 * count);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_come_byte_by_byte_cost_nobody_else() {
    let arena = Arena::start("attack-bodies", sized("header_timeout: 1s", "header_timeout: 10s")).await;
    let count = sized(200, 5000);
    let attack = dribble(&arena, count, "POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 100000\r\n\r\n", b'a');
    is_unharmed(&arena.under("slowloris, bodies", attack).await, 32 * MIB + 48 * count);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_cost_little() {
    let arena = Arena::start("attack-idle", "max_connections: 20000").await;
    let count = sized(1000, 10_000);
    let attack = async {
        let before = arena.resident();
        let mut open = Vec::new();
        for _ in 0..count {
            open.push(arena.connect().await);
        }
        // One that was used is idle in another way: every second one has had an answer.
        for socket in open.iter_mut().step_by(2) {
            socket.write_all(b"GET /ok HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
            let mut had = Vec::new();
            while !had.ends_with(b"\r\n\r\nok") {
                assert!(socket.read_buf(&mut had).await.unwrap() > 0, "closed");
            }
        }
        tidegate_testkit::takes(lasting()).await;
        let each = arena.resident().saturating_sub(before) as f64 / f64::from(count);
        format!("{count} connections, {each:.1} KiB each")
    };
    is_unharmed(&arena.under("idle connections", attack).await, 16 * MIB + 16 * count as usize);
}

#[tokio::test(flavor = "multi_thread")]
async fn bombs_of_headers_are_refused() {
    let arena = Arena::start("attack-headers", "").await;
    let many = format!("GET / HTTP/1.1\r\nhost: t\r\n{}\r\n", "x: y\r\n".repeat(10_000));
    let large = format!("GET / HTTP/1.1\r\nhost: t\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    for (name, bomb) in [
        ("headers, by count", many.into_bytes()),
        ("headers, by size", large.into_bytes()),
        ("headers, by HPACK", hpack_bomb()),
    ] {
        let attack = async {
            let (_, closed) = flood(arena.address(), &bomb, b"").await;
            assert!(closed > 0);
            format!("{closed} requests, each refused")
        };
        is_unharmed(&arena.under(name, attack).await, 64 * MIB);
    }
}

/// A field of 4,000 bytes, put into the table once and named 10,000 times: 40 MB in a frame of 14 KB. Then a frame that ends the connection, so that
/// the next can begin.
fn hpack_bomb() -> Vec<u8> {
    let field = [&[0x40, 0x01, b'x', 0x7f, 0xa1, 0x1e][..], &[b'a'; 4000]].concat();
    let block = [REQUEST, &field, &[0xbe; 10_000]].concat();
    // DATA on stream 0 is an error of the connection.
    [PREFACE.to_vec(), frame(1, 5, 1, &block), frame(0, 0, 0, b"x")].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_json_is_refused() {
    let arena = Arena::start("attack-json", "").await;
    let body = format!("{{\"messages\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-type: application/json\r\n";
    let bomb = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let mut said = Vec::new();
    let mut socket = arena.connect().await;
    socket.write_all(bomb.as_bytes()).await.unwrap();
    let _ = socket.read_to_end(&mut said).await;
    assert!(String::from_utf8_lossy(&said).contains("\"invalid_json\""), "{}", String::from_utf8_lossy(&said));
    let attack = async {
        let (_, closed) = flood(arena.address(), bomb.as_bytes(), b"").await;
        assert!(closed > 0);
        format!("{closed} bodies 100,000 deep, each refused")
    };
    is_unharmed(&arena.under("deep JSON", attack).await, 64 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_upload_to_a_slow_engine_is_not_held() {
    let size = sized(64usize << 20, 1 << 30);
    let arena = Arena::start("attack-upload", "max_body_bytes: 2GiB").await;
    let attack = async {
        let began = Instant::now();
        let mut socket = arena.connect().await;
        let head = format!("POST /upload HTTP/1.1\r\nhost: t\r\ncontent-length: {size}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..size / piece.len() {
            socket.write_all(&piece).await.unwrap();
        }
        let mut had = Vec::new();
        while !had.ends_with(b"\r\n\r\nok") {
            assert!(socket.read_buf(&mut had).await.unwrap() > 0, "closed");
        }
        format!("{} MiB in {:.1} s", size >> 20, began.elapsed().as_secs_f64())
    };
    is_unharmed(&arena.under("large upload", attack).await, 32 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_nobody_reads_are_bounded() {
    let count = sized(200usize, 2000);
    let arena = Arena::start("attack-readers", sized("send_timeout: 2s", "send_timeout: 15s")).await;
    let attack = async {
        let mut open = Vec::new();
        for _ in 0..count {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            // What the kernel holds for a client is not the gateway's.
            socket.set_recv_buffer_size(4096).unwrap();
            let mut socket = socket.connect(arena.address()).await.unwrap();
            socket.write_all(b"GET /events HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
            open.push(socket);
        }
        let most = left_alone(&open).await;
        format!("{count} streams over HTTP/1.1, all cut after {most:.1} s (limits.send_timeout)")
    };
    is_unharmed(&arena.under("slow readers", attack).await, 32 * MIB + 192 * count);
}

/// Waits until the gateway has cut all of `open`, none of which is read; for how long. First the kernel takes some megabytes for each.
async fn left_alone(open: &[TcpStream]) -> f64 {
    let began = Instant::now();
    let mut pace = interval(Duration::from_millis(200));
    let mut cut = 0;
    while cut < open.len() {
        assert!(began.elapsed() < Duration::from_secs(240), "{cut} of {} were cut", open.len());
        pace.tick().await;
        // A reset shows in what is written.
        cut = open
            .iter()
            .filter(|s| s.try_write(b"\r\n").is_err_and(|e| e.kind() != std::io::ErrorKind::WouldBlock))
            .count();
    }
    began.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_http2_that_nobody_reads_are_bounded() {
    let connections = sized(2, 20);
    let arena = Arena::start("attack-readers-h2", "").await;
    let attack = async {
        let mut open = Vec::new();
        for _ in 0..connections {
            let mut socket = arena.connect().await;
            let streams = (0..100u32).flat_map(|n| frame(1, 5, 2 * n + 1, &frames::request("/events")));
            socket.write_all(&[PREFACE.to_vec(), streams.collect()].concat()).await.unwrap();
            open.push(socket);
        }
        tidegate_testkit::takes(sized(Duration::from_secs(2), Duration::from_secs(20))).await;
        format!("{} streams on {connections} connections", 100 * connections)
    };
    // limits.http2.send_buffer is 64 KiB for each, and what is under way.
    is_unharmed(&arena.under("slow readers, HTTP/2", attack).await, 32 * MIB + 128 * 100 * connections);
}
