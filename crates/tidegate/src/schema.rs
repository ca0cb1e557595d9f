//! `tidegate schema`: the JSON Schema of the config file, for editors.

use clap::Parser;
use std::io::Write as _;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  tidegate schema > tidegate.schema.json

  With yaml-language-server, put this on the first line of a config file:
  # yaml-language-server: $schema=./tidegate.schema.json";

/// Print the JSON Schema (draft 2020-12) of the config file
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> anyhow::Result<ExitCode> {
    writeln!(std::io::stdout().lock(), "{:#}", tidegate_config::schema())?;
    Ok(ExitCode::SUCCESS)
}
