//! Fleets that change while they serve: by plan and by autoscalers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first thing that is not as it should be")]

use std::num::NonZeroUsize;

use tidegate_sim::Scenario;
use tidegate_sim::Tally;
use tidegate_sim::batch::{Seeds, run};
use tidegate_sim::report::{report, report_json};
use tidegate_sim::scenario::Unread;

fn absent(file: &str) -> Result<String, Unread> {
    Err(Unread::Absent(file.to_owned()))
}

fn tallies(text: &str, seed: u64) -> Vec<Tally> {
    let (scenario, warnings) = Scenario::parse(text, "s.yaml", &|_| None).unwrap_or_else(|p| panic!("{}", p[0]));
    assert!(warnings.is_empty(), "{}", warnings[0]);
    let cells = scenario.cells(&absent).unwrap();
    scenario.rows().iter().map(|row| row.kernel(&cells[0].setup, seed).run()).collect()
}

const OPEN: &str =
    "duration: 100s\nworkload: { arrivals: { rate: 10, process: constant } }\npolicies: [{ policy: round_robin }]\n";

#[test]
fn an_endpoint_joins_after_its_cold_start_and_leaves_when_it_has_ended_what_it_had() {
    let fleet = "fleet: [{ name: e, count: 2, fixed: { delay: 2s }, cold_start: { min: 20s } }]\n\
                 pool: { breaker: off }\nchanges: [{ endpoint: e-2, at: 10s, change: join }, { endpoint: e-2, at: 70.5s, change: leave }]\n";
    let t = &tallies(&format!("{OPEN}{fleet}"), 1)[0];
    assert_eq!((t.requests, t.succeeded, t.shed, t.retries), (999, 999, 0, 0), "nothing is lost");
    // Half of what came from second 30 on, but for a quarter of that in the first half minute of its warm-up, and half of it from then on.
    assert!((60..=110).contains(&t.dispatched[1]), "{:?}", t.dispatched);
    // All of the first one's, and from 10 s to the end of what the second had at 70.5 s, two seconds later at most.
    let until = t.ended.as_secs_f64();
    let second = t.fleet.endpoint_s - until;
    assert!((second - 62.4).abs() < 0.2, "{second}");
    assert_eq!((t.fleet.starts, t.fleet.most, t.fleet.lost_in_change), (1, 2, 0));
}

/// The warm-up of a pool is that of a gateway: without it a new endpoint has its whole share at once, half of ten a second for a minute.
#[test]
fn a_warm_up_is_as_the_pool_says() {
    let shares = |warm_up: &str| {
        let fleet = format!(
            "fleet: [{{ name: e, count: 2, fixed: {{ delay: 100ms }} }}]\npool: {{ breaker: off{warm_up} }}\nchanges: [{{ endpoint: e-2, at: 40s, change: join }}]\n"
        );
        tallies(&format!("{OPEN}{fleet}"), 1)[0].dispatched[1]
    };
    let (steps, off) = (shares(""), shares(", warm_up: off"));
    assert!((295..=305).contains(&off), "{off}");
    assert!(steps < 200, "a quarter for half a minute, then a half: {steps}");
    assert_eq!(off, shares(", warm_up: { steps: [{ at: 0s, share: 1 }] }"));
}

#[test]
fn an_engine_whose_time_is_up_breaks_off_what_it_has() {
    let fleet = |grace: &str| {
        format!(
            "{OPEN}fleet: [{{ name: e, count: 2, fixed: {{ delay: 4s }}, grace: {grace} }}]\npool: {{ breaker: off, max_attempts: 1 }}\n\
             changes: [{{ endpoint: e-2, at: 50s, change: leave }}]\n"
        )
    };
    let kept = &tallies(&fleet("any"), 1)[0];
    assert_eq!(kept.succeeded, kept.requests);
    let cut = &tallies(&fleet("1s"), 1)[0];
    // Twenty were there, five of them ended within the second.
    let lost = cut.requests - cut.succeeded;
    assert!((13..=17).contains(&lost) && cut.fleet.lost_in_change == lost, "{lost} {:?}", cut.fleet);
}

#[test]
fn checks_see_a_cold_start_and_no_request_goes_there_before() {
    // Three of four start: fewer than half pass, and yet nobody is sent to those that never served.
    let fleet = "checks: 1s\nfleet: [{ name: e, count: 4, fixed: { delay: 100ms }, cold_start: { min: 15s, max: 30s } }]\npool: { breaker: off }\n\
                 changes: [{ endpoint: e-2, at: 10s, change: join }, { endpoint: e-3, at: 10s, change: join }, { endpoint: e-4, at: 10s, change: join }]\n";
    let t = &tallies(&format!("{OPEN}{fleet}"), 1)[0];
    assert_eq!((t.succeeded, t.retries), (t.requests, 0), "{:?}", t.dispatched);
    assert!(t.dispatched.iter().all(|n| *n > 50), "{:?}", t.dispatched);
}

