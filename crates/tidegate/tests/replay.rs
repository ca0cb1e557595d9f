//! A live run is recorded, and every decision of it comes out the same again.
#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tidegate::engine::{self, RunningEngine};
use tidegate::load::{Lengths, Pattern, Plan, Progress, run_plan};
use tidegate_proxy::Gateway;
use tidegate_sim::engine::EngineSpec;
use tidegate_sim::engine::fixed::FixedParams;
use tidegate_sim::fault::{Fault, FaultKind};
use tidegate_sim::workload::{Arrivals, Trace, TraceRequest};
use tidegate_telemetry::{Telemetry, replay};

const POLICIES: [&str; 7] = [
    "random",
    "weighted_round_robin",
    "least_connections",
    "{ name: consistent_hash, key: { header: x-key }, bounded_load: 1.25 }",
    "peak_ewma",
    "hybrid",
    "adaptive",
];

fn engines() -> Vec<RunningEngine> {
    let start = |(k, delay_s): (usize, f64)| {
        let spec = EngineSpec::Fixed(FixedParams { delay_s, slots: Some(4), ..FixedParams::default() });
        engine::spawn(engine::Config::new(&format!("e{k}"), spec)).unwrap()
    };
    [0.07, 0.04, 0.01].into_iter().enumerate().map(start).collect()
}

fn config(engines: &[RunningEngine], folder: &Path) -> tidegate_config::Config {
    let urls: Vec<String> = engines.iter().map(|e| format!("{{ url: '{}', max_in_flight: 6 }}", e.url())).collect();
    let mut text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\nadmin: off\nthreads: 2\njournal: {{ folder: '{}' }}\nroutes:\n",
        folder.display()
    );
    for k in 0..POLICIES.len() {
        text += &format!("  - {{ match: {{ headers: {{ x-pool: p{k} }} }}, pool: p{k} }}\n");
    }
    text += "pools:\n";
    for (k, policy) in POLICIES.iter().enumerate() {
        let affinity = if k == 4 { ", affinity: { key: { header: x-key } }" } else { "" };
        text += &format!(
            "  p{k}: {{ policy: {policy}, endpoints: [{}], breaker: {{ name: classic, cool_down: 50ms, max_cool_down: 200ms }}{affinity} }}\n",
            urls.join(", ")
        );
    }
    tidegate_config::Config::parse(&text, "test", &|_| None).unwrap().0
}

fn arrivals() -> Pattern {
    Pattern::Open {
        arrivals: Arrivals::Poisson { rate: 150.0 },
        length: Duration::from_millis(700),
        lengths: Lengths { output_tokens: Some(3), ..Lengths::default() },
    }
}

fn load(url: &str, pool: usize) {
    let mut plan = Plan::new("test", url.parse().unwrap());
    plan.pattern = arrivals();
    plan.headers.push(("x-pool".parse().unwrap(), format!("p{pool}").parse().unwrap()));
    plan.headers.push(("x-key".parse().unwrap(), format!("{pool}").parse().unwrap()));
    plan.seed = pool as u64;
    run_plan(&plan, &Arc::new(Progress::default())).unwrap();
}

