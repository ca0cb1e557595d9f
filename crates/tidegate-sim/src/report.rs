//! What a comparison says: a row per policy, paired differences over the seeds, rounds.

mod json;

use crate::batch::{Measured, Runs};
use crate::ideal::ideal_round_s;
use crate::kernel::setup::Source;
use crate::scenario::{Cell, Row};

pub use json::report_json;

/// The report of one cell.
#[derive(Clone, Debug)]
pub struct Report {
    /// The variant, if the scenario has any.
    pub variant: Option<String>,
    /// The trace used, if any.
    pub trace: Option<String>,
    /// Measured saturation, requests per second.
    pub saturation_rps: Option<f64>,
    /// Seeds run.
    pub seeds: u32,
    /// Names of the endpoints.
    pub endpoints: Vec<String>,
    /// A line per policy.
    pub lines: Vec<Line>,
    /// Differences between policies on the same seeds.
    pub paired: Vec<Paired>,
    /// Rounds of a closed loop.
    pub rounds: Vec<RoundLine>,
    /// What tenants got: a line per row and tenant.
    pub tenants: Vec<TenantLine>,
    /// Whether the load is of streams.
    pub stream: bool,
    /// What has to be said before any of it, such as that requests are made up.
    pub notes: Vec<String>,
}

/// What a tenant, or several alike together, got in one row, over all seeds.
#[derive(Clone, Debug)]
pub struct TenantLine {
    /// The row's label.
    pub row: String,
    /// The tenant's name.
    pub tenant: String,
    /// How many tenants these are.
    pub tenants: u32,
    /// Requests.
    pub requests: u64,
    /// Share of them with a whole answer.
    pub success: f64,
    /// Of whole answers, seconds.
    pub p50_s: Option<f64>,
    /// 99 % quantile.
    pub p99_s: Option<f64>,
    /// Share refused before any engine saw them.
    pub refused: f64,
}

/// What one policy did.
#[derive(Clone, Debug)]
pub struct Line {
    /// The policy's label.
    pub name: String,
    /// Requests over all seeds.
    pub requests: u64,
    /// Mean and standard error over the seeds of the mean time of whole answers, seconds.
    pub latency_s: Mean,
    /// Quantiles over all seeds, seconds.
    pub p50_s: Option<f64>,
    /// 99 % quantile.
    pub p99_s: Option<f64>,
    /// Mean time to first token, seconds.
    pub ttft_s: Option<f64>,
    /// Quantiles over all seeds, seconds.
    pub p50_ttft_s: Option<f64>,
    /// 90 % quantile.
    pub p90_ttft_s: Option<f64>,
    /// 99 % quantile.
    pub p99_ttft_s: Option<f64>,
    /// Share of whole answers.
    pub success: Mean,
    /// Share within the goal; `None` without streams.
    pub goodput: Option<f64>,
    /// Largest share over the mean share.
    pub imbalance: f64,
    /// Share of each endpoint.
    pub shares: Vec<f64>,
    /// Dispatches beyond the first, over all seeds.
    pub retries: u64,
    /// Share of the queries whose answers were cached, 0..1; `None` where none was looked up.
    pub query_hits: Option<f64>,
    /// Share of the prompt tokens that engines had in memory, 0..1; `None` where nobody knows the blocks of prompts.
    pub prompt_hits: Option<f64>,
    /// What the fleet cost; `None` where nobody joins or leaves.
    pub fleet: Option<FleetLine>,
}

/// What a fleet that changes cost, and what its changes cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetLine {
    /// Time of all engines together from start to stop, the mean over the seeds; seconds.
    pub endpoint_s: Mean,
    /// Engines on average over the run.
    pub mean: f64,
    /// Most engines at a time in any seed.
    pub most: u32,
    /// Engines started, the mean over the seeds.
    pub starts: f64,
    /// Requests without a whole answer, over all seeds.
    pub failed: u64,
    /// Of these, refused before an engine saw them.
    pub shed: u64,
    /// Of all that failed, those that ended while an engine started or left.
    pub in_change: u64,
}

