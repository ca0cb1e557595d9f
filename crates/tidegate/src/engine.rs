//! `tidegate engine`: a simulated inference engine that answers real requests.
//!
//! The models are those of `tidegate-sim`, driven here in real time: a task sleeps until the model's next event and hands out what
//! it produces. One engine is one thread with its own runtime, so that several fit into one process (`tidegate demo`, tests)
//! without sharing anything.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use serde_json::{Value, json};
use tidegate_sim::engine::EngineSpec;
use tidegate_sim::fault::Fault;
use tidegate_sim::workload::LogNormal;
use tokio::sync::mpsc;

mod args;
mod body;
pub mod clock;
mod control;
mod embeddings;
mod listener;
mod metrics;
mod openai;
mod routes;
mod sse;
mod state;
pub mod stats;

pub use args::Args;
pub use routes::{OUTPUT_TOKENS, PROMPT_TOKENS};
use state::Shared;

/// What an engine is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name, as `/infer` gives it.
    pub name: String,
    /// The model name it serves.
    pub served_model: String,
    /// How it computes.
    pub spec: EngineSpec,
    /// How many times as fast as its parameters say, `> 0`.
    pub speed: f64,
    /// Seed of answer lengths, faults and background load.
    pub seed: u64,
    /// Where it serves users; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Where faults are set; port 0 lets the system choose.
    pub control_address: SocketAddr,
    /// Length of an answer where the request does not fix it.
    pub output: LogNormal,
    /// Cap on a stream's events per second; the `llm` model has its own in the parameters.
    pub max_tokens_per_s: Option<f64>,
}

impl Config {
    /// An engine on free loopback ports, in real time, answers of about 20 tokens (`fixed`, `load`) or 130 (`llm`).
    pub fn new(name: &str, spec: EngineSpec) -> Self {
        let output = match spec {
            EngineSpec::Llm(_) => LogNormal { median: 130.0, sigma: 0.9, max: 4096 },
            _ => LogNormal { median: 20.0, sigma: 0.0, max: 4096 },
        };
        Self {
            name: name.to_owned(),
            served_model: "tidegate-sim-8b".to_owned(),
            spec,
            speed: 1.0,
            seed: 1,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            control_address: SocketAddr::from(([127, 0, 0, 1], 0)),
            output,
            max_tokens_per_s: None,
        }
    }

    /// Fewer events for a `fixed` stream than asked for, where the cap says so; its total time is the delay either way.
    fn limit_events(&self, output_tokens: u32) -> u32 {
        match (self.spec, self.max_tokens_per_s) {
            (EngineSpec::Fixed(p), Some(rate)) => output_tokens.min(((p.delay_s / self.speed * rate) as u32).max(1)),
            _ => output_tokens,
        }
    }
}

enum Command {
    Fault(Fault, std::sync::mpsc::Sender<()>),
    Stats(std::sync::mpsc::Sender<Value>),
}

/// An engine that runs on a thread of its own until it is stopped or dropped.
#[derive(Debug)]
pub struct RunningEngine {
    /// Its name.
    pub name: String,
    /// Where it serves users.
    pub address: SocketAddr,
    /// Where faults are set.
    pub control_address: SocketAddr,
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl RunningEngine {
    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Switches a fault on, or off with kind `none`; as `POST /fault` does, but in this process. It is on when this returns.
    pub fn set_fault(&self, fault: Fault) {
        let (reply, on) = std::sync::mpsc::channel();
        if self.commands.as_ref().is_some_and(|c| c.send(Command::Fault(fault, reply)).is_ok()) {
            let _ = on.recv();
        }
    }

    /// The counts that `GET /stats` gives; `None` if the engine is gone.
    pub fn stats(&self) -> Option<Value> {
        let (reply, stats) = std::sync::mpsc::channel();
        self.commands.as_ref()?.send(Command::Stats(reply)).ok()?;
        stats.recv().ok()
    }

    /// Stops it and closes its connections; returns when its thread has ended.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for RunningEngine {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts an engine. Its addresses accept connections when this returns.
pub fn spawn(config: Config) -> anyhow::Result<RunningEngine> {
    let users = listener::bind(config.address).with_context(|| format!("cannot listen at {}", config.address))?;
    let control = listener::bind(config.control_address)
        .with_context(|| format!("cannot listen at control address {}", config.control_address))?;
    let (name, address, control_address) = (config.name.clone(), users.local_addr()?, control.local_addr()?);
    let (commands, inbox) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name(format!("engine-{name}")).spawn(move || {
        let tasks = tokio::task::LocalSet::new();
        tasks.block_on(&runtime, run_engine(config, users, control, inbox));
    })?;
    Ok(RunningEngine { name, address, control_address, commands: Some(commands), thread: Some(thread) })
}

async fn run_engine(
    config: Config,
    users: std::net::TcpListener,
    control: std::net::TcpListener,
    mut inbox: mpsc::UnboundedReceiver<Command>,
) {
    let shared = Rc::new(Shared::new(config));
    tokio::task::spawn_local(drive(shared.clone()));
    tokio::task::spawn_local(listener::serve_users(shared.clone(), users));
    tokio::task::spawn_local(listener::serve_control(shared.clone(), control));
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Fault(fault, reply) => {
                shared.set_fault(fault).await;
                let _ = reply.send(());
            }
            Command::Stats(reply) => {
                let _ = reply.send(control::stats(&shared));
            }
        }
    }
}

/// Sleeps until the model has something to do, again and again.
async fn drive(shared: Rc<Shared>) {
    loop {
        let changed = shared.model_changed.notified();
        match shared.pump() {
            Some(next) => {
                let until = shared.clock.runtime(next);
                let _ = tokio::time::timeout_at(until, changed).await;
            }
            None => changed.await,
        }
    }
}

/// Runs the command until Ctrl-C.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = match args.config() {
        Ok(config) => config,
        Err(problem) => {
            writeln!(std::io::stderr(), "tidegate engine: {problem}")?;
            return Ok(ExitCode::from(2));
        }
    };
    let model = config.spec.name();
    let engine = spawn(config)?;
    writeln!(std::io::stdout(), "{}", greeting(&engine, model, args.json))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tokio::signal::ctrl_c())?;
    engine.stop();
    Ok(ExitCode::SUCCESS)
}

fn greeting(engine: &RunningEngine, model: &str, as_json: bool) -> String {
    let (name, address, control) = (&engine.name, engine.address, engine.control_address);
    if as_json {
        let version = env!("CARGO_PKG_VERSION");
        return json!({"tool_version": version, "command": "engine", "name": name, "model": model,
                      "address": address.to_string(), "control_address": control.to_string()})
        .to_string();
    }
    let mut text = String::new();
    let _ = writeln!(text, "engine {name} ({model}) serves http://{address}, control http://{control}");
    let _ = writeln!(
        text,
        "  curl -N http://{address}/v1/chat/completions -d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}],\"stream\":true}}'"
    );
    let _ = write!(text, "  curl http://{control}/fault -d '{{\"kind\":\"slow\",\"factor\":4,\"for_s\":30}}'");
    text
}
