//! `study: { routing: ... }` on stand-ins: every rule runs, the same on any number of threads, and what is left on is not beaten by what
//! knows less.
#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it should be")]

use std::num::NonZeroUsize;

use serde_json::Value;
use tidegate_sim::batch::{Seeds, run};
use tidegate_sim::scenario::{Scenario, Unread};

const STUDY: &str = "
study:
  routing:
    traces: [{ file: conversation.csv, length: 4m }]
    fleets:
      - name: mixed
        engines: [{ name: h100, count: 2, llm: { preset: h100-8b } }, { name: half, count: 3, llm: { preset: half-a100 } }]
    cells: [{ load: 75% }, { load: 75%, replicas: 4 }]
";

fn rows(more: &str, threads: usize) -> Vec<Value> {
    let (scenario, _) = Scenario::parse(&format!("{STUDY}{more}"), "routing", &|_| None).unwrap();
    let study = scenario.study.as_ref().and_then(|s| s.routing()).unwrap();
    let absent = |file: &str| Err(Unread::Absent(file.to_owned()));
    let threads = NonZeroUsize::new(threads).unwrap();
    let answer = study.run(&absent, Seeds { first: 1, count: 1 }, threads, &mut |_, _, _| {}).unwrap();
    assert!(
        answer.notes.len() == 1 && answer.notes[0].starts_with("SYNTHETIC: conversation.csv"),
        "{:?}",
        answer.notes
    );
    let json = answer.grids[0].json();
    json["rows"].as_array().unwrap().clone()
}

fn all(rows: &[Value], policy: &str) -> f64 {
    rows.iter().find(|r| r["policy"] == policy).unwrap()["all"].as_f64().unwrap()
}

#[test]
fn what_is_left_on_is_first_and_threads_change_nothing() {
    let one = rows("", 1);
    assert_eq!(one, rows("", 2));
    assert_eq!(one.len(), 15, "nine of ours, six of others");
    let ours = all(&one, "adaptive");
    for row in &one {
        let (policy, all) = (row["policy"].as_str().unwrap(), row["all"].as_f64().unwrap());
        assert!(policy == "least_work" || ours <= all, "{policy}: {all} against {ours}");
    }
}

#[test]
fn pages_that_lie_cost_little() {
    // gateways.md 3 and 9: a load that is missing, or old, must not become a choice at random or a herd.
    for more in
        ["    lie: frozen\n", "    lie: zero\n", "    lie: missing\n", "    every: 5s\n", "    queued_tokens: false\n"]
    {
        let rows = rows(&format!("{more}    only: \"adaptive|least_connections|least_work\"\n"), 2);
        for policy in ["adaptive", "least_work"] {
            let (ours, plain) = (all(&rows, policy), all(&rows, "least_connections"));
            assert!(ours <= plain * 1.05, "{more}: {policy} {ours} against {plain}");
        }
    }
}

/// Sixty long prompts on engines that nobody has an answer of, after a short one that was answered at once.
#[test]
fn one_short_answer_does_not_make_its_engine_the_favourite_of_a_cold_burst() {
    let mut text = String::from("t_ms,input_tokens,output_tokens\n0,50,20\n1,3000,20\n1,3000,20\n1,3000,20\n");
    (16..76).for_each(|t| text.push_str(&format!("{t},1500,100\n")));
    let scenario = "fleet: [{ name: a, count: 4, llm: { preset: a100-8b } }]
workload: { stream: true, trace: { file: burst.csv } }
policies: [{ policy: least_connections }, { policy: adaptive }, { policy: least_work }]
";
    let (scenario, _) = Scenario::parse(scenario, "burst", &|_| None).unwrap();
    let (cells, rows) = (scenario.cells(&|_: &str| Ok(text.clone())).unwrap(), scenario.rows());
    let runs = run(&cells, &rows, Seeds { first: 1, count: 4 }, NonZeroUsize::MIN, |_, _| {});
    let ttft = |row: usize| runs[0][row].ttft.mean_s().unwrap();
    for row in [1, 2] {
        assert!(ttft(row) < 1.1 * ttft(0), "{}: {} against {}", rows[row].label, ttft(row), ttft(0));
    }
}