#[test]
fn every_decision_of_a_live_run_can_be_taken_again() {
    let folder = std::env::temp_dir().join(format!("tidegate-replay-{}", std::process::id()));
    let engines = engines();
    let config = config(&engines, &folder);
    let gateway = Gateway::start(&config, Arc::new(Telemetry::new(&config))).unwrap();
    let url = format!("http://{}", gateway.addresses()[0]);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..POLICIES.len())
            .map(|k| {
                scope.spawn({
                    let url = &url;
                    move || load(url, k)
                })
            })
            .collect();
        // An engine dies and comes back under load, so that breakers, trials, ramps and retries are in the journals too.
        engines[2].set_fault(Fault { kind: FaultKind::Refuse, for_s: Some(0.3), ..Fault::default() });
        running.into_iter().for_each(|r| r.join().unwrap());
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(runtime.block_on(gateway.stop(Duration::from_secs(10))));
    for (k, policy) in POLICIES.iter().enumerate() {
        let journal = File::open(folder.join(format!("p{k}.jsonl"))).unwrap();
        let again = replay(BufReader::new(journal)).unwrap();
        assert_eq!(again.mismatch, None, "{policy}");
        assert!(again.decisions >= 60, "{policy}: {} decisions", again.decisions);
    }
    what_is_cut_or_broken_is_said(&folder);
    a_journal_is_a_trace(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The simulator on the journals of that run: as many requests as clients sent, retries not among them, at their times and lengths.
fn a_journal_is_a_trace(folder: &Path) {
    let fleet = folder.join("fleet.yaml");
    std::fs::write(&fleet, "fleet: [{ count: 3, fixed: { delay: 40ms } }]\npolicies: [{ policy: adaptive }]\n")
        .unwrap();
    for k in 0..POLICIES.len() {
        let path = folder.join(format!("p{k}.jsonl"));
        let text = std::fs::read_to_string(&path).unwrap();
        let trace = Trace::of_text(&text).unwrap();
        let mut plan = Plan::new("test", "http://127.0.0.1:1".parse().unwrap());
        plan.pattern = arrivals();
        plan.seed = k as u64;
        // Refused ones are in it too; each came once, however often it was sent.
        let sent = plan.shots();
        assert_eq!(trace.requests.len(), sent.len(), "p{k}");
        let span_s = (sent.last().unwrap().at - sent[0].at).as_secs_f64();
        let found_s = trace.span().as_secs_f64();
        assert!((found_s - span_s).abs() < 0.5, "p{k}: {found_s} s, sent over {span_s} s");
        // Three tokens, and the events around them, as nobody asked these engines for their usage.
        let lengths = |r: &TraceRequest| (3..=5).contains(&r.output_tokens) && r.prompt_tokens > 1;
        assert!(trace.requests.iter().all(lengths), "p{k}: {:?}", trace.requests[0]);
        let out = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["sim", "--json", "--trace"])
            .arg(&path)
            .arg("--fleet")
            .arg(&fleet)
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(json["policies"][0]["requests"].as_u64(), Some(sent.len() as u64));
        assert!(
            json["notes"][0].as_str().unwrap().starts_with(&format!("journal of pool p{k}: {} requests", sent.len()))
        );
    }
}

/// The command on a journal of that run: whole, cut off, without a decision, and with a line that is none.
fn what_is_cut_or_broken_is_said(folder: &Path) {
    let whole = std::fs::read(folder.join("p0.jsonl")).unwrap();
    let ends: Vec<usize> = whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
    let run = |journal: &[u8], args: &[&str]| {
        let file = folder.join("edited.jsonl");
        std::fs::write(&file, journal).unwrap();
        let out = Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("replay").arg(&file).args(args).output().unwrap();
        let said = [out.stdout, out.stderr].concat();
        (out.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = run(&whole, &[]);
    assert!(code == Some(0) && said.ends_with("all identical\n") && !said.contains("cut"), "{said}");
    let cut = &whole[..ends[ends.len() - 2] + 5];
    let (code, said) = run(cut, &[]);
    assert_eq!(code, Some(0));
    assert!(said.ends_with("the last line is cut off: the journal ends there\nall identical\n"), "{said}");
    for (journal, expected) in [(cut, "\"cut\":true"), (&*whole, "\"cut\":false")] {
        let (code, said) = run(journal, &["--json"]);
        assert!(code == Some(0) && said.contains(expected) && said.contains("\"identical\":true"), "{said}");
    }
    let (code, said) = run(&whole[..ends[0]], &[]);
    assert!(code == Some(0) && said.ends_with("no decision in it\n") && !said.contains("identical"), "{said}");
    let broken = [&whole[..ends[2]], b"{\"t\": x}\n", &whole[ends[2]..]].concat();
    let (code, said) = run(&broken, &[]);
    assert_ne!(code, Some(0));
    assert!(said.contains("line 4: column ") && said.matches("line ").count() == 1, "{said}");
    let (_, said) = run(b"", &[]);
    assert!(said.contains("line 1: not the first line of a journal: the file is empty"), "{said}");
}
