//! `tidegate serve`: the gateway.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::control::Control;
use crate::reload::{self, Reason, Reloader};
use tidegate_config::Config;
use tokio::signal::unix::{SignalKind, signal};

/// Run the gateway
///
/// Ends on SIGTERM or Ctrl-C: `/readyz` says no, it stops accepting and lets open requests end (`shutdown` in the config). What is
/// left at the end of that time is ended with an error. A second signal ends it at once, with exit code 1. SIGHUP reads the config again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tidegate serve -c examples/three-engines.yaml\n  tidegate check -c gateway.yaml && tidegate serve -c gateway.yaml --drain 60"
)]
pub(crate) struct Args {
    /// The config file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Longest time in seconds that open requests get to end after a stop, instead of `shutdown.drain_timeout`
    #[arg(long, value_name = "SECONDS")]
    drain: Option<u64>,
}

/// Runs until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (config, warnings) = match reload::load(&args.config) {
        Ok(loaded) => loaded,
        Err(problems) => {
            let mut err = std::io::stderr().lock();
            for problem in &problems {
                writeln!(err, "{problem}")?;
            }
            return Ok(ExitCode::from(1));
        }
    };
    for warning in &warnings {
        writeln!(std::io::stderr(), "{warning}")?;
    }
    let reloader = Reloader::new(&args.config, &config, &warnings, "start");
    let drain = args.drain.map(Duration::from_secs);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(&config, reloader, drain))
}

async fn serve(config: &Config, mut reloader: Reloader, drain: Option<Duration>) -> anyhow::Result<ExitCode> {
    tidegate_telemetry::init_log(&config.log)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut control = Control::start(config, Vec::new(), Some(reloader.book())).await?;
    let mut err = std::io::stderr();
    for address in control.addresses() {
        writeln!(err, "listening on http://{address}")?;
    }
    if let Some(address) = control.admin() {
        writeln!(err, "admin, metrics and live page on http://{address}")?;
    }
    loop {
        let reason = tokio::select! {
            _ = terminate.recv() => break,
            done = tokio::signal::ctrl_c() => {
                done?;
                break;
            }
            _ = hang_up.recv() => Reason::Signal,
            reason = reloader.next() => reason,
        };
        reloader.reload(&mut control, reason).await;
    }
    let mut shutdown = reloader.in_force().shutdown;
    shutdown.drain_timeout = drain.unwrap_or(shutdown.drain_timeout);
    let seconds = (shutdown.delay + shutdown.drain_timeout).as_secs_f64();
    writeln!(err, "stopping: open requests have {seconds} s to end; a second signal cuts them off")?;
    let all_ended = tokio::select! {
        all_ended = control.stop(&shutdown) => all_ended,
        _ = terminate.recv() => return cut_short(),
        done = tokio::signal::ctrl_c() => {
            done?;
            return cut_short();
        }
    };
    if !all_ended {
        writeln!(err, "time was up: open requests were ended with an error")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A second signal wants no more patience, and gets none.
fn cut_short() -> anyhow::Result<ExitCode> {
    writeln!(std::io::stderr(), "open requests were cut off")?;
    Ok(ExitCode::FAILURE)
}
