//! `--report`: what its two pages say, for people with a browser and for a repository.

use std::path::Path;

use tidegate_sim::batch::{Runs, Seeds};
use tidegate_sim::kernel::Timeline;
use tidegate_sim::offered::offered_rps;
use tidegate_sim::report::{Line, Report};
use tidegate_sim::scenario::{Cell, Row};

use super::table::{self, Cells};
use super::{html, markdown};

/// One variant: its numbers, its runs, and the loads of each policy over time on the first seed.
pub(super) struct Chapter<'a> {
    pub(super) report: &'a Report,
    pub(super) runs: &'a [Runs],
    pub(super) timelines: Vec<Timeline>,
    offered_rps: Option<f64>,
}

/// Variants that differ by how much is asked of the same fleet.
pub(super) struct LoadCurves {
    /// Which variants.
    pub(super) title: String,
    /// Whether answers are streams.
    pub(super) stream: bool,
    /// Per policy its name and what it did, by requests offered per second, rising.
    pub(super) lines: Vec<(String, Vec<(f64, Line)>)>,
}

/// What is drawn against load: caption, name of the axis, and where it stands.
pub(super) type Quantity = (String, &'static str, fn(&Line) -> Option<f64>);

/// Writes the report: a folder with both pages, or the page alone where `path` ends in `.html`. Loads over time come from one more run of
/// each policy on the first seed.
///
/// # Errors
/// If a plot cannot be drawn or a file not be written.
pub(super) fn write(
    path: &Path,
    name: &str,
    cells: &[Cell],
    rows: &[Row],
    seeds: Seeds,
    runs: &[Vec<Runs>],
    reports: &[Report],
) -> anyhow::Result<()> {
    let timelines =
        |cell: &Cell| rows.iter().map(|row| row.kernel(&cell.setup, seeds.first).run_with_timeline()).collect();
    let chapters: Vec<Chapter<'_>> = cells
        .iter()
        .zip(runs)
        .zip(reports)
        .map(|((cell, runs), report)| Chapter {
            report,
            runs,
            timelines: timelines(cell),
            offered_rps: offered_rps(&cell.setup),
        })
        .collect();
    let loads = load_curves(cells, reports);
    let save =
        |path: &Path, page: String| std::fs::write(path, page).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()));
    let page = html::page(name, &chapters, &loads)?;
    if path.extension().is_some_and(|e| e == "html") {
        return save(path, page);
    }
    std::fs::create_dir_all(path).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
    save(&path.join("report.html"), page)?;
    save(&path.join("report.md"), markdown::page(name, &chapters, &loads))
}

impl Chapter<'_> {
    /// Seeds, endpoints, trace and load in a sentence.
    pub(super) fn summary(&self) -> String {
        let r = self.report;
        let many = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        let mut parts = vec![many(r.seeds as usize, "seed"), many(r.endpoints.len(), "endpoint")];
        parts.extend(r.trace.as_ref().map(|t| format!("trace {t}")));
        parts.extend(self.offered_rps.map(|rps| format!("{rps:.2} requests/s offered")));
        parts.extend(r.saturation_rps.map(|rps| format!("the fleet saturates at {rps:.2}/s")));
        parts.join(", ")
    }

    /// What each policy did.
    pub(super) fn policies(&self) -> Cells {
        let r = self.report;
        let mut head = vec!["policy", "requests", "success %", "mean s", "p50 s", "p99 s"];
        if r.stream {
            head.extend(["TTFT mean s", "TTFT p99 s", "good %"]);
        }
        head.push("imbalance");
        if r.looks_up() {
            head.push("found %");
        }
        if r.keeps_prompts() {
            head.push("cached %");
        }
        let rows = r.lines.iter().map(|l| table::measured(l, r)).collect();
        (head.into_iter().map(str::to_owned).collect(), rows)
    }

    /// The further tables, where there is something to say.
    pub(super) fn tables(&self) -> [(&'static str, Option<Cells>); 4] {
        let r = self.report;
        let on_one_line = |(head, rows): Cells| (head.iter().map(|h| h.replace('\n', " ")).collect(), rows);
        [
            ("What the fleet cost", table::fleet(r).map(on_one_line)),
            ("Tenants", table::tenants(r)),
            ("Differences, paired by seed", table::pairs(r)),
            ("Total time of each round", table::rounds(r)),
        ]
    }
}

impl LoadCurves {
    /// What is drawn.
    pub(super) fn quantities(&self) -> Vec<Quantity> {
        let mean: Quantity = ("Mean latency against load".to_owned(), "mean latency, seconds", |l| l.latency_s.mean);
        let tail: Quantity = ("99 % quantile of latency against load".to_owned(), "p99 latency, seconds", |l| l.p99_s);
        let ttft: Quantity = ("Mean time to first token against load".to_owned(), "mean TTFT, seconds", |l| l.ttft_s);
        let late: Quantity =
            ("99 % quantile of the time to first token".to_owned(), "p99 TTFT, seconds", |l| l.p99_ttft_s);
        if self.stream { vec![ttft, late, mean] } else { vec![mean, tail] }
    }
}

/// What has to be said before all of it, each thing once.
pub(super) fn notes(chapters: &[Chapter<'_>]) -> Vec<String> {
    let mut notes: Vec<String> = chapters.iter().flat_map(|c| c.report.notes.iter().cloned()).collect();
    notes.dedup();
    notes
}

/// Groups of variants with equal engines and different loads.
fn load_curves(cells: &[Cell], reports: &[Report]) -> Vec<LoadCurves> {
    let engines = |c: &Cell| c.setup.sites.iter().map(|s| (s.name.clone(), s.spec)).collect::<Vec<_>>();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for k in 0..cells.len() {
        match groups.iter_mut().find(|g| engines(&cells[g[0]]) == engines(&cells[k])) {
            Some(group) => group.push(k),
            None => groups.push(vec![k]),
        }
    }
    groups.into_iter().filter_map(|group| curves(&group, cells, reports)).collect()
}

/// `None` where the variants of the group do not differ by load.
fn curves(group: &[usize], cells: &[Cell], reports: &[Report]) -> Option<LoadCurves> {
    let mut by_load: Vec<(f64, usize)> =
        group.iter().map(|&k| offered_rps(&cells[k].setup).map(|rps| (rps, k))).collect::<Option<_>>()?;
    by_load.sort_by(|a, b| a.0.total_cmp(&b.0));
    let differ = by_load.windows(2).all(|w| w[1].0 > w[0].0 * 1.001);
    if by_load.len() < 2 || !differ {
        return None;
    }
    let names: Vec<&str> = by_load.iter().filter_map(|(_, k)| cells[*k].variant.as_deref()).collect();
    let first = &reports[group[0]];
    let line = |row: usize| {
        let at = |&(rps, k): &(f64, usize)| Some((rps, reports[k].lines.get(row)?.clone()));
        (first.lines[row].name.clone(), by_load.iter().filter_map(at).collect())
    };
    Some(LoadCurves {
        title: names.join(", "),
        stream: first.stream,
        lines: (0..first.lines.len()).map(line).collect(),
    })
}
