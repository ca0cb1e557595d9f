//! How many engines an objective needs, where the answer is known.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first thing that is not as it should be")]

use std::num::NonZeroUsize;

use tidegate_sim::Scenario;
use tidegate_sim::batch::Seeds;
use tidegate_sim::scenario::Unread;
use tidegate_sim::sizing::{Sizing, Slo, size};

/// A request every 100 ms for a minute: an engine that serves one at a time, half a second each, takes two a second.
fn ten_a_second() -> String {
    let lines: String = (0..600).map(|i| format!("{},100,10\n", i * 100)).collect();
    format!("t_ms,input_tokens,output_tokens\n{lines}")
}

fn sized(fleet: &str, policies: &str, slo: &str) -> Sizing {
    let text = format!("fleet: {fleet}\nworkload: {{ stream: true, trace: {{ file: t }} }}\npolicies: {policies}\n");
    let (scenario, _) = Scenario::parse(&text, "s.yaml", &|_| None).unwrap();
    let trace = ten_a_second();
    let read = |_: &str| -> Result<String, Unread> { Ok(trace.clone()) };
    let cells = scenario.cells(&read).unwrap();
    let seeds = Seeds { first: 1, count: 1 };
    let threads = NonZeroUsize::MIN;
    size(&scenario, &cells[0], &scenario.rows(), seeds, threads, Slo::parse(slo).unwrap(), &mut |_, _| {})
}

const ONE_AT_A_TIME: &str = "[{ name: e, fixed: { delay: 500ms, slots: 1 } }]";

#[test]
fn five_engines_serve_what_four_cannot_whatever_was_given() {
    for given in [1, 3, 5, 12] {
        let fleet = format!("[{{ name: e, count: {given}, fixed: {{ delay: 500ms, slots: 1 }} }}]");
        let sizing = sized(&fleet, "[{ policy: least_connections }, { policy: adaptive }]", "ttft=600ms");
        let (best, adaptive) = (sizing.best.unwrap(), sizing.adaptive.unwrap());
        assert_eq!(best.engines, 5, "{:?}", sizing.tried);
        assert!(best.within >= 0.99 && adaptive.within >= 0.99 && adaptive.engines >= 5, "{adaptive:?}");
        let too_few = sizing.tried[&4].iter().fold(0.0f64, |m, s| m.max(s.within));
        assert!(too_few < 0.99, "one engine less was tried, and is not enough: {too_few}");
    }
}

#[test]
fn kinds_stay_in_proportion() {
    let fleet = "[{ name: fast, count: 2, fixed: { delay: 250ms, slots: 1 } }, { name: slow, fixed: { delay: 500ms, slots: 1 } }]";
    let sizing = sized(fleet, "[{ policy: adaptive }]", "ttft=1s,target=95%");
    // 2 fast and 1 slow take ten a second, exactly what comes.
    let found = sizing.best.unwrap();
    assert!((3..=4).contains(&found.engines), "{found:?}");
    assert_eq!(sizing.best, sizing.adaptive);
}

#[test]
fn what_no_engine_can_do_alone_is_not_searched_for() {
    let sizing = sized(ONE_AT_A_TIME, "[{ policy: adaptive }]", "ttft=10ms");
    assert_eq!((sizing.reachable, sizing.best, sizing.tried.len()), (0.0, None, 1));
    let sizing = sized(ONE_AT_A_TIME, "[{ policy: random }]", "ttft=2s,tpot=100ms");
    assert!(sizing.reachable == 1.0 && sizing.best.is_some() && sizing.adaptive.is_none());
}

#[test]
fn of_policies_with_the_same_share_the_fastest_is_taken() {
    // All are within it, whoever chooses and however few engines there are; what differs is the time.
    let fleet =
        "[{ name: fast, fixed: { delay: 150ms, slots: 1 } }, { name: slow, fixed: { delay: 600ms, slots: 1 } }]";
    let sizing = sized(
        fleet,
        "[{ policy: round_robin }, { policy: least_connections }, { policy: adaptive }]",
        "ttft=1000s,target=100%",
    );
    let ranked = sizing.ranked(1.0);
    assert_eq!(ranked.len(), 3, "all are within it: {:?}", sizing.tried);
    let scores = &sizing.tried[&sizing.given];
    assert_ne!(ranked[0], 0, "the first row is the slowest: {scores:?}");
    assert!(ranked.windows(2).all(|pair| scores[pair[0]].latency_s <= scores[pair[1]].latency_s), "{scores:?}");
}
