//! The cells of the study, ready to be played.

use std::time::Duration;

use tidegate_core::rng::Rng;

use super::settings::{RoutingStudy, TraceKind};
use crate::kernel::elastic::Elastic;
use crate::kernel::setup::{Goal, Probes, Recorded, Setup, Source};
use crate::saturation::saturation;
use crate::scenario::{ReadFile, Unread, scaled, sites};
use crate::workload::Trace;
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

/// Every fleet, every trace on it, every load.
pub(super) fn places(study: &RoutingStudy, read: &ReadFile<'_>) -> Result<Vec<Place>, String> {
    let traces: Vec<(String, Recorded)> =
        study.traces.iter().map(|t| recorded(t, read)).collect::<Result<_, String>>()?;
    let mut places = Vec::new();
    for fleet in &study.fleets {
        let sites = sites(&fleet.engines);
        for (kind, (name, recorded)) in study.traces.iter().zip(&traces) {
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
            let span_s = recorded.shots.last().map_or(0.0, |s| s.at.as_secs_f64()).max(1e-9);
            let rate = recorded.shots.len() as f64 / span_s;
            for cell in &study.cells {
                let source = Source::Trace(scaled(recorded, cell.load * whole / rate));
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
                    told_goal: study.refuse_late.then_some(kind.ttft),
                    outages: Vec::new(),
                    lies: lies.into_iter().collect(),
                    elastic: Elastic::default(),
                };
                let (fleet, speeds) = (fleet.name.clone(), speeds.clone());
                places.push(Place { trace: name.clone(), fleet, load: cell.load, setup, speeds });
            }
        }
    }
    Ok(places)
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

fn recorded(kind: &TraceKind, read: &ReadFile<'_>) -> Result<(String, Recorded), String> {
    let (trace, name) = match read(&kind.file) {
        Ok(text) => (Trace::read(&text).map_err(|e| format!("{}: {e}", kind.file))?, short(&kind.file)),
        Err(Unread::Absent(_)) if kind.file.contains("code") => (Synthetic::code().trace(1), "code (synthetic)".into()),
        Err(Unread::Absent(_)) => (Synthetic::conversation().trace(1), format!("{} (synthetic)", short(&kind.file))),
        Err(Unread::Unusable(why)) => return Err(format!("{}: {why}", kind.file)),
    };
    let trace = if kind.spread.is_zero() { trace } else { trace.spread(kind.spread, &mut Rng::new(1)) };
    let trace = if kind.length.is_some() { trace.window(Duration::ZERO, kind.length) } else { trace };
    if trace.requests.is_empty() {
        return Err(format!("{}: no request in it", kind.file));
    }
    Ok((name, Recorded::of(&trace)))
}

fn short(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.trim_end_matches(".csv").to_owned()
}
