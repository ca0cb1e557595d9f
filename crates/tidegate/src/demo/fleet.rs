//! Three engines of different speed that can be killed and revived, and the config of the gateway in front of them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Mutex;

use tidegate::engine::{self, RunningEngine};
use tidegate_sim::engine::EngineSpec;
use tidegate_sim::engine::fixed::FixedParams;

/// Name and seconds per answer: 7 : 4 : 1.
const ENGINES: [(&str, f64); 3] = [("slow", 0.7), ("middle", 0.4), ("fast", 0.1)];
/// Answers each engine works on at a time.
const SLOTS: u32 = 4;
/// Policies that are compared, in the order of the table; the last one takes what names no policy.
pub(super) const POLICIES: [&str; 6] =
    ["round_robin", "least_connections", "least_response_time", "fastest_recovery", "hybrid", "adaptive"];
/// The header that picks a policy's pool.
pub(super) const POLICY_HEADER: &str = "x-demo-policy";

/// The engines. A killed one leaves its address free until it is revived there.
pub(super) struct Fleet {
    engines: Vec<Mutex<Option<RunningEngine>>>,
    addresses: Vec<SocketAddr>,
}

impl Fleet {
    /// Starts all engines on ports the system gives.
    pub(super) fn start() -> anyhow::Result<Self> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let running: Vec<RunningEngine> = (0..ENGINES.len()).map(|k| spawn(k, any)).collect::<anyhow::Result<_>>()?;
        let addresses = running.iter().map(|e| e.address).collect();
        Ok(Self { engines: running.into_iter().map(|e| Mutex::new(Some(e))).collect(), addresses })
    }

    /// The name of engine `k`.
    pub(super) fn name(k: usize) -> String {
        let (name, seconds) = ENGINES[k % ENGINES.len()];
        format!("{name} {seconds} s")
    }

    /// The base URL of engine `k`.
    pub(super) fn url(&self, k: usize) -> String {
        format!("http://{}", self.addresses[k])
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.addresses.len()
    }

    /// The name of the engine at a URL, or the URL.
    pub(super) fn name_of(&self, url: &str) -> String {
        (0..self.len()).find(|&k| self.url(k) == url).map_or_else(|| url.to_owned(), Self::name)
    }

    /// Ends engine `k` with everything on it, or starts it again at its address.
    pub(super) fn set_alive(&self, k: usize, alive: bool) -> anyhow::Result<()> {
        let Some(place) = self.engines.get(k) else { anyhow::bail!("there is no engine {k}") };
        let mut engine = place.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match (alive, engine.take()) {
            (true, None) => *engine = Some(spawn(k, self.addresses[k])?),
            (true, running) => *engine = running,
            // Stopping waits for the engine's thread, which closes its connections.
            (false, Some(running)) => running.stop(),
            (false, None) => {}
        }
        Ok(())
    }

    /// The gateway's config: one pool per policy over the same engines, chosen by header; everything else goes to `adaptive`.
    pub(super) fn config(&self, listener: SocketAddr, admin: SocketAddr) -> String {
        let mut text = format!(
            "listeners: [{{ address: {listener} }}]\nadmin: {{ address: {admin} }}\nlog: {{ level: error }}\nroutes:\n"
        );
        for policy in POLICIES.iter().filter(|p| **p != "adaptive") {
            let _ = writeln!(text, "  - {{ match: {{ headers: {{ {POLICY_HEADER}: {policy} }} }}, pool: {policy} }}");
        }
        text.push_str("  - { pool: adaptive }\npools:\n");
        // The live one first: it is what the page shows on top.
        for policy in POLICIES.iter().rev() {
            let _ = writeln!(text, "  {policy}:\n    policy: {policy}\n    max_load: off\n    endpoints:");
            for k in 0..self.len() {
                let _ = writeln!(text, "      - {{ url: {} }}", self.url(k));
            }
            text.push_str(
                "    health: { http: { path: /health }, interval: 1s, unhealthy_interval: 500ms, timeout: 400ms }\n",
            );
            let _ = writeln!(
                text,
                "    load: {{ status: {{ path: /status, interval: 200ms }}, per_request: {} }}",
                1.0 / f64::from(SLOTS)
            );
        }
        text
    }
}

fn spawn(k: usize, address: SocketAddr) -> anyhow::Result<RunningEngine> {
    let (name, delay_s) = ENGINES[k];
    let spec = EngineSpec::Fixed(FixedParams { delay_s, slots: Some(SLOTS), ..FixedParams::default() });
    let mut config = engine::Config::new(name, spec);
    (config.address, config.seed) = (address, 1 + k as u64);
    engine::spawn(config)
}
