//! `tidegate check`: says everything that is wrong with a config file, before it meets traffic.

use clap::Parser;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_config::{Config, Problem};

const EXAMPLES: &str = "\
Examples:
  tidegate check -c examples/three-engines.yaml
  tidegate check -c gateway.yaml --json

Exit codes: 0 the file is good (warnings allowed), 1 it has errors, 2 the command line is wrong.";

/// Say everything that is wrong with a config file
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The config file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (config, problems) = match Config::load(&args.config) {
        Ok((config, mut problems)) => {
            let mut found = crate::rules::problems(&config, &args.config);
            found.extend(tidegate_tls::problems(&config, &args.config));
            let config = (!found.iter().any(Problem::is_error)).then_some(config);
            problems.extend(found);
            (config, problems)
        }
        Err(problems) => (None, problems),
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", report(config.is_some(), &problems))?;
    } else {
        for problem in &problems {
            writeln!(out, "{problem}\n")?;
        }
        writeln!(out, "{}: {}", args.config.display(), verdict(config.as_ref(), &problems))?;
    }
    Ok(if config.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(is_ok: bool, problems: &[Problem]) -> Value {
    let problems: Vec<Value> = problems.iter().map(Problem::to_json).collect();
    json!({ "tool_version": env!("CARGO_PKG_VERSION"), "command": "check", "ok": is_ok, "problems": problems })
}

/// One line that sums up.
fn verdict(config: Option<&Config>, problems: &[Problem]) -> String {
    let errors = problems.iter().filter(|p| p.is_error()).count();
    let warnings = problems.len() - errors;
    let mut parts = match config {
        Some(c) => {
            let endpoints = c.pools.iter().map(|p| p.endpoints.len()).sum();
            let counts = [
                (c.listeners.len(), "listener"),
                (c.pools.len(), "pool"),
                (endpoints, "endpoint"),
                (c.routes.len(), "route"),
            ];
            vec![format!("ok, {}", counts.map(|(n, what)| counted(n, what)).join(", "))]
        }
        None => vec![counted(errors, "error")],
    };
    if warnings > 0 {
        parts.push(counted(warnings, "warning"));
    }
    parts.join(", ")
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> (Option<Config>, Vec<Problem>) {
        match Config::parse(text, "gw.yaml", &|_| None) {
            Ok((config, warnings)) => (Some(config), warnings),
            Err(problems) => (None, problems),
        }
    }

    #[test]
    fn the_verdict_counts() {
        let (config, found) = problems(
            "listeners: [{ address: 127.0.0.1:0 }]\npools: { p: { policy: hybrid, endpoints: [{ url: http://a:1 }] } }",
        );
        assert_eq!(verdict(config.as_ref(), &found), "ok, 1 listener, 1 pool, 1 endpoint, 1 route, 1 warning");
        let (config, found) = problems("listners: []");
        assert_eq!(verdict(config.as_ref(), &found), "3 errors");
    }

    #[test]
    fn the_report_has_the_keys_that_programs_read() {
        let report = report(false, &problems("pools: 3").1);
        assert_eq!((&report["ok"], &report["command"]), (&json!(false), &json!("check")));
        for key in ["line", "column", "path", "found", "allowed", "hint", "severity", "code"] {
            assert!(!report["problems"][0][key].is_null(), "{key}");
        }
    }
}
