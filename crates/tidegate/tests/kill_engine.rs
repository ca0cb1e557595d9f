//! Streams through a real gateway to real engines, one of which dies and comes back.
#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

use std::sync::Arc;
use std::time::Duration;

use tidegate::engine::{self, Config, RunningEngine};
use tidegate::load::{Lengths, Pattern, Plan, Progress, run_plan};
use tidegate_core::breaker::Level;
use tidegate_core::endpoint::Gate;
use tidegate_core::id::EndpointId;
use tidegate_proxy::{Gateway, PoolHandle};
use tidegate_sim::engine::EngineSpec;
use tidegate_sim::engine::llm::LlmParams;
use tidegate_sim::fault::{Fault, FaultKind};
use tidegate_telemetry::Telemetry;

const PATIENCE: Duration = Duration::from_secs(20);
const CLIENTS: usize = 60;
const VICTIM: EndpointId = EndpointId(2);

/// An engine of 40 tokens per second and stream.
fn start(name: &str) -> RunningEngine {
    let mut params = LlmParams::preset("h100-8b").unwrap();
    params.max_tokens_per_s = Some(40.0);
    engine::spawn(Config::new(name, EngineSpec::Llm(params))).unwrap()
}

fn gateway(engines: &[RunningEngine]) -> Gateway {
    let urls: Vec<String> = engines.iter().map(|e| format!("{{ url: '{}' }}", e.url())).collect();
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\nadmin: off\npools: {{ chat: {{ policy: least_connections, endpoints: [{}], breaker: {{ name: classic, cool_down: 100ms, max_cool_down: 200ms }} }} }}",
        urls.join(", ")
    );
    let (config, _) = tidegate_config::Config::parse(&text, "test", &|_| None).unwrap();
    let telemetry = Arc::new(Telemetry::new(&config));
    Gateway::start(&config, telemetry).unwrap()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let wait = async {
        let mut every = tokio::time::interval(Duration::from_millis(2));
        while !done() {
            every.tick().await;
        }
    };
    let in_time = runtime.block_on(async { tokio::time::timeout(PATIENCE, wait).await }).is_ok();
    assert!(in_time, "not in time: {what}");
}

fn in_flight_at(pool: &PoolHandle, id: EndpointId) -> u32 {
    pool.with(|p, _| p.endpoints().get(id).in_flight)
}

#[test]
fn a_dying_engine_takes_only_its_own_streams_with_it() {
    let engines: Vec<RunningEngine> = ["a", "b", "c"].into_iter().map(start).collect();
    let gateway = gateway(&engines);
    let pool = Arc::clone(&gateway.pools()[0]);
    let url = format!("http://{}", gateway.addresses()[0]);
    let mut plan = Plan::new("test", url.parse().unwrap());
    let lengths = Lengths { prompt_tokens: Some(100), output_tokens: Some(40), ..Lengths::default() };
    plan.pattern = Pattern::Closed { clients: CLIENTS, requests: 6 * CLIENTS as u64, rounds: 1, lengths };
    plan.timeout = PATIENCE;
    let progress = Arc::new(Progress::default());
    let for_plan = Arc::clone(&progress);
    let running = std::thread::spawn(move || run_plan(&plan, &for_plan).unwrap());

    wait_until("streams everywhere", || (0..3).all(|k| in_flight_at(&pool, EndpointId(k)) >= 15));
    let on_victim = u64::from(in_flight_at(&pool, VICTIM));
    engines[2].set_fault(Fault { kind: FaultKind::Refuse, ..Fault::default() });
    wait_until("open", || pool.with(|p, _| p.endpoints().get(VICTIM).gate == Gate::Open));
    let (before, seen) = (pool.with(|p, _| p.endpoints().stats[2].dispatched), progress.ended());
    wait_until("a hundred more answers", || progress.ended() > seen + 100);
    let trials = pool.with(|p, _| p.endpoints().stats[2].dispatched) - before;
    assert!(trials < 30, "{trials} dispatches to a dead engine: only trials go there");

    engines[2].set_fault(Fault::default());
    let mut most = 0;
    wait_until("back", || {
        let back = pool.with(|p, _| p.level(VICTIM, 0) == Level::Full);
        // Until its trial is answered; then its share grows.
        if pool.with(|p, now| p.share_at(VICTIM, now)) == 0.0 {
            most = most.max(in_flight_at(&pool, VICTIM));
        }
        back
    });
    assert!(most <= 1, "{most} requests at once while its trial was out");
    let report = running.join().unwrap();
    let failed = report.requests - report.succeeded;
    assert!(
        failed <= on_victim + 2,
        "{failed} failed, {on_victim} streams were on the engine that died: {:?}",
        report.errors
    );
    wait_until("in flight returns to 0", || pool.with(|p, _| p.in_flight()) == 0);
}
