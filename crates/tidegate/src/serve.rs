//! `tidegate serve`: the gateway.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::control::Control;
use tidegate_config::{Config, Problem};

/// Run the gateway
///
/// Ends on SIGTERM or Ctrl-C: it stops accepting, lets open requests end, and exits 0 if all did within `--drain`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tidegate serve -c examples/three-engines.yaml\n  tidegate check -c gateway.yaml && tidegate serve -c gateway.yaml --drain 60"
)]
pub(crate) struct Args {
    /// The config file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Longest time in seconds that open requests get to end after a stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain: u64,
}

/// Runs until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let loaded = Config::load(&args.config).and_then(|(config, mut warnings)| {
        let mut found = crate::rules::problems(&config, &args.config);
        found.extend(tidegate_tls::problems(&config, &args.config));
        if found.iter().any(Problem::is_error) {
            return Err(found);
        }
        warnings.extend(found);
        Ok((config, warnings))
    });
    let (config, warnings) = match loaded {
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(&config, Duration::from_secs(args.drain)))
}

async fn serve(config: &Config, drain: Duration) -> anyhow::Result<ExitCode> {
    tidegate_telemetry::init_log(&config.log)?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let control = Control::start(config, Vec::new()).await?;
    let mut err = std::io::stderr();
    for (address, listener) in control.addresses().iter().zip(&config.listeners) {
        writeln!(err, "listening on {}://{address}", if listener.tls.is_some() { "https" } else { "http" })?;
    }
    if let Some(address) = control.admin() {
        writeln!(err, "admin, metrics and live page on http://{address}")?;
    }
    tokio::select! {
        _ = terminate.recv() => {}
        done = tokio::signal::ctrl_c() => done?,
    }
    writeln!(err, "stopping: open requests have {} s to end; a second signal cuts them off", drain.as_secs())?;
    let all_ended = tokio::select! {
        all_ended = control.stop(drain) => all_ended,
        _ = terminate.recv() => false,
        done = tokio::signal::ctrl_c() => { done?; false }
    };
    if !all_ended {
        writeln!(err, "open requests were cut off")?;
    }
    Ok(ExitCode::from(u8::from(!all_ended)))
}
