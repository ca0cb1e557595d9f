//! `--slo`: which policy meets an objective best, and how many engines it needs.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};
use tidegate::engine::clock::Clock;
use tidegate_sim::Scenario;
use tidegate_sim::batch::Seeds;
use tidegate_sim::report::{Report, report};
use tidegate_sim::scenario::{Cell, Row};
use tidegate_sim::sizing::{Found, Score, Sizing, Slo, best_of, size, within};

use super::{Args, Prepared, Refused, pages, refuse, table, threads};

/// What the tables speak of.
struct Asked<'a> {
    name: &'a str,
    scenario: &'a Scenario,
    cell: &'a Cell,
    rows: &'a [Row],
    slo: Slo,
}

/// Sizes the fleet and prints the answer; exit code 1 if no size that was tried is enough.
pub(super) fn run(
    args: &Args,
    name: &str,
    scenario: &Scenario,
    slo: &str,
    (cells, rows, seeds): &Prepared,
) -> anyhow::Result<ExitCode> {
    let slo = match Slo::parse(slo) {
        Ok(slo) => slo,
        Err(why) => return refuse(&Refused(format!("tidegate sim: {why}"))),
    };
    let [cell] = cells.as_slice() else {
        return refuse(&Refused("tidegate sim: --slo sizes one fleet; this file has variants".to_owned()));
    };
    if cell.setup.elastic.is_elastic() {
        let why = "tidegate sim: --slo finds how many engines a fleet needs that stays as it is; leave out autoscale and changes";
        return refuse(&Refused(why.to_owned()));
    }
    let clock = Clock::start();
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{spinner} {pos} runs, {elapsed}, {msg}")?);
    let mut requests = 0;
    let sizing = size(scenario, cell, rows, *seeds, threads(args), slo, &mut |engines, n| {
        requests += n;
        bar.set_message(format!("{engines} engines"));
        bar.inc(1);
    });
    bar.finish_and_clear();
    let asked = Asked { name, scenario, cell, rows, slo };
    if let Some(path) = &args.report {
        asked.write(path, &sizing, *seeds)?;
    }
    let mut out = std::io::stdout();
    if args.json {
        writeln!(out, "{}", asked.json(&sizing, seeds.count))?;
    } else {
        writeln!(out, "{}", asked.text(&sizing))?;
        let took_s = clock.now().as_secs_f64();
        writeln!(out, "{requests} requests simulated in {took_s:.2} s on {} threads", threads(args))?;
    }
    Ok(ExitCode::from(u8::from(sizing.best.is_none())))
}

