//! The show: streams run and short requests come while the config changes and processes replace each other.

#![allow(clippy::print_stdout, reason = "a show is there to be seen")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidegate_proxy::Clock;

use tidegate_testkit::{Client, PATIENCE, Scripted, lasts, takes, wait_until};

use super::{Folder, Process};

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Streams that run at any time.
    pub(crate) streams: usize,
    /// Clients that send one short request after the other over connections that stay.
    pub(crate) short: usize,
    /// Events of a stream, and the time between two.
    pub(crate) events: u32,
    pub(crate) pace: Duration,
    pub(crate) reloads: u32,
    pub(crate) hand_overs: u32,
}

/// Requests of the limited route that a bucket holds; it refills by less than one a minute.
const BURST: u64 = 40;

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    streams: AtomicU64,
    short: AtomicU64,
    running: AtomicU64,
    admitted: AtomicU64,
    limited: AtomicU64,
    broken: AtomicU64,
    failed: AtomicU64,
    stop: AtomicBool,
}

/// An engine of `events` events per stream, or a short answer to a GET.
async fn engine(size: Size) -> Scripted {
    Scripted::start(move |mut c| async move {
        while let Some(asked) = c.request().await {
            if asked.head.starts_with("GET") {
                c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                continue;
            }
            c.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await;
            for n in 0..size.events {
                c.send_chunk(&format!("data: {{\"n\":{n}}}\n\n")).await;
                takes(size.pace).await;
            }
            c.send_chunk("data: [DONE]\n\n").await;
            c.send("0\r\n\r\n").await;
        }
    })
    .await
}

/// The `k`-th config: endpoints come and go, the policy, a limit and a pool change.
fn config(k: u32, engines: &[Scripted], folder: &Folder, ports: [u16; 2]) -> String {
    let first = k as usize % 3;
    let urls: Vec<String> = engines.iter().skip(first).take(4).map(|e| format!("{{ url: \"{}\" }}", e.url())).collect();
    let urls = urls.join(", ");
    let policy = ["adaptive", "round_robin", "least_connections", "peak_ewma"][k as usize % 4];
    let extra = if k % 2 == 1 { format!("\n  extra: {{ endpoints: [{urls}] }}") } else { String::new() };
    let door = folder.path("door.sock");
    let [port, admin] = ports;
    format!(
        "listeners: [{{ address: '127.0.0.1:{port}' }}]
admin: {{ address: '127.0.0.1:{admin}' }}
threads: 2
reload: {{ watch: 100ms }}
shutdown: {{ drain_timeout: 10m, keep_alive: 5s }}
takeover: {{ socket: '{}' }}
limits: {{ max_connections: 100000 }}
rate_limits: [{{ name: all, limit: {} requests/s }}]
concurrency_limits: [{{ name: streams, max_in_flight: 100000 }}]
routes:
  - {{ match: {{ path: /limited }}, pool: limited }}
  - {{ pool: chat }}
pools:
  chat: {{ policy: {policy}, endpoints: [{urls}], health: {{ tcp: {{}} }} }}
  limited: {{ endpoints: [{urls}], rate_limits: [{{ name: tight, limit: {} requests/h, burst: {BURST} }}] }}{extra}
",
        door.display(),
        50_000 + k,
        20 + k % 5,
    )
}

/// One stream after the other, each over a connection of its own.
async fn stream(address: SocketAddr, size: Size, seen: Arc<Seen>, k: usize) {
    // Spread over the length of a stream, so that some begin and end at any time.
    let length = size.pace * size.events;
    takes(length.mul_f64(k as f64 / size.streams as f64 / 4.0)).await;
    while !seen.stop.load(SeqCst) {
        let mut client = Client::connect(address).await;
        client.post("/v1/chat/completions", "content-type: application/json\r\n", "{\"stream\":true}").await;
        seen.running.fetch_add(1, SeqCst);
        let whole = match client.try_reply().await {
            Ok(reply) if reply.status == 200 => {
                let text = reply.text();
                text.matches("data: {").count() == size.events as usize && text.ends_with("data: [DONE]\n\n")
            }
            Ok(reply) => {
                println!("a stream was refused: {} {}", reply.status, reply.text());
                false
            }
            Err(had) => {
                println!("a stream broke after {} bytes", had.len());
                false
            }
        };
        seen.running.fetch_sub(1, SeqCst);
        let count = if whole { &seen.streams } else { &seen.broken };
        count.fetch_add(1, SeqCst);
    }
}

/// Short requests over one connection for as long as it lasts, then over the next.
async fn short(address: SocketAddr, seen: Arc<Seen>) {
    while !seen.stop.load(SeqCst) {
        let mut client = Client::connect(address).await;
        while !seen.stop.load(SeqCst) {
            client.get("/", "").await;
            let Ok(reply) = client.try_reply().await else {
                println!("a short answer broke off");
                seen.failed.fetch_add(1, SeqCst);
                break;
            };
            if reply.status == 200 {
                seen.short.fetch_add(1, SeqCst);
            } else {
                println!("a short request was refused: {} {}", reply.status, reply.text());
                seen.failed.fetch_add(1, SeqCst);
            }
            if reply.header("connection") == Some("close") {
                break;
            }
            takes(Duration::from_millis(50)).await;
        }
    }
}

