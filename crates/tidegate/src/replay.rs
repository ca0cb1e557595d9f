//! `tidegate replay`: takes every decision of a journal again.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use tidegate_telemetry::{Change, What, replay};

/// Take every decision of a journal again and compare
///
/// A gateway with `journal: { folder: ... }` in its config writes one file per pool. The replay feeds the recorded inputs to the same code;
/// every decision must come out the same. Exit code 0 if all in it did, 1 if one did not or it is no journal. A last line that was
/// cut off in writing is said and left out.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tidegate replay /var/lib/tidegate/journal/chat.jsonl\n  tidegate replay chat.jsonl --changes\n  tidegate replay chat.jsonl --json"
)]
pub(crate) struct Args {
    /// The journal of one pool
    #[arg(value_name = "JOURNAL")]
    journal: PathBuf,
    /// Say when breakers changed, and when endpoints had their full share again
    #[arg(long)]
    changes: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let name = args.journal.display();
    let file = File::open(&args.journal).map_err(|e| anyhow::anyhow!("{name}: {e}"))?;
    let result = replay(BufReader::new(file)).map_err(|e| anyhow::anyhow!("{name}: {e}"))?;
    let mut out = std::io::stdout();
    if args.json {
        let mismatch =
            result.mismatch.as_ref().map(|m| json!({"line": m.line, "recorded": m.recorded, "replayed": m.replayed}));
        let value = json!({
            "tool_version": env!("CARGO_PKG_VERSION"), "command": "replay", "pool": result.settings.pool,
            "recorded_by": result.settings.tidegate, "inputs": result.inputs, "decisions": result.decisions,
            "covers_s": result.covers_s, "cut": result.cut, "identical": mismatch.is_none(), "mismatch": mismatch,
            "changes": result.changes.iter().map(show).collect::<Vec<_>>(),
        });
        writeln!(out, "{value}")?;
    } else {
        writeln!(
            out,
            "pool {}: {} inputs over {:.1} s, {} decisions taken again",
            result.settings.pool, result.inputs, result.covers_s, result.decisions
        )?;
        for change in result.changes.iter().filter(|_| args.changes) {
            writeln!(out, "{}", line(change))?;
        }
        if result.cut {
            writeln!(out, "the last line is cut off: the journal ends there")?;
        }
        match &result.mismatch {
            None if result.decisions == 0 => writeln!(out, "no decision in it")?,
            None => writeln!(out, "all identical")?,
            Some(m) => writeln!(
                out,
                "line {} differs\n  recorded: {}\n  replayed: {}\nrecorded by version {}, replayed by {}",
                m.line,
                m.recorded,
                m.replayed,
                result.settings.tidegate,
                env!("CARGO_PKG_VERSION")
            )?,
        }
    }
    Ok(ExitCode::from(u8::from(result.mismatch.is_some())))
}

fn line(change: &Change) -> String {
    let Change { at_s, endpoint, what } = change;
    match what {
        What::Level { from, to, why } => {
            format!("{at_s:10.3} s  {endpoint}  {} -> {}  ({why})", from.as_str(), to.as_str())
        }
        What::FullShare => format!("{at_s:10.3} s  {endpoint}  full share"),
    }
}

fn show(change: &Change) -> serde_json::Value {
    let Change { at_s, endpoint, what } = change;
    match what {
        What::Level { from, to, why } => {
            json!({ "at_s": at_s, "endpoint": endpoint, "from": from.as_str(), "to": to.as_str(), "why": why })
        }
        What::FullShare => json!({ "at_s": at_s, "endpoint": endpoint, "full_share": true }),
    }
}
