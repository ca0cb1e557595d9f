//! One run: every proxy that is here, one after the other, through the same phases.

use crate::client::PROXY_CORE;
use crate::figures::Figures;
use crate::machine::{self, Cores};
use crate::message;
use crate::peers::{self, Peer, Place, Where};
use crate::processes::Started;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Connections of JSON clients.
const CONNECTIONS: usize = 64;
/// Connections of JSON clients at half load: enough that one is free whenever a request is due.
const PACED_CONNECTIONS: usize = 256;
/// Open streams and milliseconds between the events of each: the last is about memory alone, so its events are slow.
const STREAMS: [(usize, u64); 3] = [(500, 20), (1300, 20), (5000, 1000)];
/// How long a proxy may take to answer its first requests.
const START: Duration = Duration::from_secs(60);
/// Requests in a row that must succeed before a proxy counts as started.
const ANSWERS: u32 = 12;

/// What was measured of one proxy.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// JSON requests as fast as it goes.
    pub unary: Figures,
    /// JSON requests at half of that.
    pub half: Figures,
    /// The same without a proxy.
    pub half_direct: Figures,
    /// 500, 1,300 and 5,000 streams.
    pub streams: [Figures; 3],
    /// As many streams as make half of the most events a second it passed on.
    pub half_streams: usize,
    /// What they saw.
    pub streaming: Figures,
    /// The same without a proxy.
    pub streaming_direct: Figures,
}

/// How to run.
#[derive(Debug)]
pub struct Plan {
    /// Which proxies, by name; all when empty.
    pub only: Vec<String>,
    /// Seconds each phase counts.
    pub seconds: f64,
    /// No proxy is begun that would not be done by then.
    pub limit: Duration,
    /// Where programs and configs are.
    pub places: Where,
    /// Folder for configs and logs of the proxies.
    pub folder: PathBuf,
}

/// Runs all, and names what was left out and why.
///
/// # Errors
/// If the engines cannot be started.
pub fn run(plan: &Plan, cores: Cores) -> anyhow::Result<(Vec<Row>, Vec<String>)> {
    let began = Instant::now();
    let port = machine::free_port()?;
    let mut engine = Command::new(std::env::current_exe()?);
    engine.args(["engine", "--port", &port.to_string()]).stdin(Stdio::null());
    let engine = Started::new(machine::on_core(cores.engine, || engine.spawn())?);
    wait_until_it_answers(port, engine).map(|engine| {
        let bench = Bench { plan, cores, engine: port };
        let (mut rows, mut left_out, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
        for name in peers::NAMES.into_iter().filter(|n| plan.only.is_empty() || plan.only.iter().any(|o| o == n)) {
            if began.elapsed() + longest > plan.limit {
                left_out.push(format!("{name}: no time left"));
                continue;
            }
            let start = Instant::now();
            let row = plan.places.find(name).map_err(anyhow::Error::msg).and_then(|peer| bench.measure(&peer));
            match row {
                Ok(row) => {
                    longest = longest.max(start.elapsed());
                    rows.push(row);
                }
                Err(why) => {
                    eprintln!("{name}: left out: {why:#}");
                    left_out.push(format!("{name}: {why:#}"));
                }
            }
        }
        drop(engine);
        (rows, left_out)
    })
}

struct Bench<'a> {
    plan: &'a Plan,
    cores: Cores,
    engine: u16,
}

