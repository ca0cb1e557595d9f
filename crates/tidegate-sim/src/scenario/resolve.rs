//! From a scenario to the runs it stands for.

use tidegate_core::balance::registry::{self, default_policy};
use tidegate_core::descriptor::Params;
use tidegate_core::pool::config::PoolConfig;

use super::elastic::PlannedChange;
use super::fleet::{groups, sites};
use super::governance::Governed;
use super::pool::Contender;
use super::recorded::{Loaded, load};
use super::workload::{Pattern, TraceUse, Workload};
use super::{Engines, Scenario, Variant};
use crate::kernel::Kernel;
use crate::kernel::elastic::{Change, Elastic, Group, Metric};
use crate::kernel::governance::Governance;
use crate::kernel::setup::{Setup, Site, Source};
use crate::saturation::saturation;
use crate::workload::synthetic::Synthetic;

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
    /// What has to be said of its requests beside any result: that they are made up, or what is not known of them.
    pub notes: Vec<String>,
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
struct Known {
    key: TraceUse,
    loaded: Loaded,
    measured: Vec<(Vec<Site>, f64)>,
}

/// Where the requests of a cell come from, and what is known of them.
struct Origin {
    source: Source,
    trace: Option<String>,
    saturation_rps: Option<f64>,
    notes: Vec<String>,
}

impl From<Source> for Origin {
    fn from(source: Source) -> Self {
        Self { source, trace: None, saturation_rps: None, notes: Vec::new() }
    }
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
        let mut known: Vec<Known> = Vec::new();
        self.named().into_iter().map(|v| self.cell(v, read, &mut known)).collect()
    }

    fn cell(&self, variant: Option<&Variant>, read: &ReadFile<'_>, known: &mut Vec<Known>) -> Result<Cell, String> {
        let fleet = variant.map(|v| &v.fleet).filter(|f| !f.is_empty()).unwrap_or(&self.fleet);
        let workload = variant.and_then(|v| v.workload.as_ref()).or(self.workload.as_ref());
        let workload = workload.ok_or("no workload")?;
        let sites = sites(fleet);
        let outages = self.faults.iter().map(|f| f.outage(&sites)).collect::<Result<_, _>>()?;
        let elastic = self.elastic(fleet, &sites, workload)?;
        let Origin { source, trace, saturation_rps, notes } = self.origin(workload, &sites, read, known)?;
        let setup = Setup {
            sites,
            replicas: self.replicas,
            probes: self.probes,
            check_every: self.check_every,
            network: self.network,
            source,
            stream: workload.stream,
            goal: self.goal,
            tells_goal: false,
            outages,
            lies: Vec::new(),
            elastic,
            queries: workload.queries.clone(),
            max_tokens: workload.max_tokens,
        };
        Ok(Cell { variant: variant.map(|v| v.name.clone()), setup, trace, saturation_rps, notes })
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

    fn origin(
        &self,
        workload: &Workload,
        sites: &[Site],
        read: &ReadFile<'_>,
        known: &mut Vec<Known>,
    ) -> Result<Origin, String> {
        let (tokens, length) = (workload.tokens, self.duration);
        let usage = match &workload.pattern {
            Pattern::Open(arrivals) => return Ok(Source::Open { arrivals: *arrivals, length, tokens }.into()),
            Pattern::Tenants(parties) => {
                return Ok(Source::Tenants { parties: parties.as_slice().into(), length }.into());
            }
            &Pattern::Closed(clients, requests, rounds) => {
                return Ok(Source::Closed { clients, requests, rounds, tokens }.into());
            }
            Pattern::Trace(usage) => usage,
        };
        let at = match known.iter().position(|k| k.key.same_text(usage)) {
            Some(at) => at,
            None => {
                let loaded = load(&usage.file, usage.stand_in(), read, |t| t.cut(usage.spread, usage.length))?;
                known.push(Known { key: usage.clone(), loaded, measured: Vec::new() });
                known.len() - 1
            }
        };
        let Known { loaded, measured, .. } = &mut known[at];
        let (trace, notes) = (Some(loaded.name.clone()), loaded.notes.clone());
        let Some(share) = usage.load else {
            let source = Source::Trace(loaded.at_speed(usage.speed)?);
            return Ok(Origin { source, trace, saturation_rps: None, notes });
        };
        let rps = match measured.iter().find(|(s, _)| same_engines(s, sites)) {
            Some((_, rps)) => *rps,
            None => {
                let rps = saturation(sites, &loaded.recorded.shots);
                measured.push((sites.to_vec(), rps));
                rps
            }
        };
        let source = Source::Trace(loaded.at_load(share, rps)?);
        Ok(Origin { source, trace, saturation_rps: Some(rps), notes })
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
    /// What takes the place of an absent file.
    fn stand_in(&self) -> Option<Synthetic> {
        Some(if self.stand_in? == "code" { Synthetic::code() } else { Synthetic::conversation() })
    }

    /// Whether the same requests are meant, at whatever speed.
    fn same_text(&self, other: &Self) -> bool {
        let text = |t: &Self| (t.stand_in, t.spread, t.length);
        self.file == other.file && text(self) == text(other)
    }
}

fn same_engines(a: &[Site], b: &[Site]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.spec == b.spec)
}