/// Asks for more than the tight limit gives.
async fn greedy(address: SocketAddr, seen: Arc<Seen>) {
    while !seen.stop.load(SeqCst) {
        let mut client = Client::connect(address).await;
        client.get("/limited", "connection: close\r\n").await;
        match client.reply().await.status {
            200 => seen.admitted.fetch_add(1, SeqCst),
            429 => seen.limited.fetch_add(1, SeqCst),
            _ => seen.failed.fetch_add(1, SeqCst),
        };
        takes(Duration::from_millis(30)).await;
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs the show and checks its promises: no stream breaks, no request fails, counters return to zero, no bucket is refilled.
pub(crate) fn run(size: Size) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let engines: Vec<Scripted> = runtime.block_on(async {
        let mut engines = Vec::new();
        for _ in 0..6 {
            engines.push(engine(size).await);
        }
        engines
    });
    let (folder, ports) = (Folder::new("show"), [free_port(), free_port()]);
    let file = folder.write("gw.yaml", &config(0, &engines, &folder, ports));
    let mut process = Process::start(&file, &[]);
    let (address, seen, began) = (process.gateway, Arc::new(Seen::default()), Clock::start());
    let mut clients = tokio::task::JoinSet::new();
    for k in 0..size.streams {
        clients.spawn_on(stream(address, size, Arc::clone(&seen), k), runtime.handle());
    }
    for _ in 0..size.short {
        clients.spawn_on(short(address, Arc::clone(&seen)), runtime.handle());
    }
    clients.spawn_on(greedy(address, Arc::clone(&seen)), runtime.handle());
    let length = size.pace * size.events;
    wait_until("streams run", length, || seen.running.load(SeqCst) as usize >= size.streams * 9 / 10);
    let mut leaving: Vec<Process> = Vec::new();
    let steps = size.reloads + size.hand_overs;
    let mut generation = 1;
    for step in 1..=steps {
        let hands_over = size.hand_overs > 0 && step % (steps / size.hand_overs).max(1) == 0;
        let running = seen.running.load(SeqCst);
        if hands_over {
            let next = Process::start(&file, &["--takeover"]);
            process.says("has taken over");
            leaving.push(std::mem::replace(&mut process, next));
            generation = 1;
            println!(
                "{:6.1} s  hand-over to process {}, {running} streams run",
                began.now().as_secs_f64(),
                process.pid()
            );
        } else {
            folder.write("gw.yaml", &config(step, &engines, &folder, ports));
            generation += 1;
            process.reaches(generation);
            println!("{:6.1} s  reload to generation {generation}, {running} streams run", began.now().as_secs_f64());
        }
        // Longer than a stream in all, so that some live through everything and others begin under each config.
        lasts(length.mul_f64(1.2) / steps);
    }
    seen.stop.store(true, SeqCst);
    runtime.block_on(async { while clients.join_next().await.is_some() {} });
    for mut old in leaving {
        assert_eq!(old.ends(length + PATIENCE), Some(0), "an old process ends when its last stream does");
    }
    report(&process, &seen, size, began);
    process.signal("TERM");
    assert_eq!(process.ends(PATIENCE), Some(0));
}

fn report(process: &Process, seen: &Seen, size: Size, began: Clock) {
    let n = |count: &AtomicU64| count.load(SeqCst);
    println!(
        "{} streams of {} events and {} short requests in {:.0} s over {} reloads and {} hand-overs: {} streams broken, {} requests failed",
        n(&seen.streams),
        size.events,
        n(&seen.short),
        began.now().as_secs_f64(),
        size.reloads,
        size.hand_overs,
        n(&seen.broken),
        n(&seen.failed),
    );
    let admitted = n(&seen.admitted);
    // 24 an hour at most.
    let refilled = (began.now().as_secs_f64() as u64) * 24 / 3600 + 1;
    println!(
        "the tight limit let {admitted} of {} in; it holds {BURST} and got at most {refilled} since",
        admitted + n(&seen.limited)
    );
    assert_eq!((n(&seen.broken), n(&seen.failed)), (0, 0));
    assert!(n(&seen.streams) as usize >= size.streams);
    assert!((BURST..=BURST + refilled).contains(&admitted), "{admitted} were let in");
    wait_until("nothing is in flight", PATIENCE, || {
        process.metric("tidegate_pool_in_flight{pool=\"chat\"}") == Some(0.0)
    });
    let limits = process.get("/api/limits");
    let outstanding: u64 = limits["limits"].as_array().unwrap().iter().filter_map(|l| l["outstanding"].as_u64()).sum();
    println!("in flight 0, reservations outstanding {outstanding}");
    assert_eq!(outstanding, 0, "{limits}");
}
