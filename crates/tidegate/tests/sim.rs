//! `tidegate sim` as users run it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first thing that is not as it should be")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn sim(args: &[&str]) -> Output {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("sim").args(args).current_dir(root).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn scratch(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn the_same_seeds_give_the_same_bytes_on_any_number_of_threads() {
    let args = ["scenarios/two-servers.yaml", "--seeds", "3", "--seed-start", "7", "--json", "--threads"];
    let run = |threads| {
        let out = sim(&[&args[..], &[threads]].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        out.stdout
    };
    let one = run("1");
    assert!(one == run("2") && one == run("1"));
    let json: Value = serde_json::from_slice(&one).unwrap();
    assert_eq!((&json["command"], &json["scenario"]), (&"sim".into(), &"two-servers".into()));
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn rows_and_variants_can_be_picked_and_are_shown_as_a_table() {
    let out = sim(&[
        "scenarios/three-servers.yaml",
        "--variant",
        "queue-30",
        "--policy",
        "adaptive",
        "--policy",
        "round_robin",
    ]);
    let shown = text(&out.stdout);
    assert!(out.status.success() && shown.contains("three-servers, queue-30: 8 seeds"), "{shown}");
    for part in ["adaptive", "round_robin", "adaptive minus", "round 1, s", "22.00"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    assert!(!shown.contains("peak_ewma") && !shown.contains("parallel"), "{shown}");
}

#[test]
fn a_user_s_own_trace_and_fleet() {
    let trace: String = (0..200).map(|i| format!("{},{},{}\n", i * 20, 200 + i, 20 + i % 7)).collect();
    let trace = scratch("trace.csv", format!("t_ms,input_tokens,output_tokens\n{trace}"));
    let fleet = scratch(
        "fleet.yaml",
        "fleet: [{ count: 2, llm: { preset: a100-8b } }, { name: h, llm: { preset: h100-8b } }]\n",
    );
    let out = sim(&["--trace", trace.to_str().unwrap(), "--fleet", fleet.to_str().unwrap(), "--load", "50%", "--json"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let row = json["policies"].as_array().unwrap().iter().find(|p| p["name"] == "adaptive").unwrap();
    assert_eq!((row["requests"].as_u64(), row["success"].as_f64()), (Some(200), Some(1.0)));
    assert!(row["mean_ttft_s"].as_f64().unwrap() > 0.0 && json["saturation_rps"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_trace_with_times_since_1970_is_the_same_trace() {
    let fleet = scratch("epoch-fleet.yaml", "fleet: [{ count: 2, fixed: { delay: 100ms, slots: 1 } }]\n");
    let run = |first: u64| {
        let lines: String = (0..100).map(|i| format!("{},100,10\n", first + i * 70)).collect();
        let trace = scratch("epoch.csv", format!("t_ms,input_tokens,output_tokens\n{lines}"));
        let (trace, fleet) = (trace.to_str().unwrap().to_owned(), fleet.to_str().unwrap().to_owned());
        let out = sim(&["--trace", &trace, "--fleet", &fleet, "--load", "60%", "--json", "--policy", "adaptive"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        out.stdout
    };
    assert!(run(0) == run(1_700_000_000_000));
}

#[test]
fn a_trace_that_is_no_text_is_another_thing_than_one_that_is_absent() {
    let fleet = scratch("text-fleet.yaml", "fleet: [{ fixed: { delay: 1s } }]\n");
    let broken = scratch("latin1.csv", b"t_ms,input_tokens,output_tokens\n0,1,1\n5,\xe9,1\n");
    let error = |trace: &str| {
        let out = sim(&["--trace", trace, "--fleet", fleet.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(2));
        text(&out.stderr)
    };
    let said = error(broken.to_str().unwrap());
    assert!(said.contains("latin1.csv: line 3: not UTF-8") && !said.contains("also looked"), "{said}");
    let said = error("nowhere.csv");
    assert!(said.contains("nowhere.csv: no such file (also looked in ../shared/traces)"), "{said}");
}

#[test]
fn shares_are_shown_for_four_endpoints_and_said_to_be_left_out_for_more() {
    let run = |count: u32| {
        let fleet = format!("fleet: [{{ count: {count}, fixed: {{ delay: 10ms }} }}]\n");
        let scenario = scratch(&format!("shares-{count}.yaml"), fleet + "workload: { arrivals: { rate: 20 } }\n");
        let out = sim(&[scenario.to_str().unwrap(), "--seeds", "1", "--policy", "random"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout)
    };
    let four = run(4);
    assert!(four.contains("share %") && !four.contains("not shown"), "{four}");
    let five = run(5);
    assert!(!five.contains("share %") && five.contains("shares of 5 endpoints are not shown"), "{five}");
}

#[test]
fn what_is_wrong_is_said_and_the_exit_code_is_two() {
    let own = scratch("own.yaml", "fleet: [{ fixed: { delay: 1s } }]\nworkload: { arrivals: { rate: 1 } }\n");
    let fleet = scratch("bad.yaml", "fleet: [{ fixed: { delay: 1 parsec } }]\nworkload: { arrivals: { rate: 1 } }\n");
    for (args, part) in [
        (vec!["scenarios/article.yaml", "--policy", "nobody"], "there are least_response_time:plain"),
        (vec!["scenarios/article.yaml", "--variant", "nobody"], "no variant nobody"),
        (vec!["scenarios/nowhere.yaml"], "nowhere.yaml"),
        (vec![fleet.to_str().unwrap()], "fleet[0].fixed.delay"),
        (vec![], "--help"),
        (vec!["scenarios/article.yaml", "--report", "one.csv"], "--report one.csv: a report is a folder"),
        (vec!["scenarios/article.yaml", "--report", "README.md"], "--json"),
        (vec!["--trace", "x.csv", "--fleet", "scenarios/two-servers.yaml", "--report", "Cargo.toml"], "already"),
        (vec!["--trace", "x.csv", "--fleet", own.to_str().unwrap()], "own.yaml:2: `workload` says what is asked"),
    ] {
        let out = sim(&args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(text(&out.stderr).contains(part), "{args:?}: {}", text(&out.stderr));
    }
}

#[test]
fn an_objective_gets_a_policy_and_a_number_of_engines() {
    let trace: String = (0..600).map(|i| format!("{},100,10\n", i * 100)).collect();
    let trace = scratch("slo.csv", format!("t_ms,input_tokens,output_tokens\n{trace}"));
    let policies = "policies: [{ policy: least_connections }, { policy: adaptive }]\n";
    let fleet = format!("fleet: [{{ name: e, count: 3, fixed: {{ delay: 500ms, slots: 1 }} }}]\n{policies}");
    let fleet = scratch("slo-fleet.yaml", fleet);
    let (trace, fleet) = (trace.to_str().unwrap(), fleet.to_str().unwrap());
    let ask = |slo: &str, more: &[&str]| sim(&[&["--trace", trace, "--fleet", fleet, "--slo", slo], more].concat());
    let out = ask("ttft=600ms", &["--json"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    // Ten requests a second, two a second each: five engines, of which three are given.
    assert_eq!((&json["smallest"]["engines"], &json["given"]["engines"]), (&5.into(), &3.into()));
    assert_eq!((&json["smallest"]["fleet"], &json["slo"]["target"]), (&"5 e".into(), &0.99.into()));
    assert!(json["given"]["policies"][0]["within"].as_f64().unwrap() < 0.5);
    let shown = text(&ask("ttft=600ms", &[]).stdout);
    assert!(shown.contains("5 engines (5 e) reach 99 %"), "{shown}");
    // Everybody is within an hour, and the one with the shorter times is named.
    let shown = text(&ask("ttft=1h", &[]).stdout);
    assert!(
        shown.contains(
            "it is a tie: 100.00 % within this objective under adaptive, and as many under least_connections"
        ),
        "{shown}"
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("slo-report");
    let out = ask("ttft=600ms", &["--report", folder.to_str().unwrap()]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    for page in ["report.html", "report.md"] {
        let page = std::fs::read_to_string(folder.join(page)).unwrap();
        assert!(page.contains("first token within 0.6 s") && page.contains("5 engines (5 e) reach 99 %"), "{page}");
    }
    let out = ask("ttft=10ms", &[]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("No number of engines reaches 99 %"), "{}", text(&out.stdout));
    let out = ask("tftt=10ms", &[]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("ttft"), "{}", text(&out.stderr));
}
