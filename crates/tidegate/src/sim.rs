//! `tidegate sim`: which policy, on this traffic? The decisions of `serve` in virtual time.

use std::io::{IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tidegate::engine::clock::Clock;
use tidegate_config::Problem;
use tidegate_sim::batch::{self, Seeds};
use tidegate_sim::report::{Report, report, report_json};
use tidegate_sim::scenario::{Cell, Row, Scenario, Unread};

mod grids;
mod html;
mod markdown;
mod pages;
mod slo;
mod study;
mod table;
mod user_trace;

/// Where recorded traces lie beside a checkout.
const TRACES: &str = "../shared/traces";

const EXAMPLES: &str = "\
Examples:
  tidegate sim scenarios/article.yaml --seeds 64
  tidegate sim scenarios/azure-conv.yaml --policy adaptive --policy least_connections
  tidegate sim --trace requests.csv --fleet fleet.yaml --load 75%
  tidegate sim --trace requests.csv --fleet fleet.yaml --slo ttft=2s,tpot=100ms,target=99%
  tidegate sim scenarios/two-servers.yaml --json
  tidegate sim scenarios/tenants.yaml --variant returning
  tidegate sim scenarios/article.yaml --report article-report

A trace is a CSV with t_ms or t_s, input_tokens and output_tokens, or the journal of a pool or the request log of `tidegate serve` (JSON
lines); which it is, is told by its content. A fleet file is a scenario that says `fleet`; docs/simulation-keys.md lists every key. The same seed gives the same bytes of --json, on any number of
threads. Exit codes: 0 done, 1 failed, 2 the command line or a file is wrong.";

/// Compare policies in virtual time, with the very code that serves
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The scenario, a YAML file
    #[arg(required_unless_present = "trace", conflicts_with = "trace")]
    scenario: Option<PathBuf>,
    /// Your own trace: CSV, or Tidegate's journal or request log
    #[arg(long, value_name = "FILE", requires = "fleet")]
    trace: Option<PathBuf>,
    /// The fleet for --trace
    #[arg(long, value_name = "FILE", requires = "trace")]
    fleet: Option<PathBuf>,
    /// Bring --trace to this share of the fleet's saturation, such as 75%
    #[arg(long, value_name = "SHARE", requires = "trace", conflicts_with = "speed")]
    load: Option<String>,
    /// Play --trace so many times as fast
    #[arg(long, value_name = "FACTOR", requires = "trace")]
    speed: Option<f64>,
    /// Spread the requests of --trace at random over this time, such as 1s, where its times were rounded down to it
    #[arg(long, value_name = "TIME", requires = "trace")]
    spread: Option<String>,
    /// Which policy meets this objective best on --trace, and how many engines of the fleet's kinds it needs: ttft, tpot (time per
    /// output token after the first), and target, the share that is to be within both [default: 99%]
    #[arg(long, value_name = "ttft=2s,tpot=100ms,target=99%", requires = "trace")]
    slo: Option<String>,
    /// Seeds to run; the scenario's own number otherwise
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seeds: Option<u32>,
    /// The first seed
    #[arg(long, value_name = "K", default_value_t = 1)]
    seed_start: u64,
    /// Only rows with this label or policy name; may be given several times
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,
    /// Only this variant; may be given several times
    #[arg(long, value_name = "NAME")]
    variant: Vec<String>,
    /// Threads; one per core otherwise
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write report.html, a self-contained page with tables and plots, and report.md into this folder; a name that ends in .html is
    /// the page alone. With --slo it is about the fleet as given, and says the answer
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// What is wrong with the command line or a file.
struct Refused(String);

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(why) = args.report.as_deref().and_then(no_report) {
        return refuse(&why);
    }
    let (name, scenario) = match scenario(args) {
        Ok(all) => all,
        Err(why) => return refuse(&why),
    };
    if let Some(study) = &scenario.study {
        return study::run(args, &name, study, seeds(args, &scenario));
    }
    let (cells, rows, seeds) = match prepare(args, &scenario) {
        Ok(all) => all,
        Err(why) => return refuse(&why),
    };
    if let Some(slo) = &args.slo {
        return slo::run(args, &name, &scenario, slo, &(cells, rows, seeds));
    }
    let clock = Clock::start();
    let threads = threads(args);
    let (runs, requests) = with_bar(&cells, &rows, seeds, threads)?;
    let reports: Vec<Report> = cells.iter().zip(&runs).map(|(cell, runs)| report(cell, &rows, runs)).collect();
    if let Some(path) = &args.report {
        pages::write(path, &name, &cells, &rows, seeds, &runs, &reports)?;
    }
    let mut out = std::io::stdout();
    if args.json {
        let mut value = json!({ "tool_version": env!("CARGO_PKG_VERSION"), "command": "sim" });
        if let (Some(value), serde_json::Value::Object(more)) =
            (value.as_object_mut(), report_json(&name, seeds.first, &reports))
        {
            value.extend(more);
        }
        writeln!(out, "{value}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut notes: Vec<String> = reports.iter().flat_map(|r| r.notes.iter().cloned()).collect();
    notes.dedup();
    out.write_all(table::notes(&notes).as_bytes())?;
    for report in &reports {
        writeln!(out, "{}", table::report(&name, report))?;
    }
    let took_s = clock.now().as_secs_f64();
    let rate = requests as f64 / took_s.max(1e-9);
    writeln!(out, "{requests} requests simulated in {took_s:.2} s on {threads} threads, {rate:.0} per second")?;
    Ok(ExitCode::SUCCESS)
}

fn refuse(Refused(why): &Refused) -> anyhow::Result<ExitCode> {
    writeln!(std::io::stderr(), "{}", why.trim_end())?;
    Ok(ExitCode::from(2))
}

/// Endings of files that no report is.
const NO_REPORT: [&str; 9] = ["csv", "json", "jsonl", "md", "txt", "htm", "pdf", "yaml", "yml"];

/// Why there can be no report at `path`.
fn no_report(path: &Path) -> Option<Refused> {
    let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    let is_page = ending == "html";
    let why = if path.is_dir() {
        if !is_page {
            return None;
        }
        "a folder"
    } else if NO_REPORT.contains(&ending.as_str()) {
        "neither"
    } else if path.is_file() && !is_page {
        "a file that is there already"
    } else {
        return None;
    };
    let path = path.display();
    Some(Refused(format!(
        "tidegate sim: --report {path}: a report is a folder with report.html and report.md, or the page alone where the name ends in .html; this is \
         {why}. For numbers that programs read, use --json; for example: --report article-report"
    )))
}

/// As many as asked for; one per core otherwise.
fn threads(args: &Args) -> NonZeroUsize {
    args.threads.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

fn seeds(args: &Args, scenario: &Scenario) -> Seeds {
    Seeds { first: args.seed_start, count: args.seeds.unwrap_or(scenario.seeds) }
}

type Prepared = (Vec<Cell>, Vec<Row>, Seeds);

/// Picks what was asked for.
fn prepare(args: &Args, scenario: &Scenario) -> Result<Prepared, Refused> {
    let mut rows = scenario.rows();
    for wanted in &args.policy {
        if !rows.iter().any(|r| is_named(r, wanted)) {
            let labels: Vec<&str> = rows.iter().map(|r| r.label.as_str()).collect();
            return Err(Refused(format!("tidegate sim: no row {wanted}; there are {}", labels.join(", "))));
        }
    }
    rows.retain(|r| args.policy.is_empty() || args.policy.iter().any(|w| is_named(r, w)));
    let mut cells = scenario.cells(&read_trace).map_err(|e| Refused(format!("tidegate sim: {e}")))?;
    let has = |c: &Cell, wanted: &String| c.variant.as_ref() == Some(wanted);
    if let Some(wanted) = args.variant.iter().find(|w| !cells.iter().any(|c| has(c, w))) {
        let names: Vec<&str> = cells.iter().filter_map(|c| c.variant.as_deref()).collect();
        return Err(Refused(format!("tidegate sim: no variant {wanted}; there are {}", names.join(", "))));
    }
    cells.retain(|c| args.variant.is_empty() || args.variant.iter().any(|w| has(c, w)));
    Ok((cells, rows, seeds(args, scenario)))
}

fn is_named(row: &Row, wanted: &str) -> bool {
    row.label == wanted || row.pool.policy.descriptor().name == wanted
}

fn scenario(args: &Args) -> Result<(String, Scenario), Refused> {
    if let (Some(trace), Some(fleet)) = (&args.trace, &args.fleet) {
        let own = read(fleet)?;
        if let Some(line) = user_trace::own_workload(&own) {
            let (fleet, trace) = (fleet.display(), trace.display());
            return Err(Refused(format!(
                "{fleet}:{line}: `workload` says what is asked of the fleet, and so does --trace {trace}\n  leave one of the two out: remove \
                 `workload` from {fleet}, or run that file by itself: tidegate sim {fleet}"
            )));
        }
        let text = user_trace::scenario(&own, trace, args.load.as_deref(), args.speed, args.spread.as_deref());
        return Ok((stem(trace), parse(&text, fleet)?));
    }
    let path = args.scenario.clone().unwrap_or_default();
    Ok((stem(&path), parse(&read(&path)?, &path)?))
}

fn parse(text: &str, path: &Path) -> Result<Scenario, Refused> {
    let (scenario, warnings) = Scenario::parse(text, &path.display().to_string(), &|name| std::env::var(name).ok())
        .map_err(|p| refused(&p))?;
    for warning in &warnings {
        let _ = writeln!(std::io::stderr(), "{warning}\n");
    }
    Ok(scenario)
}

fn refused(problems: &[Problem]) -> Refused {
    Refused(problems.iter().map(|p| format!("{p}\n\n")).collect())
}

fn read(path: &Path) -> Result<String, Refused> {
    let text = std::fs::read(path).map_err(|e| e.to_string()).and_then(utf8);
    text.map_err(|e| Refused(format!("tidegate sim: {}: {e}", path.display())))
}

/// The text of a file, or the line that is none.
fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|e| {
        let good = e.as_bytes().iter().take(e.utf8_error().valid_up_to());
        format!("line {}: not UTF-8", good.filter(|b| **b == b'\n').count() + 1)
    })
}

/// The name of a report: the file's, without its ending.
fn stem(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The text of a trace: as named, else among the recorded ones.
fn read_trace(name: &str) -> Result<String, Unread> {
    for path in [PathBuf::from(name), Path::new(TRACES).join(name)] {
        match std::fs::read(path) {
            Ok(bytes) => return utf8(bytes).map_err(Unread::Unusable),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Unread::Unusable(e.to_string())),
        }
    }
    Err(Unread::Absent(format!("no such file (also looked in {TRACES})")))
}

/// Runs everything, with a bar where somebody watches.
fn with_bar(
    cells: &[Cell],
    rows: &[Row],
    seeds: Seeds,
    threads: NonZeroUsize,
) -> anyhow::Result<(Vec<Vec<batch::Runs>>, u64)> {
    let jobs = (cells.len() * rows.len()) as u64 * u64::from(seeds.count);
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(jobs) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{bar:32} {pos}/{len} runs, {elapsed}, {eta} left")?);
    let mut requests = 0;
    let runs = batch::run(cells, rows, seeds, threads, |done, n| {
        requests += n;
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    Ok((runs, requests))
}
