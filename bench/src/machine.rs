//! The machine a run is made on, its cores, and ports that are free.

use crate::engine::HOSTS;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::net::TcpListener;

/// Which core runs what.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    /// All there are.
    pub all: usize,
    /// The engines' core.
    pub engine: usize,
    /// The client's core: the engines' where there are only two.
    pub client: usize,
}

impl Cores {
    /// Of this machine.
    pub fn here() -> Self {
        let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { all, engine: 1.min(all - 1), client: 2.min(all - 1) }
    }
}

/// Runs `f` on one core; what it starts stays there.
///
/// # Errors
/// If the core is not ours to use.
pub fn on_core<T>(core: usize, f: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    let before = rustix::thread::sched_getaffinity(None)?;
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only)?;
    let result = f();
    sched_setaffinity(None, &before)?;
    result
}

/// A port that is free on all addresses of the engines now.
///
/// # Errors
/// If the system gives none.
pub fn free_port() -> anyhow::Result<u16> {
    for _ in 0..100 {
        let first = TcpListener::bind((HOSTS[0], 0))?;
        let port = first.local_addr()?.port();
        if HOSTS[1..].iter().all(|h| TcpListener::bind((*h, port)).is_ok()) {
            return Ok(port);
        }
    }
    anyhow::bail!("no port is free on all of {HOSTS:?}")
}

/// What a reader needs to compare with another machine.
pub fn described(cores: Cores) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model =
        info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(": ").nth(1)).unwrap_or("unknown");
    format!(
        "{model}, {} cores, Linux {}, proxy on core {}, engines on core {}, client on core {}",
        cores.all,
        read("/proc/sys/kernel/osrelease").trim(),
        crate::client::PROXY_CORE,
        cores.engine,
        cores.client,
    )
}

/// Processes that ran or waited over the last minute, on average.
pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}
