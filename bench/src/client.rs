//! What the three kinds of client share: whom they ask and what, and how the proxy's own use is read.

use crate::figures::Figures;
use crate::processes;
use clap::Args;
use std::time::Instant;

/// Tenants of the load, in turn by connection.
const TENANTS: [&str; 3] = ["a", "b", "c"];
/// The core proxies run on.
pub const PROXY_CORE: usize = 0;

/// What every client is told.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Port on 127.0.0.1 to ask.
    #[arg(long)]
    pub port: u16,
    /// Process whose tree is accounted.
    #[arg(long)]
    pub pid: Option<u32>,
    /// Connections, each with one request at a time.
    #[arg(long)]
    pub connections: usize,
    /// Seconds from the first connection to the start of what counts.
    #[arg(long, default_value_t = 1.0)]
    pub warm_s: f64,
    /// Seconds that count.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
}

impl Target {
    /// The request of a connection: a short chat with a tenant and a session of its own.
    pub fn request(&self, connection: usize, stream: Option<(u64, u64)>) -> Vec<u8> {
        let tenant = TENANTS[connection % TENANTS.len()];
        let (events, gap_ms) = stream.unwrap_or((16, 0));
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"hello there, what is the capital of France? answer shortly"}}],"max_tokens":{events},"user":"gap-{gap_ms}","stream":{}}}"#,
            stream.is_some()
        );
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nx-tenant: {tenant}\r\nx-session-id: s{connection}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head, body].concat().into_bytes()
    }
}

/// What the proxy had used when the counting began.
#[derive(Debug)]
pub struct Meter {
    pid: Option<u32>,
    began: Instant,
    cpu_s: f64,
    core_s: f64,
}

impl Meter {
    /// Begins to count.
    pub fn start(pid: Option<u32>) -> Self {
        let (cpu_s, core_s) = (pid.map_or(0.0, processes::cpu_s), processes::core_busy_s(PROXY_CORE));
        Self { pid, began: Instant::now(), cpu_s, core_s }
    }

    /// Ends counting: rates and the proxy's use for `units` requests or events.
    pub fn stop(&self, units: u64) -> Figures {
        let seconds = self.began.elapsed().as_secs_f64();
        let cpu_s = self.pid.map_or(0.0, processes::cpu_s) - self.cpu_s;
        let core_s = processes::core_busy_s(PROXY_CORE) - self.core_s;
        Figures {
            per_s: units as f64 / seconds,
            cpu_us: cpu_s * 1e6 / units.max(1) as f64,
            busy: cpu_s / seconds,
            others: ((core_s - cpu_s) / seconds).max(0.0),
            resident_kib: self.pid.map_or(0, processes::resident_kib),
            ..Figures::default()
        }
    }
}
