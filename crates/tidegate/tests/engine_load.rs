//! A live engine and the load generator against each other, over loopback sockets.
#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tidegate::engine::clock::Clock;
use tidegate::engine::{self, Config, RunningEngine};
use tidegate::load::{Lengths, Pattern, Plan, Progress, Report, run_plan};
use tidegate_sim::engine::EngineSpec;
use tidegate_sim::engine::article::ArticleParams;
use tidegate_sim::engine::fixed::FixedParams;
use tidegate_sim::engine::llm::LlmParams;
use tidegate_sim::fault::{Fault, FaultKind};
use tidegate_sim::workload::{Arrivals, Trace, TraceRequest};

const PATIENCE: Duration = Duration::from_secs(20);

fn start(spec: EngineSpec) -> RunningEngine {
    engine::spawn(Config::new("e", spec)).unwrap()
}

fn fixed(delay_s: f64, slots: Option<u32>) -> EngineSpec {
    EngineSpec::Fixed(FixedParams { delay_s, slots, ..FixedParams::default() })
}

fn plan(engine: &RunningEngine, pattern: Pattern) -> Plan {
    Plan { pattern, timeout: PATIENCE, ..Plan::new("test", engine.url().parse().unwrap()) }
}

fn run(plan: &Plan) -> Report {
    run_plan(plan, &Arc::new(Progress::default())).unwrap()
}

fn closed(clients: usize, requests: u64, output_tokens: u32) -> Pattern {
    let lengths = Lengths { prompt_tokens: Some(100), output_tokens: Some(output_tokens), ..Lengths::default() };
    Pattern::Closed { clients, requests, rounds: 1, lengths }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: e\r\nconnection: close\r\nx-request-id: r1\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nhost: e\r\nconnection: close\r\n\r\n"))
}

/// Asks for the counts until they are as wished; each asking is a round trip through the engine's thread.
fn wait_for(engine: &RunningEngine, wish: impl Fn(&Value) -> bool) -> Value {
    let clock = Clock::start();
    loop {
        let stats = engine.stats().unwrap();
        if wish(&stats) {
            return stats;
        }
        assert!(clock.now().as_secs_f64() < PATIENCE.as_secs_f64(), "{stats}");
        std::thread::yield_now();
    }
}

#[test]
fn a_trace_on_a_language_model_engine() {
    let engine = start(EngineSpec::Llm(LlmParams::A100_8B));
    let request = |i: u32| TraceRequest {
        at: Duration::from_millis(u64::from(i) * 20),
        prompt_tokens: 100 + i,
        output_tokens: 5 + i % 7,
        ..TraceRequest::default()
    };
    let trace = Trace { requests: (0..40).map(request).collect(), ..Trace::default() };
    let tokens: u64 = trace.requests.iter().map(|r| u64::from(r.output_tokens)).sum();
    let report = run(&plan(&engine, Pattern::Trace(trace)));
    assert_eq!((report.requests, report.succeeded, report.events), (40, 40, tokens), "{:?}", report.errors);
    // A prefill step of 100 tokens takes 12.4 ms and a decoding step at least 10.
    assert!(report.ttft.quantile_s(0.0).unwrap() > 0.012);
    let interval_s = report.interval.mean_s().unwrap();
    assert!((0.009..0.1).contains(&interval_s), "{interval_s}");
    let stats = wait_for(&engine, |s| s["in_flight"] == 0);
    assert_eq!((&stats["completed"], &stats["tokens"]), (&40.into(), &tokens.into()));
    let metrics = get(engine.address, "/metrics");
    assert!(metrics.contains(&format!("vllm:generation_tokens_total{{model_name=\"tidegate-sim-8b\"}} {tokens}\n")));
}

#[test]
fn eight_clients_and_an_engine_that_serves_one_at_a_time() {
    let engine = start(fixed(0.02, Some(1)));
    let plan = Plan { path: "/infer".into(), method: Method::GET, stream: false, ..plan(&engine, closed(8, 30, 1)) };
    let report = run(&plan);
    assert_eq!((report.succeeded, report.rounds.len()), (30, 1));
    assert!(report.rounds[0].total_s >= 0.6, "30 times 20 ms in a row: {:?}", report.rounds);
}

#[test]
fn latency_counts_from_the_intended_start() {
    // One slot of 100 ms, ten requests in 100 ms: they end after 100, 200 .. 1000 ms, whatever the client's own limit is.
    let engine = start(fixed(0.1, Some(1)));
    let lengths = Lengths::default();
    let pattern =
        Pattern::Open { arrivals: Arrivals::Constant { rate: 100.0 }, length: Duration::from_millis(105), lengths };
    let plan = Plan { max_in_flight: 1, stream: false, ..plan(&engine, pattern) };
    let report = run(&plan);
    assert_eq!(report.succeeded, 10);
    assert!(report.total.quantile_s(1.0).unwrap() > 0.85, "{:?}", report.total.quantile_s(1.0));
}

