//! A report for people.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use tidegate_sim::report::{Line, Mean, Report, TenantLine};

/// Endpoints up to which each one's share is shown.
const MOST_SHARES: usize = 4;

/// What stands above all tables: a line for each, and one that is empty.
pub(super) fn notes(notes: &[String]) -> String {
    let mut out: String = notes.iter().map(|note| format!("{note}\n")).collect();
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// The tables of one variant.
pub(super) fn report(scenario: &str, r: &Report) -> String {
    let mut out = scenario.to_owned();
    // Writing to a string cannot fail.
    if let Some(variant) = &r.variant {
        let _ = write!(out, ", {variant}");
    }
    let _ = write!(out, ": {} seeds", r.seeds);
    if let Some(trace) = &r.trace {
        let _ = write!(out, ", trace {trace}");
    }
    if let Some(rps) = r.saturation_rps {
        let _ = write!(out, ", saturation {rps:.2} requests/s");
    }
    let _ = write!(out, "\n{}\n", policies(r));
    if r.endpoints.len() > MOST_SHARES {
        let _ = writeln!(
            out,
            "shares of {} endpoints are not shown, at most {MOST_SHARES} are: see --json",
            r.endpoints.len()
        );
    }
    for cells in [fleet(r), tenants(r), pairs(r), rounds(r)].into_iter().flatten() {
        let _ = writeln!(out, "{}", drawn(cells));
    }
    out
}

pub(super) fn start(header: &[impl AsRef<str>]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header.iter().map(AsRef::as_ref));
    table
}

/// A table of texts.
pub(super) fn plain(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = start(header);
    table.add_rows(rows);
    finish(table)
}

/// Numbers to the right.
pub(super) fn finish(mut table: Table) -> String {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn policies(r: &Report) -> String {
    let mut header = vec!["", "requests", "success %", "total s\nmean", "\np50", "\np99"];
    if r.stream {
        header.extend(["TTFT s\nmean", "\np99", "good %"]);
    }
    header.push("imbal.");
    if r.looks_up() {
        header.push("found %");
    }
    if r.keeps_prompts() {
        header.push("cached %");
    }
    header.push("retries");
    let shares = r.endpoints.len() <= MOST_SHARES;
    if shares {
        header.push("share %");
    }
    let mut table = start(&header);
    for l in &r.lines {
        let mut row = measured(l, r);
        row.push(l.retries.to_string());
        if shares {
            row.push(share(l));
        }
        table.add_row(row);
    }
    finish(table)
}

/// What every table of policies says of one of them, from its name to its imbalance; first tokens where answers stream, and what was
/// found in caches of answers and of prompts where there are any.
pub(super) fn measured(l: &Line, r: &Report) -> Vec<String> {
    let mut row = vec![
        l.name.clone(),
        l.requests.to_string(),
        with_error(l.success, 100.0, 2),
        with_error(l.latency_s, 1.0, 4),
        number(l.p50_s, 3),
        number(l.p99_s, 3),
    ];
    if r.stream {
        row.extend([number(l.ttft_s, 4), number(l.p99_ttft_s, 3), number(l.goodput.map(|g| g * 100.0), 1)]);
    }
    row.push(format!("{:.2}", l.imbalance));
    if r.looks_up() {
        row.push(number(l.query_hits.map(|hits| hits * 100.0), 1));
    }
    if r.keeps_prompts() {
        row.push(number(l.prompt_hits.map(|hits| hits * 100.0), 1));
    }
    row
}

fn share(l: &Line) -> String {
    l.shares.iter().map(|s| format!("{:.0}", s * 100.0)).collect::<Vec<_>>().join(" ")
}

/// Head and rows of a table.
pub(super) type Cells = (Vec<String>, Vec<Vec<String>>);

/// The differences of the first of all pairs, which is `adaptive` where it takes part; `None` where there is nothing to pair.
pub(super) fn pairs(r: &Report) -> Option<Cells> {
    let first = r.paired.first().filter(|_| r.seeds > 1)?.a.clone();
    let of_first = r.paired.iter().filter(|p| p.a == first);
    let rows = of_first.map(|p| vec![p.b.clone(), with_error(p.latency_s, 1.0, 4), with_error(p.success, 100.0, 2)]);
    let rows = rows.collect();
    Some((vec![format!("{first} minus"), "total s".to_owned(), "success, points".to_owned()], rows))
}

/// What a fleet cost that changes while it serves; `None` where nobody joins or leaves.
pub(super) fn fleet(r: &Report) -> Option<Cells> {
    let head = ["fleet", "engine s", "engines", "most", "started", "failed", "of these\nrefused", "while it\nchanged"];
    let row = |l: &Line| {
        let f = l.fleet?;
        let (mean, starts) = (format!("{:.2}", f.mean), format!("{:.1}", f.starts));
        let counts = [f.failed, f.shed, f.in_change].map(|n| n.to_string());
        let start = [l.name.clone(), with_error(f.endpoint_s, 1.0, 0), mean, f.most.to_string(), starts];
        Some(start.into_iter().chain(counts).collect())
    };
    let rows: Vec<Vec<String>> = r.lines.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| (head.map(str::to_owned).to_vec(), rows))
}

/// One line per row and tenant. `None` where nobody is told apart.
pub(super) fn tenants(r: &Report) -> Option<Cells> {
    let head = ["", "tenant", "requests", "success %", "refused %", "p50 s", "p99 s"].map(str::to_owned).to_vec();
    let row = |t: &TenantLine| {
        let name = if t.tenants == 1 { t.tenant.clone() } else { format!("{} ({})", t.tenant, t.tenants) };
        let percent = |share: f64| format!("{:.2}", share * 100.0);
        let (requests, success, refused) = (t.requests.to_string(), percent(t.success), percent(t.refused));
        vec![t.row.clone(), name, requests, success, refused, number(t.p50_s, 3), number(t.p99_s, 3)]
    };
    (!r.tenants.is_empty()).then(|| (head, r.tenants.iter().map(row).collect()))
}

/// One line per policy, one column per round; many rounds are shown as their mean. `None` without rounds.
pub(super) fn rounds(r: &Report) -> Option<Cells> {
    let count = r.rounds.iter().map(|l| l.round).max()?;
    let few = count <= 8;
    let mut head = vec![String::new()];
    if few {
        head.extend((1..=count).map(|k| format!("round {k}, s")));
    } else {
        head.push("mean round, s".to_owned());
    }
    head.push("ideal".to_owned());
    let row = |name: &str| {
        let times: Vec<f64> = r.rounds.iter().filter(|x| x.policy == name).map(|x| x.total_s).collect();
        let mut row = vec![name.to_owned()];
        if few {
            row.extend(times.iter().map(|t| format!("{t:.2}")));
        } else {
            row.push(number(Mean::of(&times).mean, 2));
        }
        row.push(number(r.rounds.first().and_then(|x| x.ideal_s), 2));
        row
    };
    Some((head, r.lines.iter().map(|l| row(&l.name)).collect()))
}

fn drawn((head, rows): Cells) -> String {
    let mut table = start(&head);
    for row in rows {
        table.add_row(row);
    }
    finish(table)
}

pub(super) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"))
}

fn with_error(m: Mean, scale: f64, digits: usize) -> String {
    match (m.mean, m.se) {
        (Some(mean), Some(se)) => format!("{:.digits$} ±{:.digits$}", mean * scale, se * scale),
        (mean, _) => number(mean.map(|v| v * scale), digits),
    }
}
