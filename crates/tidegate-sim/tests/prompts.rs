//! Prompts that begin alike: what engines have in memory, and what gateways remember of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first thing that is not as it should be")]

use std::fmt::Write as _;
use std::num::NonZeroUsize;

use tidegate_sim::batch::{Seeds, run};
use tidegate_sim::report::{Report, report, report_json};
use tidegate_sim::scenario::Scenario;

/// Sixty conversations of four turns each, one after the other, each with eight blocks that only it has and one that is new, six requests at each whole second.
fn conversations() -> String {
    let mut text = "t_ms,input_tokens,output_tokens,block512_ids\n".to_owned();
    for k in 0..240 {
        let own = k % 60 * 8;
        writeln!(text, "{},4608,20,{}-{} {}", k / 6 * 1000, own, own + 7, 1000 + k).unwrap();
    }
    text
}

fn play(pool: &str, trace: &str) -> Report {
    let text = format!(
        "fleet: [{{ name: a, count: 4, llm: {{ preset: a100-8b }} }}]\nworkload: {{ stream: true, trace: {{ file: t.csv{trace} }} }}\npool: {{ {pool} }}\nseeds: 2\n\
         policies: [{{ policy: adaptive }}, {{ policy: prefix_affinity }}, {{ policy: least_connections }}]\n"
    );
    let (scenario, warnings) = Scenario::parse(&text, "test.yaml", &|_| None).unwrap();
    assert!(warnings.is_empty());
    let (cells, rows) = (scenario.cells(&|_| Ok(conversations())).unwrap(), scenario.rows());
    let runs = run(&cells, &rows, Seeds { first: 1, count: 2 }, NonZeroUsize::MIN, &mut |_, _| {});
    report(&cells[0], &rows, &runs[0])
}

#[test]
fn gateways_remember_which_engine_has_the_beginning_of_a_prompt_unless_they_are_not_to() {
    let (with, without) = (play("", ""), play("prefix_cache: off", ""));
    let hits = |r: &Report| r.lines.iter().map(|l| l.prompt_hits.unwrap()).collect::<Vec<_>>();
    let (known, blind) = (hits(&with), hits(&without));
    for policy in 0..2 {
        assert!(known[policy] > 0.6, "{known:?}");
        assert!(blind[policy] < known[policy] - 0.2, "{blind:?} {known:?}");
    }
    assert_eq!(known[2].to_bits(), blind[2].to_bits(), "least_connections does not go by it");
    assert!(with.lines[0].ttft_s < without.lines[0].ttft_s);
    let json = report_json("test", 1, std::slice::from_ref(&with));
    assert!(with.keeps_prompts() && json["policies"][0]["prompt_hit_rate"].as_f64() > Some(0.6), "{json}");
    let small = hits(&play("prefix_cache: { tokens: 5000 }", ""));
    assert!(small[1] < known[1], "a gateway that takes engines for small expects less: {small:?}");
}

#[test]
fn times_that_were_rounded_down_are_spread() {
    let (bunched, spread) = (play("", ""), play("", ", spread: 1s"));
    assert!(
        spread.lines[2].ttft_s < bunched.lines[2].ttft_s,
        "those of one instant wait for each other: {:?} {:?}",
        spread.lines[2].ttft_s,
        bunched.lines[2].ttft_s
    );
    assert_eq!(spread.lines[2].requests, bunched.lines[2].requests);
}