#[test]
fn an_endpoint_that_comes_back_has_an_empty_cache() {
    let lines: String = (0..40).map(|i| format!("{},1024,1,0-1\n", 1000 * i)).collect();
    let text = format!("t_ms,input_tokens,output_tokens,block512_ids\n{lines}");
    let hits = |changes: &str| {
        let scenario = format!(
            "fleet: [{{ name: e, count: 2, llm: {{}} }}]\nworkload: {{ stream: true, trace: {{ file: t.csv }} }}\n\
             policies: [{{ policy: round_robin }}]\n{changes}"
        );
        let (scenario, _) = Scenario::parse(&scenario, "s.yaml", &|_| None).unwrap();
        let cells = scenario.cells(&|_: &str| Ok(text.clone())).unwrap();
        let t = scenario.rows()[0].kernel(&cells[0].setup, 1).run();
        assert_eq!(t.succeeded, 40);
        t.cached_tokens
    };
    // Every first request of an engine finds nothing; the last token is computed always.
    assert_eq!(hits(""), 38 * 1023);
    let changes =
        "changes: [{ endpoint: e-2, at: 10.5s, change: leave }, { endpoint: e-2, at: 20.5s, change: join }]\n";
    assert_eq!(hits(changes), 37 * 1023);
}

/// A trace's own keys: equal ones go to one engine by `consistent_hash`, and are found there.
#[test]
fn keys_of_a_trace_are_hashed_by_and_found_again() {
    let lines: String =
        (0..200).map(|k| format!("{},{},1,1\n", k * 20, ["red", "green", "blue", "grey"][k % 4])).collect();
    let text = format!("t_ms,key,input_tokens,output_tokens\n{lines}");
    let scenario = "fleet: [{ name: e, count: 4, vector: { cache: 100, threads: 8 } }]\nworkload: { trace: { file: t.csv } }\n\
                    policies: [{ policy: { name: consistent_hash, key: { body: query } } }, { policy: round_robin }, { policy: random }]\n";
    let (scenario, warnings) = Scenario::parse(scenario, "s.yaml", &|_| None).unwrap();
    assert!(warnings.is_empty(), "a trace may say what is searched for: {}", warnings[0]);
    let cells = scenario.cells(&|_: &str| Ok(text.clone())).unwrap();
    let found: Vec<(u64, u64)> = scenario
        .rows()
        .iter()
        .map(|row| row.kernel(&cells[0].setup, 1).run())
        .map(|t| (t.queries, t.query_hits))
        .collect();
    assert_eq!(found[0], (200, 196), "each is computed once");
    assert_eq!(found[1], (200, 196), "four in turn are by chance the same");
    assert!(found[2].1 < 190, "anywhere: {found:?}");
}

/// Requests of a second, five a second at first, thirty from second 60 to 180: at four in flight each, two engines and then eight.
const SURGE: &str = "duration: 400s
seeds: 2
workload:
  tenants:
    - { name: t, arrivals: { rate: 5 }, burst: { at: 60s, for: 120s, factor: 6 } }
fleet:
  - name: e
    count: 2
    fixed: { delay: 1s, slots: 8 }
    cold_start: { min: 15s, max: 30s }
    autoscale: { in_flight: 4, max: 12, settle: 60s }
pool: { breaker: off }
policies: [{ policy: least_connections }, { policy: adaptive }]
";

#[test]
fn an_autoscaler_follows_a_surge_and_loses_nothing_on_the_way_back() {
    for t in tallies(SURGE, 1) {
        assert_eq!((t.succeeded, t.shed), (t.requests, 0));
        assert!((8..=12).contains(&t.fleet.most), "{:?}", t.fleet);
        let mean = t.fleet.endpoint_s / t.ended.as_secs_f64();
        assert!((3.0..8.0).contains(&mean), "fewer before and after: {mean}");
        assert!(t.fleet.starts >= 6, "{:?}", t.fleet);
    }
    let idle = SURGE.replace("factor: 6", "factor: 1").replace("rate: 5", "rate: 1");
    for t in tallies(&idle, 1) {
        assert_eq!((t.fleet.most, t.fleet.starts, t.fleet.never), (2, 0, 10), "one is enough");
        assert!(t.imbalance() <= 2.0, "of the two that were there: {}", t.imbalance());
        assert!(t.fleet.endpoint_s < 1.3 * t.ended.as_secs_f64(), "and one stays: {:?}", t.fleet);
    }
}

