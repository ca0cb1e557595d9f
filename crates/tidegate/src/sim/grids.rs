//! Studies that answer in grids: run, drawn, or written as JSON.

use std::io::{IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tidegate::engine::clock::Clock;
use tidegate_sim::batch::Seeds;
use tidegate_sim::study::{Answer, Cell, Grid};

use super::{Args, table};

/// Runs a study: it is told how many threads it may use, and tells after each run how many are done of how many, and its requests.
type Study<'s> = dyn Fn(NonZeroUsize, &mut dyn FnMut(usize, usize, u64)) -> anyhow::Result<Answer> + 's;

pub(super) fn run(args: &Args, name: &str, seeds: Seeds, study: &Study<'_>) -> anyhow::Result<ExitCode> {
    let clock = Clock::start();
    let threads = super::threads(args);
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(1) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{bar:32} {pos}/{len} runs, {elapsed}, {eta} left")?);
    let mut requests = 0;
    let Answer { grids, notes } = study(threads, &mut |done, all, n| {
        requests += n;
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    let mut out = std::io::stdout();
    if args.json {
        let tables: Vec<Value> = grids.iter().map(Grid::json).collect();
        let first = json!({
            "tool_version": env!("CARGO_PKG_VERSION"), "command": "sim", "scenario": name,
            "seed_start": seeds.first, "seeds": seeds.count, "notes": notes, "tables": tables,
        });
        writeln!(out, "{first}")?;
        return Ok(ExitCode::SUCCESS);
    }
    out.write_all(table::notes(&notes).as_bytes())?;
    for grid in &grids {
        writeln!(out, "{name}: {}, {} seeds\n{}", grid.title, seeds.count, drawn(grid))?;
        for note in &grid.notes {
            writeln!(out, "{note}")?;
        }
        writeln!(out)?;
    }
    let took_s = clock.now().as_secs_f64();
    let rate = requests as f64 / took_s.max(1e-9);
    writeln!(out, "{requests} requests simulated in {took_s:.2} s on {threads} threads, {rate:.0} per second")?;
    Ok(ExitCode::SUCCESS)
}

fn drawn(grid: &Grid) -> String {
    let mut table = table::start(&grid.heads());
    for row in &grid.rows {
        table.add_row(row.iter().map(Cell::show).collect::<Vec<_>>());
    }
    table::finish(table)
}
