//! `tidegate template`: whole configs to begin with, one per kind of service.

use clap::{Parser, Subcommand};
use serde_json::json;
use std::io::Write as _;
use std::process::ExitCode;
use tidegate_config::{TEMPLATES, Template};

const EXAMPLES: &str = "\
Examples:
  tidegate template list
  tidegate template show interactive > gateway.yaml && tidegate check -c gateway.yaml

  In a config, a pool takes a template and overrides what it likes:
  pools: { chat: { template: interactive, endpoints: [{ url: http://10.0.0.5:8000 }], timeouts: { total: 20s } } }";

/// Show the templates a pool can be made from
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Name every template and what it is for
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the full config a template stands for
    Show {
        /// Its name
        name: String,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match &args.what {
        What::List { json: true } => {
            let all: Vec<_> =
                TEMPLATES.iter().map(|t| json!({ "name": t.name, "summary": t.summary(), "config": t.text })).collect();
            let version = env!("CARGO_PKG_VERSION");
            writeln!(out, "{:#}", json!({ "tool_version": version, "command": "template", "templates": all }))?;
        }
        What::List { json: false } => {
            let width = TEMPLATES.iter().map(|t| t.name.len()).max().unwrap_or(0);
            for t in TEMPLATES {
                writeln!(out, "{:width$}  {}", t.name, t.summary())?;
            }
        }
        What::Show { name } => match Template::find(name) {
            Some(template) => write!(out, "{}", template.text)?,
            None => {
                let names: Vec<&str> = TEMPLATES.iter().map(|t| t.name).collect();
                anyhow::bail!("there is no template {name}; there are {}", names.join(", "));
            }
        },
    }
    Ok(ExitCode::SUCCESS)
}