/// `a` minus `b` over the seeds.
#[derive(Clone, Debug)]
pub struct Paired {
    /// The one.
    pub a: String,
    /// The other.
    pub b: String,
    /// Difference of mean latency, seconds.
    pub latency_s: Mean,
    /// Difference of success.
    pub success: Mean,
}

/// One round of one policy, the mean over the seeds.
#[derive(Clone, Debug)]
pub struct RoundLine {
    /// The policy's label.
    pub policy: String,
    /// From 1.
    pub round: u32,
    /// Total time, seconds.
    pub total_s: f64,
    /// The smallest possible, seconds.
    pub ideal_s: Option<f64>,
}

/// A mean and its standard error; the error is `None` below two values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// The mean, `None` of nothing.
    pub mean: Option<f64>,
    /// Its standard error.
    pub se: Option<f64>,
}

impl Mean {
    /// Of these values.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        if values.is_empty() {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let se = (values.len() > 1).then(|| libm::sqrt(squares / (n - 1.0) / n));
        Self { mean: Some(mean), se }
    }
}

impl Report {
    /// Whether queries were looked up in caches of answers.
    pub fn looks_up(&self) -> bool {
        self.lines.iter().any(|l| l.query_hits.is_some())
    }

    /// Whether engines may have had beginnings of prompts in memory.
    pub fn keeps_prompts(&self) -> bool {
        self.lines.iter().any(|l| l.prompt_hits.is_some())
    }
}

/// The report of one cell from its runs, one [`Runs`] per row.
pub fn report(cell: &Cell, rows: &[Row], runs: &[Runs]) -> Report {
    let endpoints = cell.setup.sites.iter().map(|s| s.name.clone()).collect();
    let stream = cell.setup.stream;
    let fleet = |r: &Runs| cell.setup.elastic.is_elastic().then(|| fleet_line(r));
    let has_blocks = matches!(&cell.setup.source, Source::Trace(recorded) if !recorded.blocks.is_empty());
    let hits =
        |r: &Runs| Mean::of(&r.seeds.iter().map(|m| m.prompt_hits).collect::<Vec<_>>()).mean.filter(|_| has_blocks);
    let line = |(row, r): (&Row, &Runs)| Line { fleet: fleet(r), prompt_hits: hits(r), ..line(&row.label, r, stream) };
    let lines = rows.iter().zip(runs).map(line).collect();
    let ideal_s = ideal_round_s(&cell.setup);
    let rounds = rows.iter().zip(runs).flat_map(|(row, r)| round_lines(&row.label, r, ideal_s)).collect();
    Report {
        variant: cell.variant.clone(),
        trace: cell.trace.clone(),
        saturation_rps: cell.saturation_rps,
        seeds: runs.first().map_or(0, |r| r.seeds.len() as u32),
        endpoints,
        lines,
        paired: pairs(rows, runs),
        rounds,
        tenants: rows.iter().zip(runs).flat_map(|(row, r)| tenant_lines(&row.label, r)).collect(),
        stream,
        notes: cell.notes.clone(),
    }
}

fn line(label: &str, runs: &Runs, stream: bool) -> Line {
    let seeds = &runs.seeds;
    let mean_of = |f: fn(&Measured) -> Option<f64>| Mean::of(&seeds.iter().filter_map(f).collect::<Vec<_>>());
    let endpoints = seeds.first().map_or(0, |m| m.shares.len());
    let share = |i: usize| Mean::of(&seeds.iter().filter_map(|m| m.shares.get(i).copied()).collect::<Vec<_>>());
    Line {
        name: label.to_owned(),
        requests: seeds.iter().map(|m| m.requests).sum(),
        latency_s: mean_of(|m| m.latency_s),
        p50_s: runs.total.quantile_s(0.5),
        p99_s: runs.total.quantile_s(0.99),
        ttft_s: mean_of(|m| m.ttft_s).mean,
        p50_ttft_s: runs.ttft.quantile_s(0.5),
        p90_ttft_s: runs.ttft.quantile_s(0.9),
        p99_ttft_s: runs.ttft.quantile_s(0.99),
        success: mean_of(|m| Some(m.success)),
        goodput: if stream { mean_of(|m| Some(m.goodput)).mean } else { None },
        imbalance: mean_of(|m| Some(m.imbalance)).mean.unwrap_or(0.0),
        shares: (0..endpoints).map(|i| share(i).mean.unwrap_or(0.0)).collect(),
        retries: seeds.iter().map(|m| m.retries).sum(),
        query_hits: mean_of(|m| m.query_hits).mean,
        prompt_hits: None,
        fleet: None,
    }
}

