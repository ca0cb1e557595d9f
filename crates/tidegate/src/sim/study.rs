//! Results of a study, for people and for programs.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use tidegate::engine::clock::Clock;
use tidegate_sim::batch::Seeds;
use tidegate_sim::study::{Cell, Sheet, Study};

use super::{Args, table};

/// Runs it and prints what came of it.
pub(super) fn run(args: &Args, name: &str, study: &Study, seeds: Seeds) -> anyhow::Result<ExitCode> {
    let clock = Clock::start();
    let sheets = study.run(seeds, &args.variant);
    let mut out = std::io::stdout();
    if args.json {
        let all: Vec<Value> = sheets.iter().map(Sheet::json).collect();
        let value = json!({
            "tool_version": env!("CARGO_PKG_VERSION"), "command": "sim", "scenario": name,
            "seed_start": seeds.first, "seeds": seeds.count, "studies": all,
        });
        writeln!(out, "{value}")?;
        return Ok(ExitCode::SUCCESS);
    }
    for sheet in &sheets {
        let head: Vec<&str> = sheet.columns.iter().map(|(head, _)| *head).collect();
        let rows = sheet.rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
        writeln!(out, "{name}: study {}, {} seeds\n{}", sheet.title, seeds.count, table::plain(&head, rows))?;
    }
    let requests: u64 = sheets.iter().map(|s| s.requests).sum();
    writeln!(out, "{requests} requests simulated in {:.2} s", clock.now().as_secs_f64())?;
    Ok(ExitCode::SUCCESS)
}
