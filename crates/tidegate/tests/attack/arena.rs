//! A gateway process under attack, an engine behind it, and a client that behaves: what the attack costs memory and that client.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of a test, which is there to fail, and to show what it saw"
)]

use crate::lifecycle::{Folder, Process};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tidegate_testkit::{Scripted, takes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, timeout};

/// Between two requests of the client that behaves, and between two looks at the memory.
const PACE: Duration = Duration::from_millis(5);
/// After this the client that behaves calls an answer missing.
const PATIENCE: Duration = Duration::from_secs(5);
const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Whether the whole show is asked for, and not what every test run can afford.
pub(crate) fn is_full() -> bool {
    std::env::var_os("ATTACK_FULL").is_some()
}

/// `small` in every test run, `full` in the show.
pub(crate) fn sized<T>(small: T, full: T) -> T {
    if is_full() { full } else { small }
}

/// A gateway of one thread.
pub(crate) struct Arena {
    process: Process,
    _engine: Scripted,
    _folder: Folder,
}

/// What the client that behaves had.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Sorted, in milliseconds.
    took: Vec<f64>,
    pub(crate) failures: usize,
}

impl Times {
    /// A quantile, in milliseconds.
    pub(crate) fn at(&self, q: f64) -> f64 {
        let last = self.took.len().saturating_sub(1);
        self.took.get((last as f64 * q) as usize).copied().unwrap_or(f64::NAN)
    }

    fn shown(&self) -> String {
        format!("{:>6.1} {:>6.1} {:>7.1}", self.at(0.5), self.at(0.99), self.at(1.0))
    }
}

/// What an attack came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How much the gateway's resident memory grew at most, in KiB.
    pub(crate) growth: usize,
    pub(crate) during: Times,
}

impl Arena {
    /// Starts them; `limits` are keys in YAML flow style.
    pub(crate) async fn start(name: &str, limits: &str) -> Self {
        let engine = engine().await;
        let folder = Folder::new(name);
        let config = format!(
            "listeners: [{{ address: \"127.0.0.1:0\" }}]\nadmin: {{ address: \"127.0.0.1:0\" }}\nthreads: 1\nlog: {{ level: error }}\n\
             limits: {{ {limits} }}\npools: {{ p: {{ policy: least_connections, timeouts: {{ total: none }}, endpoints: [{{ url: \"{}\" }}] }} }}\n",
            engine.url()
        );
        let process = Process::start(&folder.write("gateway.yaml", &config), &[]);
        Self { process, _engine: engine, _folder: folder }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.gateway
    }

    /// A connection to the gateway.
    pub(crate) async fn connect(&self) -> TcpStream {
        connect(self.address()).await
    }

    /// Asks the admin API for its health again and again for as long as `time`; the longest wait, in seconds.
    pub(crate) async fn health(&self, time: Duration) -> f64 {
        let (until, mut slowest) = (Instant::now() + time, 0f64);
        let mut pace = interval(4 * PACE);
        while Instant::now() < until {
            pace.tick().await;
            let began = Instant::now();
            let mut socket = connect(self.process.admin).await;
            socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut said = Vec::new();
            socket.read_to_end(&mut said).await.unwrap();
            assert!(said.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&said));
            slowest = slowest.max(began.elapsed().as_secs_f64());
        }
        slowest
    }

    /// Resident memory of the gateway, in KiB.
    pub(crate) fn resident(&self) -> usize {
        resident(self.process.pid())
    }

    /// Runs `attack`, which says what it did, and prints a row of the table.
    pub(crate) async fn under(&self, name: &str, attack: impl Future<Output = String>) -> Outcome {
        let quiet = self.behaves(takes(sized(Duration::from_millis(300), Duration::from_secs(2)))).await.0;
        let before = self.resident();
        let ended = Arc::new(AtomicBool::new(false));
        let (looks, pid) = (Arc::clone(&ended), self.process.pid());
        let memory = tokio::spawn(async move {
            let (mut pace, mut most) = (interval(PACE), 0);
            while !looks.load(Relaxed) {
                pace.tick().await;
                most = most.max(resident(pid));
            }
            most
        });
        let (during, said) = self.behaves(attack).await;
        ended.store(true, Relaxed);
        let most = memory.await.unwrap();
        println!(
            "ATTACK {name:<22} {:>6.1} {:>6.1} | {} | {} | {:>5} of {:<6} | {said}",
            before as f64 / 1024.0,
            most as f64 / 1024.0,
            quiet.shown(),
            during.shown(),
            during.failures,
            during.took.len() + during.failures,
        );
        Outcome { growth: most.saturating_sub(before), during }
    }

    /// What the client that behaves has while `something` happens, and what comes of that.
    async fn behaves<T>(&self, something: impl Future<Output = T>) -> (Times, T) {
        let ended = Arc::new(AtomicBool::new(false));
        let guest = tokio::spawn(guest(self.address(), Arc::clone(&ended)));
        let came = something.await;
        ended.store(true, Relaxed);
        (guest.await.unwrap(), came)
    }
}

pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).await.unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

async fn guest(address: SocketAddr, ended: Arc<AtomicBool>) -> Times {
    let (mut times, mut pace) = (Times::default(), interval(PACE));
    let mut socket = connect(address).await;
    while !ended.load(Relaxed) {
        pace.tick().await;
        let began = Instant::now();
        let asked = async {
            socket.write_all(b"GET /ok HTTP/1.1\r\nhost: t\r\n\r\n").await.ok()?;
            let mut had = Vec::new();
            while !had.ends_with(b"\r\n\r\nok") {
                socket.read_buf(&mut had).await.ok().filter(|n| *n > 0)?;
            }
            Some(())
        };
        if let Ok(Some(())) = timeout(PATIENCE, asked).await {
            times.took.push(began.elapsed().as_secs_f64() * 1e3);
        } else {
            times.failures += 1;
            socket = connect(address).await;
        }
    }
    times.took.sort_by(f64::total_cmp);
    times
}

fn resident(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// Answers `ok`; streams events without an end at `/events`; reads slowly at `/upload`.
async fn engine() -> Scripted {
    Scripted::start(|mut c| async move {
        let mut heard = Vec::new();
        loop {
            let end = loop {
                if let Some(at) = heard.windows(4).position(|w| w == b"\r\n\r\n") {
                    break at + 4;
                }
                if !c.hear(&mut heard).await {
                    return;
                }
            };
            let head = String::from_utf8_lossy(&heard[..end]).into_owned();
            heard.drain(..end);
            if head.contains(" /events") {
                c.send(STREAM).await;
                let event = format!("data: {}\n\n", "x".repeat(4096));
                for _ in 0..2048 {
                    c.send_chunk(&event).await;
                }
                return;
            }
            let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let (mut left, mut since) = (length.unwrap_or(0).saturating_sub(heard.len()), 0);
            heard.clear();
            while left > 0 && c.hear(&mut heard).await {
                left = left.saturating_sub(heard.len());
                since += heard.len();
                heard.clear();
                if since > 1 << 20 {
                    // About 200 MB/s.
                    takes(Duration::from_millis(5)).await;
                    since = 0;
                }
            }
            c.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        }
    })
    .await
}
