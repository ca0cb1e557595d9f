//! `tidegate sim --trace` on traces of every kind, and on those that cannot be played.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first thing that is not as it should be")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn scratch(name: &str, content: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `sim` on a trace, on two engines of 100 ms, one at a time.
fn on_two(name: &str, trace: &str, more: &[&str]) -> Output {
    let trace = scratch(name, trace);
    let fleet = "fleet: [{ count: 2, fixed: { delay: 100ms, slots: 1 } }]\npolicies: [{ policy: adaptive }]\n";
    let fleet = scratch(&format!("{name}.yaml"), fleet);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["sim", "--trace"]).arg(trace).arg("--fleet").arg(fleet).args(more).output().unwrap()
}

const JOURNAL: &str = r#"{"tidegate":"0.1.0","pool":"chat","seed":1,"checked":false}
{"t":5000000000,"admit":{"prompt":700,"tenant":[77,1.0,0,900.0],"prefix":[[11,22],256],"sent":[[0,1],0,"adaptive","price"]}}
{"t":5600000000,"first_byte":[0,1]}
{"t":6000000000,"settled":{"key":[0,1],"verdict":"success","tokens":31,"cached":0}}
{"t":7000000000,"admit":{"prompt":800,"sent":[[0,2],0,"adaptive","price"]}}
"#;

#[test]
fn a_journal_is_told_by_its_content_and_what_it_lacks_is_said() {
    let out = on_two("sim-journal.txt", JOURNAL, &[]);
    let shown = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(
        shown.starts_with("journal of pool chat: 2 requests of 2 tenants; which models were asked for is left out"),
        "{shown}"
    );
    assert!(
        shown.contains("1 requests have no whole answer in it; their answers are taken to be of 31 tokens"),
        "{shown}"
    );
    let json: Value = serde_json::from_slice(&on_two("sim-journal.txt", JOURNAL, &["--json"]).stdout).unwrap();
    assert_eq!((&json["policies"][0]["requests"], json["notes"].as_array().unwrap().len()), (&2.into(), 2));
    let broken = on_two("sim-journal-broken.txt", &format!("{JOURNAL}{{\"t\":1}}x\n"), &[]);
    assert_eq!(broken.status.code(), Some(2));
    assert!(
        text(&broken.stderr).contains("sim-journal-broken.txt: line 6: no input of a journal"),
        "{}",
        text(&broken.stderr)
    );
}

#[test]
fn a_trace_of_centuries_is_refused_at_once() {
    let years = "t_ms,input_tokens,output_tokens\n0,1,1\n500,1,1\n1000000000000,1,1\n";
    for (more, days) in [(&[][..], "11574.1 days"), (&["--speed", "0.5"], "23148.1 days")] {
        let out = on_two("years.csv", years, more);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(days) && said.contains("31.0 days") && said.contains("before request 3"), "{said}");
    }
    assert!(on_two("years.csv", years, &["--speed", "10000"]).status.success(), "a day or two");
}

#[test]
fn a_load_needs_requests_enough_for_a_rate() {
    let one = "t_ms,input_tokens,output_tokens\n5,1,1\n";
    let out = on_two("one.csv", one, &["--load", "50%"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("there is 1 request, too few for a rate"), "{}", text(&out.stderr));
    assert!(on_two("one.csv", one, &[]).status.success());
    let at_once = "t_ms,input_tokens,output_tokens\n5,1,1\n5,1,1\n";
    let out = on_two("at-once.csv", at_once, &["--load", "50%"]);
    assert!(text(&out.stderr).contains("are 2 requests, all at one instant"), "{}", text(&out.stderr));
}

#[test]
fn what_rests_on_made_up_requests_says_so_first() {
    let run = |more: &[&str]| {
        let scenario = "fleet: [{ llm: { preset: h100-8b } }]\nseeds: 1\npolicies: [{ policy: adaptive }]\n\
             workload: { stream: true, trace: { file: nowhere.csv, stand_in: conversation, length: 1m } }\n";
        let path = scratch("stand-in.yaml", scenario);
        let out = Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("sim").arg(path).args(more).output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout)
    };
    assert!(run(&[]).starts_with("SYNTHETIC: nowhere.csv is not here"));
    let json: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    assert!(json["notes"][0].as_str().unwrap().starts_with("SYNTHETIC"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-in-report");
    run(&["--report", folder.to_str().unwrap()]);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(read("report.html").contains("<p class=note>SYNTHETIC") && read("report.md").contains("> SYNTHETIC"));
    let study = "study:\n  routing:\n    only: \"adaptive|random\"\n    traces: [{ file: nowhere.csv, length: 1m }]\n    cells: [{ load: 75% }]\n    \
         fleets: [{ name: f, engines: [{ llm: { preset: h100-8b } }] }]\n";
    let path = scratch("stand-in-study.yaml", study);
    let out =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("sim").arg(path).args(["--seeds", "1"]).output().unwrap();
    assert!(text(&out.stdout).starts_with("SYNTHETIC: nowhere.csv"), "{}{}", text(&out.stdout), text(&out.stderr));
}
