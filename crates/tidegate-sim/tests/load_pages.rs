//! A load page is one more thing to know: giving it to `adaptive` must not make it worse than not knowing.
#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it should be")]

use std::num::NonZeroUsize;

use tidegate_sim::batch::{Seeds, run};
use tidegate_sim::report::report;
use tidegate_sim::scenario::{Scenario, Unread};

/// Mean latency of `adaptive` and `least_connections` with these top-level lines, over 4 seeds.
fn latencies(rest: &str) -> (f64, f64) {
    let text = format!("policies: [{{ policy: adaptive }}, {{ policy: least_connections }}]\nduration: 200s\n{rest}");
    let (scenario, _) = Scenario::parse(&text, "test", &|_| None).unwrap();
    let cells = scenario.cells(&|_| Err(Unread::Absent("no traces here".to_owned()))).unwrap();
    let rows = scenario.rows();
    let runs = run(&cells, &rows, Seeds { first: 1, count: 4 }, NonZeroUsize::MIN, |_, _| {});
    let lines = report(&cells[0], &rows, &runs[0]).lines;
    (lines[0].latency_s.mean.unwrap(), lines[1].latency_s.mean.unwrap())
}

const UNEQUAL: &str = "fleet:
  - { name: slow, fixed: { delay: 700ms, slots: 4 } }
  - { name: middle, fixed: { delay: 400ms, slots: 4 } }
  - { name: fast, fixed: { delay: 100ms, slots: 4 } }
workload: { arrivals: { rate: 15 } }
";

#[test]
fn a_stale_load_page_does_not_slow_adaptive_down() {
    let (without, connections) = latencies(UNEQUAL);
    for interval in ["100ms", "1s"] {
        let (with, _) = latencies(&format!("{UNEQUAL}probes: {{ interval: {interval} }}"));
        assert!(
            with < 1.35 * without && with < 0.6 * connections,
            "{interval}: {with} against {without}, {connections}"
        );
    }
}

#[test]
fn an_engine_that_hangs_while_its_page_says_idle_is_left_alone() {
    let hang = "faults: [{ endpoint: fast, at: 60s, kind: no_progress, for: 40s }]\nprobes: { interval: 500ms }\n";
    let (ours, connections) = latencies(&format!("{UNEQUAL}{hang}"));
    assert!(ours < 1.2 * connections, "{ours} against {connections}");
}
