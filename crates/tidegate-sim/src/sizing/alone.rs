//! What an engine does for a request that has it to itself: nobody can do more, however many engines there are.

use std::collections::HashMap;

use tidegate_core::time::Instant;

use crate::engine::{Admission, Detail, Emitted, EngineModel as _, EngineRequest, EngineSpec};
use crate::kernel::setup::{Goal, Setup, Source};

/// Share of the requests that meet the goal on an idle engine of the fleet, whichever suits each best, 0..1. 1 where nothing is recorded
/// that could be asked. Engines whose background drifts (`load`) count as able to.
pub fn alone(setup: &Setup) -> f64 {
    let Source::Trace(recorded) = &setup.source else { return 1.0 };
    let shots = &recorded.shots;
    let mut kinds: Vec<EngineSpec> = Vec::new();
    for site in &setup.sites {
        if !kinds.contains(&site.spec) {
            kinds.push(site.spec);
        }
    }
    let way_s = setup.network.as_secs_f64() * 2.0;
    let goal = Goal { ttft_s: setup.goal.ttft_s - way_s, ..setup.goal };
    let mut known: HashMap<(u32, u32), bool> = HashMap::new();
    let good = shots.iter().filter(|s| {
        let lengths = (s.prompt_tokens, s.output_tokens.max(1));
        *known.entry(lengths).or_insert_with(|| kinds.iter().any(|kind| meets(kind, lengths, goal)))
    });
    good.count() as f64 / shots.len().max(1) as f64
}

/// Whether an idle engine meets the goal.
fn meets(kind: &EngineSpec, (prompt_tokens, output_tokens): (u32, u32), goal: Goal) -> bool {
    if matches!(kind, EngineSpec::Load(_)) {
        return true;
    }
    let mut engine = kind.build(1, 1.0, Detail::FirstAndDone);
    let request = EngineRequest { prompt_tokens, cached_tokens: 0, query: None, output_tokens, stream: true };
    if matches!(engine.arrive(Instant::ORIGIN, &request), Admission::Rejected(_)) {
        return false;
    }
    let (mut out, mut first_s) = (Vec::new(), None);
    while let Some(at) = engine.next_event_at() {
        engine.advance(at, &mut out);
        for emission in out.drain(..) {
            let now_s = emission.at.as_secs_f64();
            let started_s = *first_s.get_or_insert(now_s);
            if let Emitted::Done { tokens } = emission.what {
                let gaps = f64::from(tokens.saturating_sub(1).max(1));
                return started_s <= goal.ttft_s && (now_s - started_s) / gaps <= goal.interval_s;
            }
        }
    }
    false
}