impl Asked<'_> {
    fn label(&self, row: usize) -> &str {
        self.rows.get(row).map_or("", |r| r.label.as_str())
    }

    /// The objective in words.
    fn objective(&self) -> String {
        let part = |word: &str, s: f64| s.is_finite().then(|| format!("{word} within {} s", short(s)));
        let parts = [part("first token", self.slo.goal.ttft_s), part("each further one", self.slo.goal.interval_s)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        format!("{}, for {} % of the requests", parts.join(", "), short(self.slo.target * 100.0))
    }

    fn report(&self, sizing: &Sizing) -> Report {
        report(self.cell, self.rows, &sizing.runs)
    }

    /// The report of the runs on the fleet as given, with the answer above it.
    fn write(&self, path: &Path, sizing: &Sizing, seeds: Seeds) -> anyhow::Result<()> {
        let mut cell = self.cell.clone();
        cell.setup.goal = self.slo.goal;
        cell.notes.push(format!("{}: {}", self.objective(), self.sentence(sizing)));
        let reports = [report(&cell, self.rows, &sizing.runs)];
        let runs = [sizing.runs.clone()];
        pages::write(path, self.name, &[cell], self.rows, seeds, &runs, &reports)
    }

    fn text(&self, sizing: &Sizing) -> String {
        let (report, given) = (self.report(sizing), sizing.given);
        let mut out = table::notes(&self.cell.notes);
        // Writing to a string cannot fail.
        let _ = write!(out, "{}: {}\n\n", self.name, self.objective());
        let rows = report.lines.iter().zip(&sizing.runs).map(|(line, runs)| {
            let share = percent(within(runs));
            let success = table::number(line.success.mean.map(|s| s * 100.0), 2);
            vec![
                line.name.clone(),
                share,
                success,
                table::number(line.ttft_s, 3),
                table::number(line.p99_ttft_s, 3),
                table::number(line.p99_s, 2),
            ]
        });
        let head = ["policy", "within %", "success %", "TTFT s\nmean", "\np99", "total s\np99"];
        let _ = writeln!(out, "{given} engines, as given ({}):", self.scenario.fleet_of(given));
        let _ = writeln!(out, "{}\n", table::plain(&head, rows.collect()));
        let head = ["engines", "of", "best policy", "within %", "adaptive\nwithin %"];
        let tried = sizing.tried.iter().map(|(engines, scores)| self.tried(*engines, scores)).collect();
        let _ = writeln!(out, "Fleets that were tried:\n{}\n", table::plain(&head, tried));
        out.push_str(&self.sentence(sizing));
        out
    }

    fn tried(&self, engines: u32, scores: &[Score]) -> Vec<String> {
        let best = best_of(scores, &|_| true).unwrap_or_default();
        let share = scores.get(best).map_or(0.0, |s| s.within);
        let equals = scores.iter().filter(|s| s.within == share).count().saturating_sub(1);
        let others = if equals > 0 { format!(" and {equals} more") } else { String::new() };
        let adaptive = best_of(scores, &|row| self.label(row) == "adaptive").map(|row| percent(scores[row].within));
        vec![
            engines.to_string(),
            self.scenario.fleet_of(engines),
            format!("{}{others}", self.label(best)),
            percent(share),
            adaptive.unwrap_or_else(|| "-".to_owned()),
        ]
    }

    /// The answer in a sentence or two.
    fn sentence(&self, sizing: &Sizing) -> String {
        let mut out = self.best_as_given(sizing);
        let engines = |n: u32| format!("{n} engine{} ({})", if n == 1 { "" } else { "s" }, self.scenario.fleet_of(n));
        let target = short(self.slo.target * 100.0);
        let _ = match (sizing.best, sizing.adaptive) {
            (Some(found), adaptive) => {
                let under = self.label(found.row);
                let _ = write!(out, " {} reach {target} % under {under}", engines(found.engines));
                match adaptive {
                    Some(a) if a.engines == found.engines && under == "adaptive" => write!(out, "."),
                    Some(a) if a.engines == found.engines => write!(out, ", and under adaptive."),
                    Some(a) => write!(out, "; adaptive needs {}.", engines(a.engines)),
                    None if self.rows.iter().any(|r| r.label == "adaptive") => {
                        write!(out, "; adaptive does not with up to {}.", sizing.most)
                    }
                    None => write!(out, "."),
                }
            }
            (None, _) if sizing.reachable < self.slo.target => write!(
                out,
                " No number of engines reaches {target} %: alone on an idle engine {} % of these requests are within the times. \
                 Faster engines, shorter prompts or a lower target are needed.",
                percent(sizing.reachable)
            ),
            (None, _) => write!(out, " Up to {} engines none of these policies reaches {target} %.", sizing.most),
        };
        out
    }

    /// Which policy is best on the fleet as given, and who is as good.
    fn best_as_given(&self, sizing: &Sizing) -> String {
        let ranked = sizing.ranked(self.slo.target);
        let best = ranked.first().copied().unwrap_or_default();
        let share = sizing.runs.get(best).map_or(0.0, within);
        let (label, share) = (self.label(best), percent(share));
        let others: Vec<&str> = ranked.iter().skip(1).map(|row| self.label(*row)).collect();
        if others.is_empty() {
            return format!("On the fleet as given, {label} is best for this objective: {share} % within it.");
        }
        format!(
            "On the fleet as given it is a tie: {share} % within this objective under {label}, and as many under {}. {label} is named, as it meets \
             the target with the fewest engines, or, where they are equal in that too, has most whole answers and then the shortest times.",
            others.join(", ")
        )
    }

    fn json(&self, sizing: &Sizing, seeds: u32) -> Value {
        let time = |s: f64| s.is_finite().then_some(s);
        let lines = self.report(sizing).lines;
        let policy = |(line, share): (&tidegate_sim::report::Line, f64)| {
            json!({ "name": line.name, "within": share, "success": line.success.mean, "mean_ttft_s": line.ttft_s,
                    "p99_ttft_s": line.p99_ttft_s, "p99_s": line.p99_s })
        };
        let shares = sizing.runs.iter().map(within);
        let tried = |(engines, scores): (&u32, &Vec<Score>)| {
            let by_policy: Map<String, Value> =
                self.rows.iter().zip(scores).map(|(r, s)| (r.label.clone(), json!(s.within))).collect();
            json!({ "engines": engines, "fleet": self.scenario.fleet_of(*engines), "within": by_policy })
        };
        let found = |f: Found| {
            json!({ "engines": f.engines, "fleet": self.scenario.fleet_of(f.engines), "policy": self.label(f.row),
                    "within": f.within })
        };
        json!({
            "tool_version": env!("CARGO_PKG_VERSION"), "command": "sim", "scenario": self.name, "seeds": seeds,
            "trace": self.cell.trace, "notes": self.cell.notes,
            "slo": { "ttft_s": time(self.slo.goal.ttft_s), "tpot_s": time(self.slo.goal.interval_s),
                     "target": self.slo.target },
            "given": { "engines": sizing.given, "fleet": self.scenario.fleet_of(sizing.given),
                       "policies": lines.iter().zip(shares).map(policy).collect::<Vec<_>>() },
            "best": sizing.ranked(self.slo.target).iter().map(|row| self.label(*row)).collect::<Vec<_>>(),
            "reachable": sizing.reachable,
            "smallest": sizing.best.map(found),
            "smallest_adaptive": sizing.adaptive.map(found),
            "tried": sizing.tried.iter().map(tried).collect::<Vec<_>>(),
        })
    }
}

/// A share as a percentage; rounded down, so that what is below the target never reads as if it were met.
fn percent(share: f64) -> String {
    format!("{:.2}", (share * 10_000.0 + 1e-9).floor() / 100.0)
}

/// A number without digits that say nothing.
fn short(x: f64) -> String {
    let text = format!("{x:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