impl Bench<'_> {
    fn measure(&self, peer: &Peer) -> anyhow::Result<Row> {
        eprintln!("{} {}", peer.name, peer.version);
        let direct = (self.engine, None);
        let mut row = Row { name: peer.name.to_owned(), version: peer.version.clone(), ..Row::default() };
        // Memory in a process of its own: what a proxy has once taken it rarely gives back.
        let (port, proxy) = self.start(peer)?;
        for (figures, (streams, gap_ms)) in row.streams.iter_mut().zip(STREAMS) {
            *figures = self.streams((port, Some(proxy.pid())), streams, gap_ms)?;
            // What drowns in five hundred streams says nothing about more of them.
            if figures.open * 2 < streams as u64 {
                break;
            }
        }
        drop(proxy);
        let (port, proxy) = self.start(peer)?;
        let target = (port, Some(proxy.pid()));
        row.unary = self.client("unary", target, CONNECTIONS, 1.5, &[])?;
        let rate = (row.unary.per_s / 2.0).to_string();
        row.half = self.client("paced", target, PACED_CONNECTIONS, 1.0, &["--rate", &rate])?;
        row.half_direct = self.client("paced", direct, PACED_CONNECTIONS, 1.0, &["--rate", &rate])?;
        let most_events = row.streams.iter().map(|f| f.per_s).fold(0.0, f64::max);
        row.half_streams = ((most_events / 2.0 * 0.02) as usize).max(1);
        row.streaming = self.streams(target, row.half_streams, 20)?;
        row.streaming_direct = self.streams(direct, row.half_streams, 20)?;
        Ok(row)
    }

    fn start(&self, peer: &Peer) -> anyhow::Result<(u16, Started)> {
        let (port, metrics) = (machine::free_port()?, machine::free_port()?);
        let place = Place { port, metrics, engine: self.engine, folder: &self.plan.folder };
        let mut command = self.plan.places.command(peer, &place)?;
        let proxy = Started::new(machine::on_core(PROXY_CORE, || command.spawn())?);
        let proxy = wait_until_it_answers(port, proxy)
            .with_context(|| format!("see {}/{}.log", self.plan.folder.display(), peer.name))?;
        Ok((port, proxy))
    }

    fn streams(&self, target: (u16, Option<u32>), streams: usize, gap_ms: u64) -> anyhow::Result<Figures> {
        // Streams of six seconds, or of half a minute where events are slow.
        let events = (6000 / gap_ms).max(30).to_string();
        let warm_s = if streams > 2000 { 4.0 } else { 2.0 };
        self.client("streams", target, streams, warm_s, &["--events", &events, "--gap-ms", &gap_ms.to_string()])
    }

    fn client(
        &self,
        kind: &str,
        (port, pid): (u16, Option<u32>),
        connections: usize,
        warm_s: f64,
        extra: &[&str],
    ) -> anyhow::Result<Figures> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([kind, "--port", &port.to_string(), "--connections", &connections.to_string()]);
        command.args(["--warm-s", &warm_s.to_string(), "--seconds", &self.plan.seconds.to_string()]).args(extra);
        if let Some(pid) = pid {
            command.args(["--pid", &pid.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let output = Started::new(machine::on_core(self.cores.client, || command.spawn())?).output()?;
        let figures: Figures = serde_json::from_str(&output)?;
        eprintln!(
            "  {kind:<8}{connections:>5}{} {:>8.0}/s {:>6.1} us each, core {:>3.0} % (others {:.0} %), p50 {:.0} us p99 {:.0} us, {:.1} MiB, {} failed",
            if pid.is_some() { "       " } else { " direct" },
            figures.per_s,
            figures.cpu_us,
            figures.busy * 100.0,
            figures.others * 100.0,
            figures.delay.p50_us,
            figures.delay.p99_us,
            figures.resident_kib as f64 / 1024.0,
            figures.failed
        );
        Ok(figures)
    }
}

/// Waits until a proxy has answered several requests in a row; a router may take its engines in one by one.
fn wait_until_it_answers(port: u16, mut proxy: Started) -> anyhow::Result<Started> {
    let deadline = Instant::now() + START;
    let mut answers = 0;
    while answers < ANSWERS {
        anyhow::ensure!(!proxy.has_ended(), "it ended at once");
        anyhow::ensure!(Instant::now() < deadline, "no answer within {} s", START.as_secs());
        if answers_now(port).unwrap_or(false) {
            answers += 1;
        } else {
            answers = 0;
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(proxy)
}

fn answers_now(port: u16) -> anyhow::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nx-tenant: a";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
    let (mut buffer, mut have) = ([0; 8192], 0);
    loop {
        let read = stream.read(&mut buffer[have..])?;
        anyhow::ensure!(read > 0, "closed");
        have += read;
        if let Some(status) = message::whole_answer(&buffer[..have])? {
            return Ok(status == 200);
        }
    }
}

/// The folder in which this run's results lie.
///
/// # Errors
/// If it cannot be made.
pub fn folder(of: &Path) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(of.join("proxies"))?;
    of.canonicalize()
}
