//! From a scenario to the runs it stands for.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::balance::registry::{self, default_policy};
use tidegate_core::descriptor::Params;
use tidegate_core::pool::config::PoolConfig;
use tidegate_core::prefix::chain;

use super::elastic::PlannedChange;
use super::fleet::{groups, sites};
use super::governance::Governed;
use super::pool::Contender;
use super::workload::{Pattern, TraceUse, Workload};
use super::{Engines, Scenario, Variant};
use crate::kernel::Kernel;
use crate::kernel::elastic::{Change, Elastic, Group, Metric};
use crate::kernel::governance::Governance;
use crate::kernel::setup::{Recorded, Setup, Shot, Site, Source};
use crate::saturation::saturation;
use crate::workload::synthetic::Synthetic;
use crate::workload::{Trace, request_log};

/// Reads the text of a file.
pub type ReadFile<'a> = dyn Fn(&str) -> Result<String, Unread> + 'a;

/// Why there is no text of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is not there: a stand-in may take its place.
    Absent(String),
    /// It is there and cannot be used; no stand-in hides that.
    Unusable(String),
}

/// A fleet under a load, with its name.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The variant; `None` if the scenario has none.
    pub variant: Option<String>,
    /// What is run.
    pub setup: Setup,
    /// The trace that is used, and whether it is the stand-in.
    pub trace: Option<String>,
    /// Measured saturation of the fleet on the trace, requests per second.
    pub saturation_rps: Option<f64>,
}

/// A policy that is compared.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its label.
    pub label: String,
    /// The pool it decides for.
    pub pool: PoolConfig,
    /// What stands in front of it.
    pub governance: Option<Governance>,
}

impl Row {
    /// A run of it.
    pub fn kernel<'s>(&self, setup: &'s Setup, seed: u64) -> Kernel<'s> {
        let kernel = Kernel::new(setup, &self.pool, seed);
        match &self.governance {
            Some(governance) => kernel.governed(governance),
            None => kernel,
        }
    }
}

/// A trace that was read, and the saturations measured on it.
struct Loaded {
    key: TraceUse,
    name: String,
    recorded: Recorded,
    measured: Vec<(Vec<Site>, f64)>,
}

impl Scenario {
    /// Names of the variants, one empty name if there are none.
    fn named(&self) -> Vec<Option<&Variant>> {
        if self.variants.is_empty() { vec![None] } else { self.variants.iter().map(Some).collect() }
    }

    /// Every variant, ready to run. Saturations are measured here, which takes a moment.
    ///
    /// # Errors
    /// A trace that is absent without a stand-in, or that cannot be read.
    pub fn cells(&self, read: &ReadFile<'_>) -> Result<Vec<Cell>, String> {
        let mut loaded: Vec<Loaded> = Vec::new();
        self.named().into_iter().map(|v| self.cell(v, read, &mut loaded)).collect()
    }

    fn cell(&self, variant: Option<&Variant>, read: &ReadFile<'_>, loaded: &mut Vec<Loaded>) -> Result<Cell, String> {
        let fleet = variant.map(|v| &v.fleet).filter(|f| !f.is_empty()).unwrap_or(&self.fleet);
        let workload = variant.and_then(|v| v.workload.as_ref()).or(self.workload.as_ref());
        let workload = workload.ok_or("no workload")?;
        let sites = sites(fleet);
        let outages = self.faults.iter().map(|f| f.outage(&sites)).collect::<Result<_, _>>()?;
        let elastic = self.elastic(fleet, &sites, workload)?;
        let (source, trace, saturation_rps) = self.source(workload, &sites, read, loaded)?;
        let setup = Setup {
            sites,
            replicas: self.replicas,
            probes: self.probes,
            check_every: self.check_every,
            network: self.network,
            source,
            stream: workload.stream,
            goal: self.goal,
            told_goal: None,
            outages,
            lies: Vec::new(),
            elastic,
        };
        Ok(Cell { variant: variant.map(|v| v.name.clone()), setup, trace, saturation_rps })
    }

    fn elastic(&self, fleet: &[Engines], sites: &[Site], workload: &Workload) -> Result<Elastic, String> {
        let elastic = Elastic { changes: PlannedChange::all(&self.changes, sites)?, groups: groups(fleet) };
        let both = |c: &&Change| elastic.groups.iter().any(|g| g.sites.contains(&c.site));
        if let Some(change) = elastic.changes.iter().find(both) {
            let name = &sites[change.site as usize].name;
            return Err(format!("changes: {name} is autoscaled; an endpoint is changed by plan or scaled, not both"));
        }
        let by_goal = |g: &Group| matches!(g.autoscale.metric, Metric::Slo(_));
        if !workload.stream && elastic.groups.iter().any(by_goal) {
            return Err("autoscale: `slo` needs streams; say `stream: true` in the workload".to_owned());
        }
        Ok(elastic)
    }

