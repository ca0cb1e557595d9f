//! The cells of the study, ready to be played.

use std::time::Duration;

use super::settings::{RoutingStudy, TraceKind};
use crate::kernel::elastic::Elastic;
use crate::kernel::setup::{Goal, Probes, Setup, Source};
use crate::saturation::saturation;
use crate::scenario::{Loaded, ReadFile, load, sites};
use crate::workload::synthetic::Synthetic;

/// Longest mean time between tokens that counts as within the goal.
const INTERVAL_S: f64 = 0.1;

/// One cell.
pub(super) struct Place {
    pub(super) trace: String,
    pub(super) fleet: String,
    pub(super) load: f64,
    pub(super) setup: Setup,
    /// What each endpoint saturates at by itself, requests per second: the true weights.
    pub(super) speeds: Vec<f64>,
}

/// Every fleet, every trace on it, every load; and what has to be said of the traces.
pub(super) fn places(study: &RoutingStudy, read: &ReadFile<'_>) -> Result<(Vec<Place>, Vec<String>), String> {
    let traces: Vec<Loaded> = study.traces.iter().map(|t| loaded(t, read)).collect::<Result<_, String>>()?;
    let mut places = Vec::new();
    for fleet in &study.fleets {
        let sites = sites(&fleet.engines);
        for (kind, loaded) in study.traces.iter().zip(&traces) {
            let recorded = &loaded.recorded;
            let whole = saturation(&sites, &recorded.shots);
            let mut known: Vec<(crate::engine::EngineSpec, f64)> = Vec::new();
            let mut speed = |spec| match known.iter().find(|(s, _)| *s == spec) {
                Some((_, rps)) => *rps,
                None => {
                    let alone: Vec<_> = sites.iter().filter(|s| s.spec == spec).take(1).cloned().collect();
                    let rps = saturation(&alone, &recorded.shots[..recorded.shots.len().min(4000)]);
                    known.push((spec, rps));
                    rps
                }
            };
            let speeds: Vec<f64> = sites.iter().map(|s| speed(s.spec)).collect();
            for cell in &study.cells {
                let source = Source::Trace(loaded.at_load(cell.load, whole)?);
                let goal = Goal { ttft_s: kind.ttft.as_secs_f64(), interval_s: INTERVAL_S };
                let lies = study.lie.map(|lie| (sites.len() as u32 - 1, lie));
                let setup = Setup {
                    sites: sites.clone(),
                    replicas: cell.replicas,
                    probes: Some(probes(study)),
                    check_every: None,
                    network: Duration::ZERO,
                    source,
                    stream: true,
                    goal,
                    tells_goal: study.refuse_late,
                    outages: Vec::new(),
                    lies: lies.into_iter().collect(),
                    elastic: Elastic::default(),
                    queries: None,
                    max_tokens: None,
                };
                let (fleet, speeds) = (fleet.name.clone(), speeds.clone());
                places.push(Place { trace: short(&loaded.name), fleet, load: cell.load, setup, speeds });
            }
        }
    }
    let mut notes: Vec<String> = traces.into_iter().flat_map(|t| t.notes).collect();
    notes.dedup();
    Ok((places, notes))
}

fn probes(study: &RoutingStudy) -> Probes {
    Probes {
        interval: study.every,
        delay: Duration::ZERO,
        max_age: study.every * 3,
        per_request: None,
        queued_tokens: study.queued_tokens,
        max_load: None,
    }
}

fn loaded(kind: &TraceKind, read: &ReadFile<'_>) -> Result<Loaded, String> {
    let stand_in = if kind.file.contains("code") { Synthetic::code() } else { Synthetic::conversation() };
    load(&kind.file, Some(stand_in), read, |trace| trace.cut(kind.spread, kind.length))
}

fn short(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.replace(".csv", "").replace(" stand-in", "")
}
