//! `tidegate demo`: the main job, live, on one machine.
//!
//! Three engines of different speed, the gateway, and streaming load: six policies one after another over the same arrivals, a table,
//! then everything stays up to be played with.

mod fleet;
mod table;

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::control::Control;
use fleet::{Fleet, POLICIES, POLICY_HEADER};
use http::{HeaderName, HeaderValue};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tidegate::load::{Lengths, Pattern, Plan, Progress, Report, run_plan};
use tidegate_admin::{Action, Target};
use tidegate_config::{Config, Shutdown};
use tidegate_sim::workload::Arrivals;

/// Run three engines, the gateway and live load, and compare policies
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tidegate demo                 compare, then stay up until Ctrl-C\n  tidegate demo --once --json   compare, print JSON, exit\n  tidegate demo --print-config  the gateway's config, to start your own from"
)]
pub(crate) struct Args {
    /// Exit after the table
    #[arg(long)]
    once: bool,
    /// Print the results as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Print the config of the demo's gateway and exit
    #[arg(long)]
    print_config: bool,
    /// Requests per second; the slowest engine can just keep up with a third of the default
    #[arg(long, value_name = "RATE", default_value_t = 15.0, value_parser = rate)]
    rate: f64,
    /// Seconds of load per policy
    #[arg(long, value_name = "SECONDS", default_value_t = 14.0, value_parser = seconds)]
    seconds: f64,
    /// Seed of the arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the gateway listens; the next free port if it is taken
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    address: SocketAddr,
    /// Where the live page is; the next free port if it is taken
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    admin: SocketAddr,
}

fn rate(text: &str) -> Result<f64, String> {
    positive(text, 1000.0)
}

fn seconds(text: &str) -> Result<f64, String> {
    positive(text, 3600.0)
}