#[test]
fn every_metric_scales_and_the_report_says_what_it_cost() {
    for (metric, engine, workload) in [
        ("queue: 2", "fixed: { delay: 1s, slots: 2 }", "arrivals: { rate: 8 }"),
        (
            "kv_usage: 2%",
            "llm: { preset: half-a100 }",
            "stream: true, arrivals: { rate: 8 }, prompt_tokens: 2000, output_tokens: 200",
        ),
        (
            "slo: 95%",
            "llm: { preset: half-a100 }",
            "stream: true, arrivals: { rate: 8 }, prompt_tokens: 2000, output_tokens: 200",
        ),
    ] {
        let text = format!(
            "duration: 200s\nworkload: {{ {workload} }}\nfleet: [{{ name: e, {engine}, cold_start: {{ min: 5s }}, autoscale: {{ {metric}, max: 8 }} }}]\n\
             policies: [{{ policy: adaptive }}]\nreplicas: 2\n"
        );
        let (scenario, _) = Scenario::parse(&text, "s.yaml", &|_| None).unwrap();
        let (cells, rows) = (scenario.cells(&absent).unwrap(), scenario.rows());
        let runs = run(&cells, &rows, Seeds { first: 1, count: 2 }, NonZeroUsize::MIN, |_, _| {});
        let json = report_json("s", 1, &[report(&cells[0], &rows, &runs[0])]);
        let fleet = &json["policies"][0]["fleet"];
        assert!(fleet["most_endpoints"].as_u64().unwrap() > 2, "{metric}: {fleet}");
        let mean = fleet["mean_endpoints"].as_f64().unwrap();
        assert!(mean > 1.0 && mean < 8.0 && fleet["endpoint_s"].as_f64().unwrap() > 200.0, "{metric}: {fleet}");
        assert_eq!((&fleet["failed"], &fleet["shed"]), (&0.into(), &0.into()), "{metric}");
    }
}

#[test]
fn equal_seeds_are_equal_and_cold_starts_differ_between_seeds() {
    let one =
        |seed| tallies(SURGE, seed).iter().map(|t| (t.requests, t.fleet.endpoint_s.to_bits())).collect::<Vec<_>>();
    assert_eq!(one(1), one(1));
    assert_ne!(one(1), one(2));
}

#[test]
fn what_does_not_fit_together_is_said() {
    let problems = |text: &str| match Scenario::parse(text, "s.yaml", &|_| None) {
        Ok((scenario, warnings)) => match scenario.cells(&absent) {
            Ok(_) => warnings.iter().map(ToString::to_string).collect(),
            Err(why) => why,
        },
        Err(problems) => problems.iter().map(ToString::to_string).collect::<String>(),
    };
    let head = "workload: { arrivals: { rate: 1 } }\nfleet:\n  - { name: e, fixed: { delay: 1s }";
    for (rest, part) in [
        (", autoscale: { max: 4 } }\n", "no metric"),
        (", autoscale: { in_flight: 2, queue: 1, max: 4 } }\n", "more than one metric"),
        (", autoscale: { in_flight: 2, max: 4, min: 2 } }\n", "count from min to max"),
        (", autoscale: { in_flight: 2, max: 1, min: 2 } }\n", "max at least min"),
        (", autoscale: { slo: 90%, max: 4 } }\n", "stream: true"),
        (", cold_start: { min: 5s, max: 1s } }\n", "max at least min"),
        (", cold_start: { min: 5s } }\n", "no engine starts or leaves"),
        (" }\n  - { name: v, vector: { cache: 10 } }\n", "no workload says what is searched for"),
        (
            ", autoscale: { in_flight: 2, max: 4 } }\nchanges: [{ endpoint: e-9, at: 1s, change: leave }]\n",
            "did you mean `e-",
        ),
        (", autoscale: { in_flight: 2, max: 4 } }\nchanges: [{ endpoint: e-1, at: 1s, change: leave }]\n", "not both"),
        (
            " }\nchanges: [{ endpoint: e, at: 1s, change: leave }, { endpoint: e, at: 2s, change: leave }]\n",
            "e leaves at 1 s and again at 2 s",
        ),
    ] {
        let said = problems(&format!("{head}{rest}"));
        assert!(said.contains(part), "{rest}: {said}");
    }
}
