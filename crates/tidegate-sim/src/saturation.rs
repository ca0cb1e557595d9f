//! How much a fleet can take: the throughput it has while an ideal router never lets an engine wait for work.
//!
//! Late binding: all requests are there from the start, in the order of the trace, and an engine takes the next one as soon as none
//! waits in it. The rate between the 10th and the 90th hundredth of the completions is the answer, so that filling and draining do not count.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::time::Instant;

use crate::engine::{Admission, Detail, Emitted, Engine, EngineModel as _, EngineRequest};
use crate::kernel::setup::{Shot, Site};

/// Throughput of `sites` on `shots` at saturation, requests per second; 0 if nothing completes.
pub fn saturation(sites: &[Site], shots: &[Shot]) -> f64 {
    let build = |(i, s): (usize, &Site)| s.spec.build(i as u64, 1.0, Detail::FirstAndDone);
    let mut engines: Vec<Engine> = sites.iter().enumerate().map(build).collect();
    let mut next = shots.iter();
    let mut heap: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::new();
    let mut completions: Vec<Instant> = Vec::with_capacity(shots.len());
    let mut out = Vec::new();
    // One round fills every engine; afterwards each asks for more when it moves.
    for (i, engine) in engines.iter_mut().enumerate() {
        fill(engine, Instant::ORIGIN, &mut next);
        heap.extend(engine.next_event_at().map(|at| Reverse((at, i))));
    }
    while let Some(Reverse((now, i))) = heap.pop() {
        let Some(engine) = engines.get_mut(i) else { break };
        engine.advance(now, &mut out);
        completions.extend(out.drain(..).filter(|e| matches!(e.what, Emitted::Done { .. })).map(|e| e.at));
        fill(engine, now, &mut next);
        heap.extend(engine.next_event_at().map(|at| Reverse((at, i))));
    }
    let at = |percent: usize| completions.get(completions.len() * percent / 100).copied().unwrap_or_default();
    let (early, late) = (at(10), at(90));
    let between = completions.len() * 90 / 100 - completions.len() * 10 / 100;
    let span_s = late.secs_since(early);
    if span_s > 0.0 { between as f64 / span_s } else { 0.0 }
}

/// Gives an engine requests until one waits in it, or, where nothing ever waits, as many as count as full.
fn fill<'s>(engine: &mut Engine, now: Instant, next: &mut impl Iterator<Item = &'s Shot>) {
    loop {
        let status = engine.status_at(now);
        if status.waiting > 0 || (status.load >= 1.0 && status.running > 0) {
            return;
        }
        let Some(shot) = next.next() else { return };
        let request = EngineRequest {
            prompt_tokens: shot.prompt_tokens,
            cached_tokens: 0,
            query: None,
            output_tokens: shot.output_tokens.max(1),
            stream: true,
        };
        if matches!(engine.arrive(now, &request), Admission::Rejected(_)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineSpec;
    use crate::engine::fixed::FixedParams;
    use std::time::Duration;

    #[test]
    fn two_engines_with_two_slots_of_half_a_second_serve_eight_a_second() {
        let spec = EngineSpec::Fixed(FixedParams { delay_s: 0.5, slots: Some(2), ..FixedParams::default() });
        let site = |n: &str| Site::new(n, spec);
        let shot =
            Shot { at: Duration::ZERO, prompt_tokens: 1, output_tokens: 1, client: 0, key: None, prompt: (0, 0) };
        let rps = saturation(&[site("a"), site("b")], &vec![shot; 4000]);
        assert!((rps - 8.0).abs() < 0.05, "{rps}");
    }
}