fn positive(text: &str, max: f64) -> Result<f64, String> {
    let value = text.parse().ok().filter(|v: &f64| *v > 0.0 && *v <= max);
    value.ok_or_else(|| format!("a number above 0, at most {max}, such as 15"))
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let fleet = Arc::new(Fleet::start()?);
    let (address, admin) = (free(args.address)?, free(args.admin)?);
    let text = fleet.config(address, admin);
    if args.print_config {
        write!(std::io::stdout(), "{text}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let (config, _) = Config::parse(&text, "demo", &|_| None)
        .map_err(|p| anyhow::anyhow!("{}", p.iter().map(ToString::to_string).collect::<String>()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(demo(args, &config, fleet))
}

/// The address if it can be listened on, else one of the ports behind it, else one the system gives.
fn free(wanted: SocketAddr) -> anyhow::Result<SocketAddr> {
    let behind = (1..20).filter_map(|n| Some(SocketAddr::new(wanted.ip(), wanted.port().checked_add(n)?)));
    let mut candidates = behind.chain([SocketAddr::new(wanted.ip(), 0)]);
    let first = match std::net::TcpListener::bind(wanted) {
        Ok(listener) => return Ok(listener.local_addr()?),
        Err(error) => error,
    };
    let bound = candidates.find_map(|a| std::net::TcpListener::bind(a).ok());
    let bound = bound.ok_or(first).with_context(|| format!("cannot listen on {wanted}"))?;
    Ok(bound.local_addr()?)
}

async fn demo(args: &Args, config: &Config, fleet: Arc<Fleet>) -> anyhow::Result<ExitCode> {
    tidegate_telemetry::init_log(&config.log)?;
    let control = Control::start(config, vec![kill_switch(&fleet)], None)?;
    let url = format!("http://{}", control.addresses()[0]);
    let page = control.admin().map(|a| format!("http://{a}")).unwrap_or_default();
    let mut err = std::io::stderr();
    writeln!(err, "three engines ({}), one gateway at {url}, live page at {page}", names(&fleet))?;
    let mut reports = Vec::new();
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    for policy in POLICIES {
        let report = tokio::select! {
            // First, so that Ctrl-C is listened for before anything is said of the policy.
            biased;
            done = &mut interrupt => {
                done?;
                writeln!(err, "stopped")?;
                return Ok(ExitCode::from(1));
            }
            report = compare(args, &url, policy) => report?,
        };
        reports.push(Report { endpoints: named(&fleet, &report), ..report });
    }
    print(args, &reports)?;
    if !args.once {
        stay(args, &url, &page, &fleet).await?;
    }
    control.stop(&Shutdown { drain_timeout: Duration::from_secs(2), ..config.shutdown }).await;
    Ok(ExitCode::from(u8::from(reports.iter().any(|r| r.succeeded == 0))))
}

/// The button that ends an engine with everything on it, and starts it again.
fn kill_switch(fleet: &Arc<Fleet>) -> Action {
    let fleet = Arc::clone(fleet);
    let run = move |target: Target, on: bool| -> tidegate_admin::Running {
        let fleet = Arc::clone(&fleet);
        Box::pin(async move {
            let switched = tokio::task::spawn_blocking(move || fleet.set_alive(target.endpoint, !on)).await;
            switched.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
        })
    };
    Action { name: "kill", on: "Kill engine", off: "Revive engine", run: Arc::new(run) }
}

fn names(fleet: &Fleet) -> String {
    (0..fleet.len()).map(Fleet::name).collect::<Vec<_>>().join(", ")
}

fn named(fleet: &Fleet, report: &Report) -> std::collections::BTreeMap<String, u64> {
    report.endpoints.iter().map(|(url, n)| (fleet.name_of(url), *n)).collect()
}

fn plan(args: &Args, url: &str, policy: &str) -> anyhow::Result<Plan> {
    let mut plan = Plan::new(policy, url.parse()?);
    plan.pattern = Pattern::Open {
        arrivals: Arrivals::Poisson { rate: args.rate },
        length: Duration::from_secs_f64(args.seconds),
        lengths: Lengths::default(),
    };
    plan.headers.push((HeaderName::from_static(POLICY_HEADER), HeaderValue::from_str(policy)?));
    plan.seed = args.seed;
    Ok(plan)
}

/// One policy under the same arrivals as the others, with a bar.
async fn compare(args: &Args, url: &str, policy: &str) -> anyhow::Result<Report> {
    let plan = plan(args, url, policy)?;
    let progress = Arc::new(Progress::default());
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(0)
    } else {
        writeln!(std::io::stderr(), "{policy}: {} s of load", args.seconds)?;
        ProgressBar::hidden()
    };
    bar.set_style(ProgressStyle::with_template("{prefix:>20} {bar:32} {pos}/{len} {msg}")?);
    bar.set_prefix(policy.to_owned());
    let for_plan = Arc::clone(&progress);
    let mut running = tokio::task::spawn_blocking(move || run_plan(&plan, &for_plan));
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    // The plan runs on a thread that nothing else can end: dropping this future has to.
    let stop = StopOnDrop(Arc::clone(&progress));
    let report = loop {
        tokio::select! {
            report = &mut running => break report??,
            _ = tick.tick() => {
                bar.set_length(progress.planned());
                bar.set_position(progress.ended());
                bar.set_message(format!("{} in flight, {} failed", progress.in_flight(), progress.failed()));
            }
        }
    };
    drop(stop);
    bar.finish();
    Ok(report)
}

struct StopOnDrop(Arc<Progress>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn print(args: &Args, reports: &[Report]) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    if args.json {
        let rows: Vec<_> = reports.iter().map(Report::row).collect();
        let winner = table::winner(reports).map(|place| reports[place].name.clone());
        let value =
            json!({"tool_version": env!("CARGO_PKG_VERSION"), "command": "demo", "policies": rows, "winner": winner});
        writeln!(out, "{value}")?;
    } else {
        writeln!(out, "{}", table::table(reports))?;
        writeln!(
            out,
            "{} streaming requests per policy, the same arrivals for all ({}/s, seed {})",
            reports[0].requests, args.rate, args.seed
        )?;
    }
    Ok(())
}

/// Keeps a trickle of load going and says how it fares, until Ctrl-C.
async fn stay(args: &Args, url: &str, page: &str, fleet: &Fleet) -> anyhow::Result<()> {
    let mut err = std::io::stderr();
    writeln!(err, "\nEverything stays up, under load, until Ctrl-C. Try:")?;
    writeln!(err, "  the live page            {page}")?;
    writeln!(
        err,
        "  a stream                 curl -N {url}/v1/chat/completions -H 'content-type: application/json' \\\n                             -d '{{\"model\":\"m\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'"
    )?;
    writeln!(err, "  why it went there        curl -si {url}/v1/models -H 'x-tidegate-explain: 1'")?;
    writeln!(
        err,
        "  kill the fastest engine  curl -X POST {page}/api/pools/adaptive/endpoints/{}/actions/kill -H 'content-type: application/json' -d '{{\"on\":true}}'   (false revives it)",
        fleet.len() - 1
    )?;
    writeln!(err, "  metrics                  curl {page}/metrics")?;
    let mut plan = plan(args, url, "adaptive")?;
    plan.pattern = Pattern::Open {
        arrivals: Arrivals::Poisson { rate: args.rate / 2.0 },
        length: Duration::from_secs(24 * 3600),
        lengths: Lengths::default(),
    };
    let progress = Arc::new(Progress::default());
    let for_plan = Arc::clone(&progress);
    let running = tokio::task::spawn_blocking(move || run_plan(&plan, &for_plan));
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            done = tokio::signal::ctrl_c() => { done?; break }
            _ = tick.tick() => bar.set_message(format!("{} answered, {} in flight, {} failed", progress.ended(), progress.in_flight(), progress.failed())),
        }
    }
    progress.stop();
    running.await??;
    Ok(())
}
