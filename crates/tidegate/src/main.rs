//! The tidegate binary: one file per subcommand, each with `Args` and `run`.

mod activation;
mod check;
mod control;
mod demo;
mod key;
mod notify;
mod policies;
mod reload;
mod replay;
mod rules;
mod schema;
mod serve;
mod sim;
mod takeover;
mod template;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate::{engine, load};

/// Balances, limits and watches traffic to AI inference engines
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Demo(demo::Args),
    Sim(sim::Args),
    Check(check::Args),
    Policies(policies::Args),
    Key(key::Args),
    Template(template::Args),
    Schema(schema::Args),
    Replay(replay::Args),
    Engine(engine::Args),
    Load(load::Args),
}

/// A reader that has seen enough and closed the pipe, such as `head`, is no failure of a command that only prints.
fn quiet(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    result.or_else(|error| match error.downcast_ref::<std::io::Error>() {
        Some(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        _ => Err(error),
    })
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Policies(args) => quiet(policies::run(&args)),
        Command::Key(args) => quiet(key::run(&args)),
        Command::Template(args) => quiet(template::run(&args)),
        Command::Schema(args) => quiet(schema::run(&args)),
        Command::Replay(args) => replay::run(&args),
        Command::Engine(args) => engine::run(&args),
        Command::Load(args) => load::run(&args),
    };
    result.unwrap_or_else(|error| {
        // Nobody is left to tell if standard error is closed.
        let _ = writeln!(std::io::stderr(), "tidegate: {error:#}");
        ExitCode::from(1)
    })
}
