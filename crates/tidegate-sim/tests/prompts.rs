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
    play_text(&conversations(), "", pool, trace)
}

fn play_text(requests: &str, probes: &str, pool: &str, trace: &str) -> Report {
    let text = format!(
        "fleet: [{{ name: a, count: 4, llm: {{ preset: a100-8b }} }}]\nworkload: {{ stream: true, trace: {{ file: t.csv{trace} }} }}\npool: {{ {pool} }}\nseeds: 2\n{probes}\
         policies: [{{ policy: adaptive }}, {{ policy: prefix_affinity }}, {{ policy: least_connections }}]\n"
    );
    let (scenario, warnings) = Scenario::parse(&text, "test.yaml", &|_| None).unwrap();
    assert!(warnings.is_empty());
    let (cells, rows) = (scenario.cells(&|_| Ok(requests.to_owned())).unwrap(), scenario.rows());
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

/// Twenty requests a second that begin with the same sixteen blocks, and answers of which every fifth is long.
fn same_beginning() -> String {
    let mut text = "t_ms,input_tokens,output_tokens,block512_ids\n".to_owned();
    for k in 0..800 {
        let output = if k % 5 == 0 { 1500 } else { 100 };
        writeln!(text, "{},8500,{output},0-15 {}", k * 50, 1000 + k).unwrap();
    }
    text
}

#[test]
fn what_all_begin_with_does_not_send_all_to_the_engine_that_has_it() {
    let r = play_text(&same_beginning(), "", "", "");
    let (ours, counts) = (&r.lines[0], &r.lines[2]);
    assert!(ours.imbalance < 1.2, "{:?}", ours.shares);
    assert!(ours.ttft_s.unwrap() < 1.3 * counts.ttft_s.unwrap(), "{:?} {:?}", ours.ttft_s, counts.ttft_s);
    assert!(ours.prompt_hits > Some(0.8), "and it is cached all the same: {:?}", ours.prompt_hits);
}

#[test]
fn where_engines_tell_of_memory_a_limit_on_their_load_does_not_change_what_adaptive_goes_by() {
    // Lengths that differ by far: what an answer takes hangs on its length, which a load explains by accident.
    let mut text = "t_ms,input_tokens,output_tokens\n".to_owned();
    for k in 0..600u32 {
        let (input, output) = (200 + k * 7919 % 3000, 50 + k * 104_729 % 600);
        writeln!(text, "{},{input},{output}", k * 50).unwrap();
    }
    let with = play_text(&text, "probes: { interval: 1s }\n", "", "");
    let without = play_text(&text, "probes: { interval: 1s, max_load: off }\n", "", "");
    let times = with.lines[0].ttft_s.unwrap() / without.lines[0].ttft_s.unwrap();
    assert!(times < 1.05, "before the first page, loads are all there is: {times}");
    assert!(with.lines[0].ttft_s < with.lines[2].ttft_s, "{:?} {:?}", with.lines[0].ttft_s, with.lines[2].ttft_s);
}
