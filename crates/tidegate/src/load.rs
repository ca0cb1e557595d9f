//! `tidegate load`: asks a service for answers at a given pace and says how it did.
//!
//! Open loop: requests start when the plan says, however the service does, and every latency counts from the *intended* start. A
//! service that stalls therefore shows the stall in all requests that should have been served meanwhile, instead of being asked
//! less (coordinated omission). Closed loop: N clients, each asking again when answered; there the total time is the result.
//!
//! One thread, one runtime; memory is bounded by `max_in_flight` and by histograms of fixed size.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

mod args;
mod client;
mod events;
mod pacer;
mod plan;
mod progress;
mod report;
mod run;
mod table;

pub use args::Args;
pub use plan::{Lengths, Pattern, Plan, Shot};
pub use progress::Progress;
pub use report::{Report, Round};
pub use run::run_plan;
pub use table::table;

/// How often the progress bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Runs the command; Ctrl-C ends it early and prints what was measured so far.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (plan, trace) = match args.plan() {
        Ok(both) => both,
        Err(problem) => {
            writeln!(std::io::stderr(), "tidegate load: {problem}")?;
            return Ok(ExitCode::from(2));
        }
    };
    if let Some(trace) = trace.as_ref().filter(|t| t.contains("synthetic")) {
        writeln!(std::io::stderr(), "the recorded trace is not here; using the stand-in {trace}")?;
    }
    let report = run_with_bar(plan)?;
    let mut out = std::io::stdout();
    if args.json {
        let rounds = report.rounds_json();
        let mut value =
            json!({"tool_version": env!("CARGO_PKG_VERSION"), "command": "load", "policies": [report.row()]});
        if let Some(trace) = trace {
            value["trace"] = json!(trace);
        }
        if !rounds.is_empty() {
            value["rounds"] = json!(rounds);
        }
        writeln!(out, "{value}")?;
    } else {
        writeln!(out, "{}", table(std::slice::from_ref(&report)))?;
        write!(out, "{}", table::notes(&report))?;
    }
    Ok(ExitCode::from(u8::from(report.succeeded == 0)))
}

/// Runs the plan while the main thread moves the bar and waits for Ctrl-C.
fn run_with_bar(plan: Plan) -> anyhow::Result<Report> {
    let progress = Arc::new(Progress::default());
    let (done, mut ended) = tokio::sync::oneshot::channel();
    let for_thread = progress.clone();
    let thread = std::thread::Builder::new().name("load-plan".into()).spawn(move || {
        let report = run_plan(&plan, &for_thread);
        let _ = done.send(());
        report
    })?;
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed} {msg}")?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                _ = &mut ended => break,
                _ = tick.tick() => {
                    bar.set_length(progress.planned());
                    bar.set_position(progress.ended());
                    bar.set_message(format!("{} in flight, {} failed", progress.in_flight(), progress.failed()));
                }
                _ = tokio::signal::ctrl_c() => progress.stop(),
            }
        }
    });
    bar.finish_and_clear();
    thread.join().map_err(|_| anyhow::anyhow!("the load thread failed"))?
}
