//! Eight engines under steady load, each in turn failing in another way: what clients see, and how fast breakers act.
//!
//! `TIDEGATE_FAULT_S=10 cargo test --release -p tidegate --test faults_live -- --nocapture` runs each fault for ten seconds and prints a table.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of a test, which is there to fail, and to show")]

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::engine::{self, RunningEngine};
use tidegate::load::{Lengths, Pattern, Plan, Progress, run_plan};
use tidegate_core::breaker::Level;
use tidegate_proxy::Gateway;
use tidegate_sim::engine::EngineSpec;
use tidegate_sim::engine::fixed::FixedParams;
use tidegate_sim::fault::{Fault, FaultKind};
use tidegate_sim::workload::Arrivals;
use tidegate_telemetry::{Change, Telemetry, What, replay};

const ENGINES: usize = 8;
const RATE: f64 = 300.0;
/// Healthy time before, between and after faults.
const REST: Duration = Duration::from_millis(1500);

fn faults() -> [(&'static str, Fault); 4] {
    let of = |kind| Fault { kind, ..Fault::default() };
    [
        ("refuses", of(FaultKind::Refuse)),
        ("hangs", of(FaultKind::Hang)),
        ("60 % answer 500", Fault { status: 500, rate: 0.6, ..of(FaultKind::Status) }),
        ("429, Retry-After", Fault { status: 429, rate: 1.0, retry_after_s: Some(1.0), ..of(FaultKind::Status) }),
    ]
}

fn start(k: usize) -> RunningEngine {
    let spec = EngineSpec::Fixed(FixedParams { delay_s: 0.02, ..FixedParams::default() });
    engine::spawn(engine::Config::new(&format!("e{k}"), spec)).unwrap()
}

fn gateway(engines: &[RunningEngine], folder: &Path) -> Gateway {
    let urls: Vec<String> = engines.iter().map(|e| format!("{{ url: '{}' }}", e.url())).collect();
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]
admin: off
threads: 1
journal: {{ folder: '{}' }}
pools:
  p:
    policy: round_robin
    endpoints: [{}]
    breaker: {{ name: adaptive, health_path: /health }}
    retry: {{ budget: 0.2 }}",
        folder.display(),
        urls.join(", ")
    );
    let (config, _) = tidegate_config::Config::parse(&text, "test", &|_| None).unwrap();
    Gateway::start(&config, Arc::new(Telemetry::new(&config))).unwrap()
}

fn each_fault_s() -> u64 {
    std::env::var("TIDEGATE_FAULT_S").ok().and_then(|s| s.parse().ok()).unwrap_or(4)
}

#[tokio::main(flavor = "current_thread")]
async fn set_in_turn(engines: &[RunningEngine], each: Duration) {
    let mut every = tokio::time::interval(REST);
    every.tick().await;
    for (k, (_, fault)) in faults().into_iter().enumerate() {
        every.tick().await;
        engines[k].set_fault(fault);
        let mut on = tokio::time::interval(each);
        on.tick().await;
        on.tick().await;
        engines[k].set_fault(Fault::default());
        every.reset();
        every.tick().await;
    }
}

/// When the breaker of endpoint `name` first cut it, first opened it, and when it last had its full share again.
fn times(changes: &[Change], name: &str) -> (Option<f64>, Option<f64>, Option<f64>) {
    let own = || changes.iter().filter(|c| c.endpoint == name);
    let to = |level: Level| own().find(|c| matches!(c.what, What::Level { to, .. } if to == level)).map(|c| c.at_s);
    let back = own().rfind(|c| c.what == What::FullShare).map(|c| c.at_s);
    (to(Level::Reduced), to(Level::Open), back)
}

#[test]
fn engines_that_fail_in_turn_cost_clients_nothing_that_could_be_retried() {
    let each = Duration::from_secs(each_fault_s());
    let folder = std::env::temp_dir().join(format!("tidegate-faults-{}", std::process::id()));
    let engines: Vec<RunningEngine> = (0..ENGINES).map(start).collect();
    let gateway = gateway(&engines, &folder);
    let mut plan = Plan::new("test", format!("http://{}", gateway.addresses()[0]).parse().unwrap());
    plan.stream = false;
    plan.timeout = Duration::from_secs(20);
    let length = REST * 2 + (each + REST * 2) * faults().len() as u32;
    plan.pattern = Pattern::Open {
        arrivals: Arrivals::Poisson { rate: RATE },
        length,
        lengths: Lengths { prompt_tokens: Some(10), output_tokens: Some(1), ..Lengths::default() },
    };
    let running = std::thread::spawn(move || run_plan(&plan, &Arc::new(Progress::default())).unwrap());
    set_in_turn(&engines, each);
    let report = running.join().unwrap();
    let in_flight = gateway.pools()[0].with(|p, _| p.in_flight());
    let stop = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    stop.block_on(gateway.stop(Duration::from_secs(5)));
    let result = replay(BufReader::new(File::open(folder.join("p.jsonl")).unwrap())).unwrap();
    assert_eq!(result.mismatch, None);
    println!("{} requests, {} failed: {:?}", report.requests, report.requests - report.succeeded, report.errors);
    for (k, (what, _)) in faults().iter().enumerate() {
        let (reduced, open, back) = times(&result.changes, &engines[k].url());
        println!("{what:18} cut {reduced:?} open {open:?} full share {back:?}");
    }
    for change in &result.changes {
        println!("{change:?}");
    }
    let failed = (report.requests - report.succeeded) as f64 / report.requests as f64;
    assert!(failed <= 0.0005, "{failed}: {:?}", report.errors);
    assert_eq!(in_flight, 0);
    let _ = std::fs::remove_dir_all(folder);
}
