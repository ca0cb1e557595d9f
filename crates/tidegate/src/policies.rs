//! `tidegate policies`: every policy, or breaker, with every parameter's range and default, from the descriptors that parse the config.

use clap::Parser;
use serde_json::{Value as Json, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use tidegate_admin::describe;
use tidegate_core::balance::registry;
use tidegate_core::breaker;
use tidegate_core::descriptor::{Descriptor, Param, ParamKind, Value};

const EXAMPLES: &str = "\
Examples:
  tidegate policies
  tidegate policies least_response_time
  tidegate policies --breakers
  tidegate policies --json";

/// List the balancing policies, or the breakers, and what each can be told
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this policy
    #[arg(value_parser = known, conflicts_with = "breakers")]
    name: Option<&'static Descriptor>,
    /// The breakers instead
    #[arg(long)]
    breakers: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The policy of that name; an unknown one is a usage error that lists the names.
fn known(name: &str) -> Result<&'static Descriptor, String> {
    registry::find(name).ok_or_else(|| {
        let names: Vec<&str> = registry::all().iter().map(|d| d.name).collect();
        format!("no such policy; there are {}", names.join(", "))
    })
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shown: &[&Descriptor] = match &args.name {
        Some(one) => std::slice::from_ref(one),
        None if args.breakers => breaker::registry::all(),
        None => registry::all(),
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let described: Vec<Json> = shown.iter().map(|d| describe(d)).collect();
        let list = if args.breakers { "breakers" } else { "policies" };
        let version = env!("CARGO_PKG_VERSION");
        writeln!(out, "{:#}", json!({ "tool_version": version, "command": "policies", list: described }))?;
    } else {
        write!(out, "{}", table(shown))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A block per policy, its parameters in columns.
fn table(policies: &[&Descriptor]) -> String {
    let mut text = String::new();
    for (i, d) in policies.iter().enumerate() {
        let gap = if i == 0 { "" } else { "\n" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{gap}{}\n  {}\n  e.g. {}", d.name, d.summary, d.example);
        let rows: Vec<[String; 4]> = d.params.iter().map(row).collect();
        let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
        let (a, b, c) = (width(0), width(1), width(2));
        for [name, default, allowed, summary] in &rows {
            let _ = writeln!(text, "    {name:a$}  {default:b$}  {allowed:c$}  {summary}");
        }
    }
    text
}

fn row(p: &Param) -> [String; 4] {
    let unit = if matches!(p.unit, "" | "s") { String::new() } else { format!(" ({})", p.unit) };
    let default = match (p.kind, p.default) {
        (ParamKind::Key, Value::Off) => "required".to_owned(),
        (ParamKind::Path, Value::Off) => "= that of the checks".to_owned(),
        (_, value) => format!("= {value}"),
    };
    [p.name.to_owned(), default, format!("{}{unit}", p.kind), p.summary.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_and_parameter_is_listed() {
        let text = table(registry::all());
        let text = text + &table(breaker::registry::all());
        for d in registry::all().iter().chain(breaker::registry::all()) {
            assert!(text.contains(d.name), "{}", d.name);
            let shown = describe(d);
            for (i, p) in d.params.iter().enumerate() {
                assert!(text.contains(p.name), "{}.{}", d.name, p.name);
                assert_eq!(shown["params"][i]["name"], p.name);
            }
        }
    }
}