fn fleet_line(runs: &Runs) -> FleetLine {
    let seeds = &runs.seeds;
    let mean = |of: fn(&Measured) -> f64| Mean::of(&seeds.iter().map(of).collect::<Vec<_>>());
    let sum = |of: fn(&Measured) -> u64| seeds.iter().map(of).sum();
    FleetLine {
        endpoint_s: mean(|m| m.fleet.endpoint_s),
        mean: mean(|m| m.fleet.endpoint_s / m.ended_s.max(1e-9)).mean.unwrap_or(0.0),
        most: seeds.iter().map(|m| m.fleet.most).max().unwrap_or(0),
        starts: mean(|m| m.fleet.starts as f64).mean.unwrap_or(0.0),
        failed: sum(|m| m.requests - m.succeeded),
        shed: sum(|m| m.shed),
        in_change: sum(|m| m.fleet.lost_in_change),
    }
}

fn tenant_lines<'r>(label: &'r str, runs: &'r Runs) -> impl Iterator<Item = TenantLine> + 'r {
    runs.parties.iter().map(move |p| TenantLine {
        row: label.to_owned(),
        tenant: p.name.clone(),
        tenants: p.tenants,
        requests: p.requests,
        success: p.succeeded as f64 / p.requests.max(1) as f64,
        p50_s: p.total.quantile_s(0.5),
        p99_s: p.total.quantile_s(0.99),
        refused: p.refused as f64 / p.requests.max(1) as f64,
    })
}

fn round_lines(label: &str, runs: &Runs, ideal_s: Option<f64>) -> Vec<RoundLine> {
    let rounds = runs.seeds.first().map_or(0, |m| m.rounds.len());
    let one = |k: usize| {
        let times: Vec<f64> = runs.seeds.iter().filter_map(|m| m.rounds.get(k).copied()).collect();
        let total_s = Mean::of(&times).mean.unwrap_or(0.0);
        RoundLine { policy: label.to_owned(), round: k as u32 + 1, total_s, ideal_s }
    };
    (0..rounds).map(one).collect()
}

/// Every pair; `adaptive`, where it takes part, always as the first of its pairs.
fn pairs(rows: &[Row], runs: &[Runs]) -> Vec<Paired> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&i| (rows[i].label != "adaptive", i));
    let mut pairs = Vec::new();
    for (k, &a) in order.iter().enumerate() {
        for &b in &order[k + 1..] {
            let both = || runs[a].seeds.iter().zip(&runs[b].seeds);
            let latency: Vec<f64> = both().filter_map(|(x, y)| Some(x.latency_s? - y.latency_s?)).collect();
            let success: Vec<f64> = both().map(|(x, y)| x.success - y.success).collect();
            pairs.push(Paired {
                a: rows[a].label.clone(),
                b: rows[b].label.clone(),
                latency_s: Mean::of(&latency),
                success: Mean::of(&success),
            });
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_errors() {
        assert_eq!(Mean::of(&[]), Mean::default());
        assert_eq!(Mean::of(&[3.0]), Mean { mean: Some(3.0), se: None });
        let m = Mean::of(&[1.0, 2.0, 3.0, 4.0]);
        assert!((m.mean.unwrap() - 2.5).abs() < 1e-12 && (m.se.unwrap() - 0.645_497).abs() < 1e-6);
    }
}