#[test]
fn a_client_that_leaves_is_noticed_while_the_engine_is_silent() {
    let engine = start(fixed(3600.0, None));
    let body = r#"{"messages":[{"role":"user","content":"hi"}],"stream":true}"#;
    for streaming in [body.to_owned(), body.replace("true", "false")] {
        let before = engine.stats().unwrap()["cancelled"].as_u64().unwrap();
        let mut stream = connect(engine.address);
        stream.write_all(post("/v1/chat/completions", &streaming).as_bytes()).unwrap();
        wait_for(&engine, |s| s["in_flight"] == 1);
        drop(stream);
        let since_left = Clock::start();
        let stats = wait_for(&engine, |s| s["cancelled"] == before + 1);
        assert!(since_left.now().as_secs_f64() < 1.0, "{:?}", since_left.now());
        assert_eq!((&stats["in_flight"], &stats["cancellations"][0]["request_id"]), (&0.into(), &"r1".into()));
    }
    let status = get(engine.address, "/status");
    assert!(status.contains("\"current_load\":0.0"), "the model forgot both: {status}");
}

#[test]
fn faults_come_and_go() {
    let engine = start(fixed(0.001, None));
    let one = Plan { stream: true, ..plan(&engine, closed(1, 20, 10)) };
    let errors = |fault: Fault| {
        engine.set_fault(fault);
        let report = run(&one);
        (report.succeeded, report.errors.keys().cloned().collect::<Vec<_>>())
    };
    let status = Fault { status: 429, retry_after_s: Some(2.0), ..Fault::of(FaultKind::Status) };
    assert_eq!(errors(status), (0, vec!["429 fault".to_owned()]));
    assert!(get(engine.address, "/health").starts_with("HTTP/1.1 200"));
    assert_eq!(errors(Fault::of(FaultKind::Cut)).0, 0);
    assert_eq!(errors(Fault::of(FaultKind::Refuse)), (0, vec!["connect: connection refused".to_owned()]));
    assert_eq!(errors(Fault::of(FaultKind::Reset)).0, 0);
    assert_eq!(errors(Fault::of(FaultKind::None)), (20, vec![]), "the address is open again");
}

#[test]
fn no_progress_leaves_health_alone_and_streams_freeze() {
    let engine = start(fixed(0.001, None));
    engine.set_fault(Fault::of(FaultKind::NoProgress));
    let mut stream = connect(engine.address);
    stream.write_all(post("/v1/completions", r#"{"prompt":"a","stream":true}"#).as_bytes()).unwrap();
    wait_for(&engine, |s| s["in_flight"] == 1);
    assert!(get(engine.address, "/health").starts_with("HTTP/1.1 200"));
    assert_eq!(engine.stats().unwrap()["tokens"], 0);
    engine.set_fault(Fault::default());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{answer}");
}

#[test]
fn faults_are_set_and_counts_read_at_the_control_address() {
    let engine = start(EngineSpec::Load(ArticleParams::default()));
    let set = ask(engine.control_address, &post("/fault", r#"{"kind":"hang","for_s":0.05}"#));
    assert!(set.starts_with("HTTP/1.1 200") && set.contains("\"kind\":\"hang\""), "{set}");
    assert!(get(engine.address, "/health").starts_with("HTTP/1.1 200"), "answered when the fault ends");
    assert!(get(engine.control_address, "/fault").contains("\"kind\":\"none\""));
    let bad = ask(engine.control_address, &post("/fault", r#"{"kind":"slow","factor":0}"#));
    assert!(bad.starts_with("HTTP/1.1 400") && bad.contains("factor is 0"), "{bad}");
    for (body, part) in [
        (r#"{"kind":"slow","rate":0.5}"#, "rate has no meaning for kind \\\"slow\\\", which takes factor, for_s"),
        (r#"{"kind":"cut","status":500}"#, "status has no meaning"),
    ] {
        let bad = ask(engine.control_address, &post("/fault", body));
        assert!(bad.starts_with("HTTP/1.1 400") && bad.contains(part), "{bad}");
    }
    let infer = get(engine.address, "/infer");
    assert!(["server_name", "response_time", "current_load"].iter().all(|k| infer.contains(k)), "{infer}");
    assert!(get(engine.control_address, "/stats").contains("\"completed\":1"));
}

#[test]
fn a_stopped_plan_reports_what_it_has() {
    let engine = start(fixed(3600.0, None));
    let progress = Arc::new(Progress::default());
    let plan = plan(&engine, closed(3, 3, 1));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run_plan(&plan, &progress).unwrap());
        wait_for(&engine, |s| s["in_flight"] == 3);
        progress.stop();
        let report = running.join().unwrap();
        assert_eq!((report.requests, report.unfinished), (0, 3));
    });
    wait_for(&engine, |s| s["cancelled"] == 3);
}
