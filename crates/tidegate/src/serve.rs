//! `tidegate serve`: the gateway.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::control::Control;
use crate::reload::{self, Reason, Reloader};
use crate::takeover::{self, Door, HandedOver};
use crate::{activation, notify};
use anyhow::bail;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tidegate_config::{Config, Shutdown};
use tidegate_proxy::Inherited;
use tokio::signal::unix::{SignalKind, signal};

/// Run the gateway
///
/// Ends on SIGTERM or Ctrl-C: `/readyz` says no, it stops accepting and lets open requests end (`shutdown` in the config). What is
/// left at the end of that time is ended with an error. A second signal ends it at once, with exit code 1. SIGHUP reads the config again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tidegate serve -c examples/three-engines.yaml\n  tidegate check -c gateway.yaml && tidegate serve -c gateway.yaml --drain 60\n  tidegate serve -c gateway.yaml --takeover     # the next process, while the first still runs"
)]
pub(crate) struct Args {
    /// The config file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Longest time in seconds that open requests get to end after a stop, instead of `shutdown.drain_timeout`
    #[arg(long, value_name = "SECONDS")]
    drain: Option<u64>,
    /// Take over the sockets and the state of the gateway that serves at `takeover.socket`; start from nothing if none does
    #[arg(long)]
    takeover: bool,
}

/// What a process starts from: sockets and what was known, the socket of the admin API, and the process that gave them.
struct From {
    inherited: Inherited,
    admin: Option<TcpListener>,
    old: Option<UnixStream>,
}

/// Runs until a signal, or until another process has taken over.
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
        say(&warning.to_string());
    }
    let from = if args.takeover { take_over(&config)? } else { activated(&config)? };
    let by = if from.old.is_some() { "takeover" } else { "start" };
    let reloader = Reloader::new(&args.config, &config, &warnings, by);
    let drain = args.drain.map(Duration::from_secs);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(&config, reloader, from, drain))
}

fn activated(config: &Config) -> anyhow::Result<From> {
    let (inherited, admin) = activation::sockets(config)?;
    Ok(From { inherited, admin, old: None })
}

fn take_over(config: &Config) -> anyhow::Result<From> {
    let Some(settings) = &config.takeover else {
        bail!("--takeover needs `takeover: {{ socket: PATH }}` in the config, in that of the running gateway, too");
    };
    let Some(taken) = takeover::take(&settings.socket)? else {
        say(&format!("nobody serves at {}: starting from nothing", settings.socket.display()));
        return activated(config);
    };
    say(&format!("taking over from process {}", taken.pid));
    let (inherited, admin, old) = taken.into_parts();
    Ok(From { inherited, admin, old: Some(old) })
}