    fn source(
        &self,
        workload: &Workload,
        sites: &[Site],
        read: &ReadFile<'_>,
        loaded: &mut Vec<Loaded>,
    ) -> Result<(Source, Option<String>, Option<f64>), String> {
        let tokens = workload.tokens;
        let usage = match &workload.pattern {
            Pattern::Open(arrivals) => {
                return Ok((Source::Open { arrivals: *arrivals, length: self.duration, tokens }, None, None));
            }
            Pattern::Tenants(parties) => {
                let parties = parties.as_slice().into();
                return Ok((Source::Tenants { parties, length: self.duration }, None, None));
            }
            &Pattern::Closed(clients, requests, rounds) => {
                return Ok((Source::Closed { clients, requests, rounds, tokens }, None, None));
            }
            Pattern::Trace(usage) => usage,
        };
        let at = match loaded.iter().position(|l| l.key.same_text(usage)) {
            Some(at) => at,
            None => {
                let (recorded, name) = load(usage, read)?;
                loaded.push(Loaded { key: usage.clone(), name, recorded, measured: Vec::new() });
                loaded.len() - 1
            }
        };
        let l = &mut loaded[at];
        let Some(share) = usage.load else {
            return Ok((Source::Trace(scaled(&l.recorded, usage.speed)), Some(l.name.clone()), None));
        };
        let measured = match l.measured.iter().find(|(s, _)| same_engines(s, sites)) {
            Some((_, rps)) => *rps,
            None => {
                let rps = saturation(sites, &l.recorded.shots);
                l.measured.push((sites.to_vec(), rps));
                rps
            }
        };
        let span_s = l.recorded.shots.last().map_or(0.0, |s| s.at.as_secs_f64()).max(1e-9);
        let recorded = l.recorded.shots.len() as f64 / span_s;
        let shots = scaled(&l.recorded, share * measured / recorded);
        Ok((Source::Trace(shots), Some(l.name.clone()), Some(measured)))
    }

    /// What is compared, in the scenario's order: every policy under every governance. All policies with their defaults if it names none,
    /// but the default one alone where it names governances. Labels are unique.
    pub fn rows(&self) -> Vec<Row> {
        let contenders: Vec<Contender> = match (self.policies.is_empty(), self.governance.is_empty()) {
            (false, _) => self.policies.clone(),
            (true, true) => registry::all().iter().map(|d| Contender::of(Params::defaults(d))).collect(),
            (true, false) => vec![Contender::of(Params::defaults(default_policy()))],
        };
        let ways: Vec<Option<&Governed>> =
            if self.governance.is_empty() { vec![None] } else { self.governance.iter().map(Some).collect() };
        let mut rows: Vec<Row> = Vec::new();
        for (way, c) in ways.iter().flat_map(|way| contenders.iter().map(move |c| (way, c))) {
            let label = match way {
                Some(way) if contenders.len() == 1 => way.governance.name.clone(),
                Some(way) => format!("{} {}", way.governance.name, c.label()),
                None => c.label(),
            };
            let twins = rows.iter().filter(|r| r.label == label || r.label.starts_with(&format!("{label}#"))).count();
            let label = if twins == 0 { label } else { format!("{label}#{}", twins + 1) };
            let pool = c.pool(&self.pool, self.probes.as_ref(), self.replicas);
            let pool = way.map_or(pool.clone(), |way| way.pool(pool));
            rows.push(Row { label, pool, governance: way.map(|way| way.governance.clone()) });
        }
        rows
    }
}

impl TraceUse {
    /// Whether the same requests are meant, at whatever speed.
    fn same_text(&self, other: &Self) -> bool {
        (&self.file, self.stand_in, self.length) == (&other.file, other.stand_in, other.length)
    }
}

fn same_engines(a: &[Site], b: &[Site]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.spec == b.spec)
}

fn load(usage: &TraceUse, read: &ReadFile<'_>) -> Result<(Recorded, String), String> {
    let (trace, name) = match (read(&usage.file), usage.stand_in) {
        (Ok(text), _) => {
            let trace = if request_log::is_log(&text) { request_log::read(&text) } else { Trace::read(&text) };
            (trace.map_err(|e| format!("{}: {e}", usage.file))?, usage.file.clone())
        }
        (Err(Unread::Unusable(why)), _) | (Err(Unread::Absent(why)), None) => {
            return Err(format!("{}: {why}", usage.file));
        }
        (Err(_), Some("code")) => (Synthetic::code().trace(1), format!("{} (synthetic stand-in)", usage.file)),
        (Err(_), Some(_)) => (Synthetic::conversation().trace(1), format!("{} (synthetic stand-in)", usage.file)),
    };
    let trace = if usage.length.is_some() { trace.window(Duration::ZERO, usage.length) } else { trace };
    if trace.requests.is_empty() {
        return Err(format!("{}: no request in it", usage.file));
    }
    Ok((Recorded::of(&trace), name))
}

impl Recorded {
    /// The requests of a trace.
    pub fn of(trace: &Trace) -> Self {
        let mut blocks: Vec<u64> = Vec::new();
        let shot = |r: &crate::workload::TraceRequest| {
            let from = blocks.len();
            let ids = r.blocks.iter().flat_map(|&(a, b)| a..=b).map(u64::from);
            blocks.extend(chain(ids));
            let prompt = (from as u32, (blocks.len() - from) as u32);
            Shot { at: r.at, prompt_tokens: r.prompt_tokens, output_tokens: r.output_tokens, prompt }
        };
        let shots: Arc<[Shot]> = trace.requests.iter().map(shot).collect();
        Self { blocks: blocks.into(), ..Self::from(shots) }
    }
}

/// The same requests `factor` times as fast.
pub(crate) fn scaled(recorded: &Recorded, factor: f64) -> Recorded {
    if factor == 1.0 {
        return recorded.clone();
    }
    let shots = recorded.shots.iter().map(|s| Shot { at: s.at.div_f64(factor.max(1e-9)), ..*s }).collect();
    Recorded { shots, ..recorded.clone() }
}