async fn serve(
    config: &Config,
    mut reloader: Reloader,
    from: From,
    drain: Option<Duration>,
) -> anyhow::Result<ExitCode> {
    tidegate_telemetry::init_log(&config.log)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut successor = signal(SignalKind::user_defined2())?;
    let start_from = (from.inherited, from.admin);
    let mut control = Control::start_from(config, Vec::new(), Some(reloader.book()), start_from)?;
    let door = match from.old {
        // Until the word the door is the old process's: if this one fails before, that one goes on and can be asked again.
        Some(old) => {
            takeover::ready(old, Arc::clone(control.governor()))?;
            open_door(config).unwrap_or_else(|error| {
                tracing::error!("no process can take over from this one: {error:#}");
                None
            })
        }
        None => open_door(config)?,
    };
    for (address, listener) in control.addresses().iter().zip(&config.listeners) {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        say(&format!("listening on {scheme}://{address}"));
    }
    if let Some(address) = control.admin() {
        say(&format!("admin, metrics and live page on http://{address}"));
    }
    notify::tell(&format!("READY=1\nMAINPID={}", std::process::id()));
    let handed_over = loop {
        tokio::select! {
            _ = terminate.recv() => break None,
            done = tokio::signal::ctrl_c() => {
                done?;
                break None;
            }
            _ = hang_up.recv() => reloader.reload(&mut control, Reason::Signal).await,
            reason = reloader.next() => reloader.reload(&mut control, reason).await,
            _ = successor.recv() => start_successor(door.is_some()),
            visitor = visit(door.as_ref()) => match Door::hand_over(visitor, &control).await {
                Ok(handed_over) => break Some(handed_over),
                Err(error) => tracing::error!("nothing was handed over, this process goes on: {error:#}"),
            },
        }
    };
    drop(door);
    let mut shutdown = reloader.in_force().shutdown;
    shutdown.drain_timeout = drain.unwrap_or(shutdown.drain_timeout);
    // A process that was replaced has not been told to end: a service manager that stops all processes tells it once, too.
    let mut patience = u8::from(handed_over.is_some());
    let mut ending = std::pin::pin!(end(control, shutdown, handed_over));
    loop {
        tokio::select! {
            code = &mut ending => return code,
            _ = terminate.recv() => {}
            done = tokio::signal::ctrl_c() => done?,
        }
        if patience == 0 {
            return cut_short();
        }
        patience -= 1;
    }
}

/// Ends in order: open requests first.
async fn end(mut control: Control, mut shutdown: Shutdown, heir: Option<HandedOver>) -> anyhow::Result<ExitCode> {
    if let Some(heir) = &heir {
        // Whoever connects is served by the heir already.
        shutdown.delay = Duration::ZERO;
        control.leave_admin().await;
        say(&format!("process {} has taken over", heir.pid));
    } else {
        notify::tell("STOPPING=1");
    }
    let seconds = (shutdown.delay + shutdown.drain_timeout).as_secs_f64();
    say(&format!("stopping: open requests have {seconds} s to end; a second signal cuts them off"));
    let all_ended = control.stop(&shutdown).await;
    if let Some(heir) = heir {
        tokio::task::spawn_blocking(move || heir.finish()).await?;
    }
    if !all_ended {
        say("time was up: open requests were ended with an error");
    }
    Ok(ExitCode::SUCCESS)
}

fn open_door(config: &Config) -> anyhow::Result<Option<Door>> {
    config.takeover.as_ref().map(|t| Door::open(&t.socket)).transpose()
}

async fn visit(door: Option<&Door>) -> UnixStream {
    match door {
        Some(door) => door.visit().await,
        None => std::future::pending().await,
    }
}

/// SIGUSR2: starts the program that is now where this one was, with the same arguments, to take over.
fn start_successor(has_door: bool) {
    if !has_door {
        return tracing::error!(
            "SIGUSR2 starts a process that takes over, which needs `takeover.socket` in the config"
        );
    }
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if !arguments.iter().any(|a| a == "--takeover") {
        arguments.push("--takeover".into());
    }
    let started = program().and_then(|program| {
        let mut command = std::process::Command::new(program);
        command.args(arguments).stdin(std::process::Stdio::null());
        for name in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"] {
            command.env_remove(name);
        }
        command.spawn()
    });
    match started {
        Ok(child) => tracing::info!(pid = child.id(), "a process was started to take over"),
        Err(error) => tracing::error!(%error, "no process could be started to take over"),
    }
}

/// Where this program was: a file that was replaced meanwhile is called ` (deleted)` by the kernel, and the new one is at its place.
fn program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let name = path.as_os_str().to_string_lossy();
    Ok(name.strip_suffix(" (deleted)").map(PathBuf::from).unwrap_or(path))
}

/// A second signal wants no more patience, and gets none.
fn cut_short() -> anyhow::Result<ExitCode> {
    say("open requests were cut off");
    Ok(ExitCode::FAILURE)
}

/// A line for whoever started the process, in one piece, as the process that takes over may write to the same place. That nobody reads it is
/// no reason to end.
fn say(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}
