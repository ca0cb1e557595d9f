//! Every path over real sockets on loopback, against the pools of a running gateway.

mod client;

use crate::action::{Action, Running, Target};
use crate::admin::{Admin, Ready, Subject};
use crate::config::{ConfigBook, ConfigView, RejectedView, Reloading};
use crate::rules::{RuleBook, RuleView};
use client::{Reply, Stream, get, post, send};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_config::{Config, Secret};
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::load::{LoadReport, WorkReport};
use tidegate_core::outcome::{Outcome, Verdict};
use tidegate_core::pool::{Decision, Pool};
use tidegate_core::prefix::{CacheBatch, CacheTold};
use tidegate_core::request::Request;
use tidegate_core::time::Instant;
use tidegate_proxy::{Gateway, PoolHandle};
use tidegate_telemetry::{Record, SignalFacts, Sink, Telemetry, family};

const CONFIG: &str = "
listeners: [{ address: 127.0.0.1:0 }]
threads: 1
routes: [{ pool: chat }]
pools:
  chat:
    policy: { name: fastest_recovery, form: ema }
    endpoints: [{ url: http://127.0.0.1:8001, max_in_flight: 4 }, { url: http://127.0.0.1:8002, weight: 2 }]
    load: { status: {} }
  embed:
    policy: round_robin
    endpoints: [{ url: http://127.0.0.1:8003 }]
  prompts:
    policy: adaptive
    endpoints: [{ url: http://127.0.0.1:8004 }, { url: http://127.0.0.1:8005 }]
    prefix_cache: { events: {} }
    load: { orca: true }
";

/// A gateway, its telemetry, and an admin server in front.
struct Server {
    admin: Admin,
    gateway: Gateway,
    telemetry: Arc<Telemetry>,
    is_ready: Arc<AtomicBool>,
}

impl Server {
    async fn start(token: Option<&str>, actions: Vec<Action>) -> Self {
        let (config, _) = Config::parse(CONFIG, "t.yaml", &|_| None).unwrap();
        let telemetry = Arc::new(Telemetry::new(&config));
        let gateway = Gateway::start(&config, Arc::clone(&telemetry) as Arc<dyn Sink>).unwrap();
        let is_ready = Arc::new(AtomicBool::new(true));
        let ready: Ready = Arc::new({
            let is_ready = Arc::clone(&is_ready);
            move || is_ready.load(SeqCst)
        });
        let settings = settings(token);
        let rules: Option<Arc<dyn RuleBook>> = Some(Arc::new(OneRule::default()));
        let subject = Subject {
            current: gateway.current().clone(),
            governor: Some(Arc::clone(gateway.governor())),
            telemetry: Arc::clone(&telemetry),
            rules,
            config: Some(Arc::new(OneFile::default())),
            ready,
            actions,
        };
        let admin = Admin::start(&settings, subject);
        Self { admin: admin.unwrap(), gateway, telemetry, is_ready }
    }

    fn pools(&self) -> Vec<Arc<PoolHandle>> {
        self.gateway.pools()
    }

    async fn get(&self, path: &str) -> Reply {
        get(self.admin.address(), path).await
    }

    async fn post(&self, path: &str, body: &Value) -> Reply {
        post(self.admin.address(), path, &body.to_string()).await
    }
}

/// A rule called `shed`, which can be told apart by what was asked of it.
#[derive(Debug, Default)]
struct OneRule {
    is_off: AtomicBool,
    reverted: AtomicBool,
}

impl RuleBook for OneRule {
    fn rules(&self) -> Vec<RuleView> {
        vec![RuleView {
            name: "shed".to_owned(),
            metric: "x".to_owned(),
            condition: "> 1".to_owned(),
            target: "rate_limits.all".to_owned(),
            enabled: !self.is_off.load(SeqCst),
            dry_run: false,
            value: None,
            problem: Some("no series matches".to_owned()),
            holds_for_s: None,
            gone_for_s: None,
            next_change_in_s: None,
            present: Some(if self.reverted.load(SeqCst) { 100.0 } else { 80.0 }),
            configured: 100.0,
            min: 10.0,
            max: None,
            changes: Vec::new(),
        }]
    }

    fn set_enabled(&self, name: &str, enabled: bool) -> bool {
        self.is_off.store(!enabled, SeqCst);
        name == "shed"
    }

    fn revert(&self, name: &str) -> bool {
        self.reverted.store(true, SeqCst);
        name == "shed"
    }
}

/// A config whose second reload is rejected.
#[derive(Debug, Default)]
struct OneFile(AtomicBool);

impl ConfigBook for OneFile {
    fn config(&self) -> ConfigView {
        ConfigView {
            file: "gateway.yaml".to_owned(),
            generation: 1 + u64::from(self.0.load(SeqCst)),
            loaded_unix_s: 1e9,
            loaded_by: "admin",
            needs_restart: vec!["threads"],
            warnings: Vec::new(),
            rejected: None,
        }
    }

    fn reload(&self) -> Reloading {
        let rejected = self.0.swap(true, SeqCst);
        let view = self.config();
        Box::pin(async move {
            if !rejected {
                return Ok(view);
            }
            Err(RejectedView { at_unix_s: 1e9, message: "1 error".to_owned(), problems: vec![json!({ "line": 3 })] })
        })
    }
}

fn settings(token: Option<&str>) -> tidegate_config::Admin {
    tidegate_config::Admin { address: "127.0.0.1:0".parse().unwrap(), token: token.map(Secret::new) }
}

fn record(id: &str) -> Record {
    Record {
        request_id: id.to_owned(),
        method: "POST".into(),
        path: "/v1/chat/completions".to_owned(),
        pool: "chat".into(),
        endpoint: "http://127.0.0.1:8001".into(),
        reason: "fastest_recovery".to_owned(),
        model: String::new(),
        stream: true,
        status: 200,
        outcome: "success",
        attempts: 2,
        prompt_tokens: 10,
        output_events: 5,
        bytes_out: 700,
        ttft_s: 0.0,
        total_s: 1.5,
        ..Record::default()
    }
}

#[tokio::test]
async fn health_is_that_the_process_answers() {
    let server = Server::start(None, Vec::new()).await;
    let reply = server.get("/healthz").await;
    assert_eq!((reply.status, reply.json()), (200, json!({ "status": "ok" })));
}

#[tokio::test]
async fn ready_needs_bound_listeners_and_somebody_who_may_serve() {
    let server = Server::start(None, Vec::new()).await;
    assert_eq!(server.get("/readyz").await.status, 200);
    server.is_ready.store(false, SeqCst);
    let reply = server.get("/readyz").await;
    assert_eq!((reply.status, reply.json()["ready"].as_bool()), (503, Some(false)));
    server.is_ready.store(true, SeqCst);
    let drain = json!({ "draining": true });
    for path in ["embed/endpoints/0", "prompts/endpoints/0", "prompts/endpoints/1"] {
        server.post(&format!("/api/pools/{path}/drain"), &drain).await;
    }
    assert_eq!(server.get("/readyz").await.status, 200, "one pool of three still serves");
    server.post("/api/pools/chat/endpoints/0/drain", &drain).await;
    server.post("/api/pools/chat/endpoints/1/weight", &json!({ "weight": 0 })).await;
    let reply = server.get("/readyz").await;
    assert_eq!(reply.status, 503);
    assert!(reply.json()["reason"].as_str().unwrap().contains("drained"));
}

#[tokio::test]
async fn pools_show_what_is_known_and_null_for_the_rest() {
    let server = Server::start(None, Vec::new()).await;
    let reply = server.get("/api/pools").await.json();
    let chat = &reply["pools"][0];
    assert_eq!((&chat["name"], &chat["policy"]), (&json!("chat"), &json!("fastest_recovery:ema")));
    assert_eq!((&chat["usable"], &chat["panic"], &chat["degraded"]), (&json!(2), &json!(false), &json!(2)));
    let first = &chat["endpoints"][0];
    for (key, value) in [
        ("index", json!(0)),
        ("url", json!("http://127.0.0.1:8001")),
        ("gate", json!("usable")),
        ("in_flight", json!(0)),
        ("pending", json!(0)),
        ("max_in_flight", json!(4)),
        ("weight", json!(1.0)),
        ("share", json!(1.0)),
        ("requests_per_s", json!(0.0)),
        ("health", json!("unknown")),
        ("breaker", json!({ "state": "closed", "level": "full" })),
        ("load", Value::Null),
        ("degraded", json!("missing")),
        ("response_time_s", Value::Null),
    ] {
        assert_eq!(first[key], value, "{key}");
    }
    assert_eq!(first["stats"]["dispatched"], json!(0));
    let embed = &reply["pools"][1];
    assert_eq!((&embed["degraded"], &embed["endpoints"][0]["degraded"]), (&json!(0), &Value::Null));
}

#[tokio::test]
async fn pools_show_what_engines_say_and_what_they_do_not_expose() {
    let server = Server::start(None, Vec::new()).await;
    let work = WorkReport { running: Some(3.0), kv_usage: Some(0.5), ..WorkReport::default() };
    server.pools()[0].with(|pool, now| {
        let report = LoadReport { sampled_at: now, load: Some(0.4), work, ..LoadReport::default() };
        pool.on_event(now, Event::LoadReported { endpoint: EndpointId(0), report });
    });
    let facts = SignalFacts {
        source: "metrics",
        engine: Some("vllm"),
        present: vec!["running", "kv_usage"],
        missing: vec!["waiting"],
        trouble: Some("status 404".to_owned()),
        gate: None,
        models: Vec::new(),
    };
    server.telemetry.on_facts("chat", "http://127.0.0.1:8001", facts);
    let reply = server.get("/api/pools").await.json();
    let [first, second] = [0, 1].map(|k| &reply["pools"][0]["endpoints"][k]);
    let work = json!({ "running": 3.0, "waiting": null, "queued_tokens": null, "kv_usage": 0.5 });
    assert_eq!((&first["work"], &first["degraded"]), (&work, &Value::Null));
    assert!(first["report_age_s"].as_f64().is_some_and(|age| (0.0..60.0).contains(&age)), "{first}");
    let signal = json!({ "source": "metrics", "engine": "vllm", "present": ["running", "kv_usage"], "missing": ["waiting"],
        "gate": null, "trouble": "status 404" });
    assert_eq!(first["signals"], json!([signal]));
    assert_eq!((&second["work"], &second["report_age_s"], second.get("signals")), (&Value::Null, &Value::Null, None));
}

#[tokio::test]
async fn draining_and_back_by_place_and_by_url() {
    let server = Server::start(None, Vec::new()).await;
    let gate = || server.pools()[0].with(|p, _| p.endpoints().hot[1].gate.as_str());
    for (endpoint, draining, expected) in [
        ("1", true, "draining"),
        ("http%3A%2F%2F127.0.0.1%3A8002", false, "usable"),
        ("127.0.0.1:8002", true, "draining"),
    ] {
        let path = format!("/api/pools/chat/endpoints/{endpoint}/drain");
        let reply = server.post(&path, &json!({ "draining": draining })).await;
        assert_eq!((reply.status, gate()), (200, expected));
        assert_eq!(reply.json()["gate"], expected);
    }
}

#[tokio::test]
async fn weights_change_within_their_range() {
    let server = Server::start(None, Vec::new()).await;
    let path = "/api/pools/chat/endpoints/0/weight";
    let reply = server.post(path, &json!({ "weight": 2.5 })).await;
    assert_eq!((reply.status, &reply.json()["weight"]), (200, &json!(2.5)));
    for bad in [json!({ "weight": -1 }), json!({ "weight": 1e7 }), json!({ "weight": "2" }), json!({ "wieght": 2 })] {
        let reply = server.post(path, &bad).await;
        assert_eq!(reply.status, 400, "{bad}");
    }
    assert_eq!(server.pools()[0].with(|p, _| p.endpoints().hot[0].weight), 2.5);
}

#[tokio::test]
async fn what_is_not_there_and_what_is_not_allowed() {
    let server = Server::start(None, Vec::new()).await;
    for path in ["/nothing", "/api/pools/chat", "/api/requests/none"] {
        let reply = server.get(path).await;
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (404, Some("not_found")), "{path}");
    }
    for path in ["chat/endpoints/2/drain", "chat/endpoints/http%3A%2F%2Fa/drain", "none/endpoints/0/drain"] {
        let reply = server.post(&format!("/api/pools/{path}"), &json!({ "draining": true })).await;
        assert_eq!(reply.status, 404, "{path}");
    }
    let reply = server.get("/api/pools/chat/endpoints/0/drain").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    let reply = server.post("/metrics", &json!({})).await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")));
    let reply =
        send(server.admin.address(), "HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
    assert_eq!(server.get("/api/requests/%zz").await.status, 400);
}

#[tokio::test]
async fn bodies_are_bounded() {
    let server = Server::start(None, Vec::new()).await;
    // One byte too long, so that all of it is read and no reset can overtake the answer.
    let mut long = r#"{"draining": true}"#.to_owned();
    long.push_str(&" ".repeat((64 << 10) + 1 - long.len()));
    let reply = post(server.admin.address(), "/api/pools/chat/endpoints/0/drain", &long).await;
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (413, Some("body_too_large")));
    assert_eq!(server.pools()[0].with(|p, _| p.endpoints().hot[0].gate.as_str()), "usable");
}

/// Sends a prompt of two blocks, and then one that goes on from it, to whoever has it. Its place, which told that it holds 640 tokens.
fn send_a_prompt_twice(pool: &mut Pool, now: Instant) -> u32 {
    let mut at = EndpointId(0);
    for prompt in [&[1, 2][..], &[1, 2, 3]] {
        let request = Request { prefix: prompt, block_tokens: 256, prompt_tokens: Some(800), ..Request::default() };
        let Decision::Send { ticket, .. } = pool.admit(now, &request, None) else { panic!("there is room") };
        at = ticket.endpoint();
        pool.settle(now, ticket, Outcome::new(Verdict::Success));
    }
    let batch = CacheBatch { sequence: 0, batches: 1, cleared: false, stored_tokens: 640, removed_tokens: 0 };
    pool.on_event(now, Event::CacheTold { endpoint: at, rank: 0, told: CacheTold::Batch(batch) });
    at.0
}

#[tokio::test]
async fn pools_whose_answers_tell_show_what_these_tell() {
    let server = Server::start(None, Vec::new()).await;
    server.pools()[2].with(|p, now| {
        let work = WorkReport { kv_usage: Some(0.5), ..WorkReport::default() };
        let utilisation = [None, Some(0.7), Some(0.2)];
        let report = LoadReport { sampled_at: now, load: Some(0.4), work, utilisation, ..LoadReport::default() };
        p.on_event(now, Event::LoadReported { endpoint: EndpointId(0), report });
    });
    let reply = server.get("/api/pools").await.json();
    let endpoints = &reply["pools"][2]["endpoints"];
    let signal = |k: usize| &endpoints[k]["signals"][0];
    assert_eq!((&signal(0)["source"], &signal(0)["present"]), (&json!("orca"), &json!(["load", "memory", "kv_usage"])));
    assert_eq!(endpoints[0]["used"], json!({ "cpu": null, "gpu": 0.7, "memory": 0.2 }));
    assert_eq!(endpoints[1].get("used"), None);
    assert!(signal(1)["trouble"].as_str().is_some_and(|t| t.contains("no answer")), "{endpoints}");
    assert_eq!(endpoints[1]["degraded"], Value::Null, "who is asked nothing says nothing");
}

#[tokio::test]
async fn what_is_known_of_caches_is_told() {
    let server = Server::start(None, Vec::new()).await;
    let told = server.pools()[2].with(send_a_prompt_twice);
    let reply = server.get("/api/pools").await.json();
    let (chat, prompts) = (&reply["pools"][0], &reply["pools"][2]);
    assert_eq!((chat.get("prefix_cache"), chat["endpoints"][0].get("cache")), (None, None));
    let expected = json!({ "blocks": 3, "bytes": prompts["prefix_cache"]["bytes"], "hits": 1, "misses": 1, "matched_tokens": 512.0 });
    assert_eq!(prompts["prefix_cache"], expected);
    let cache = |place: u32| &prompts["endpoints"][place as usize]["cache"];
    let heard = json!({ "blocks": 3, "trust": 1.0, "events": "counted", "resident_tokens": 640, "gaps": 0 });
    let unheard = json!({ "blocks": 0, "trust": 1.0, "events": null, "resident_tokens": null, "gaps": 0 });
    assert_eq!((cache(told), cache(1 - told)), (&heard, &unheard));
}

#[tokio::test]
async fn every_metric_rendered_is_documented_and_the_gauges_are_there() {
    let server = Server::start(None, Vec::new()).await;
    server.telemetry.on_record(&record("a"));
    server.pools()[0].with(|p, now| {
        let report = tidegate_core::load::LoadReport { sampled_at: now, load: Some(0.25), ..Default::default() };
        let endpoint = tidegate_core::id::EndpointId(0);
        p.on_event(now, tidegate_core::event::Event::LoadReported { endpoint, report });
    });
    let told = server.pools()[2].with(send_a_prompt_twice);
    let reply = server.get("/metrics").await;
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let docs = include_str!("../../../docs/metrics.md");
    for line in reply.body.lines() {
        let name = line.strip_prefix("# TYPE ").or(line.strip_prefix("# HELP ")).unwrap_or(line);
        let name = name.split([' ', '{']).next().unwrap();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name);
        assert!(docs.contains(&format!("| `{base}` |")), "{base} is not documented");
    }
    for f in family::ALL {
        assert!(reply.body.contains(&format!("# TYPE {} {}\n", f.name, f.kind.as_str())), "{} is not rendered", f.name);
    }
    for line in [
        r#"tidegate_requests_total{pool="chat",endpoint="http://127.0.0.1:8001",outcome="success"} 1"#,
        r#"tidegate_pool_endpoints{pool="chat",gate="usable"} 2"#,
        r#"tidegate_pool_degraded{pool="chat"} 1"#,
        r#"tidegate_endpoint_load{pool="chat",endpoint="http://127.0.0.1:8001"} 0.25"#,
        r#"tidegate_endpoint_gate{pool="embed",endpoint="http://127.0.0.1:8003",gate="usable"} 1"#,
        r#"tidegate_endpoint_weight{pool="chat",endpoint="http://127.0.0.1:8002"} 2"#,
        r#"tidegate_prefix_blocks{pool="prompts"} 3"#,
        r#"tidegate_prefix_lookups_total{pool="prompts",result="hit"} 1"#,
        r#"tidegate_prefix_lookups_total{pool="prompts",result="miss"} 1"#,
        r#"tidegate_prefix_matched_tokens_total{pool="prompts"} 512"#,
        &format!(r#"tidegate_endpoint_cache_tokens{{pool="prompts",endpoint="http://127.0.0.1:800{}"}} 640"#, 4 + told),
        &format!(
            r#"tidegate_endpoint_cache_events_heard{{pool="prompts",endpoint="http://127.0.0.1:800{}"}} 1"#,
            4 + told
        ),
    ] {
        assert!(reply.body.lines().any(|l| l == line), "no {line} in\n{}", reply.body);
    }
    let absent =
        format!(r#"tidegate_endpoint_cache_tokens{{pool="prompts",endpoint="http://127.0.0.1:800{}"}}"#, 5 - told);
    assert!(!reply.body.contains(&absent), "nobody heard of its cache");
    let absent = r#"tidegate_endpoint_load{pool="chat",endpoint="http://127.0.0.1:8002"}"#;
    assert!(!reply.body.contains(absent), "a missing load is no load of 0");
}

#[tokio::test]
async fn requests_are_listed_and_found() {
    let server = Server::start(None, Vec::new()).await;
    ["a", "b/c", "d"].iter().for_each(|id| server.telemetry.on_record(&record(id)));
    let list = server.get("/api/requests?limit=2").await.json();
    let ids: Vec<&str> =
        list["requests"].as_array().unwrap().iter().map(|r| r["request_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["d", "b/c"]);
    let found = &server.get("/api/requests/b%2Fc").await.json()["requests"][0];
    assert_eq!((&found["outcome"], &found["attempts"], &found["ttft_s"]), (&json!("success"), &json!(2), &Value::Null));
    for limit in ["x", "-1", "1001"] {
        assert_eq!(server.get(&format!("/api/requests?limit={limit}")).await.status, 400);
    }
}

#[tokio::test]
async fn policies_are_described() {
    let server = Server::start(None, Vec::new()).await;
    let policies = server.get("/api/policies").await.json();
    let all = tidegate_core::balance::registry::all();
    for (i, d) in all.iter().enumerate() {
        let shown = &policies["policies"][i];
        assert_eq!((&shown["name"], shown["params"].as_array().unwrap().len()), (&json!(d.name), d.params.len()));
    }
}

#[tokio::test]
async fn events_come_at_once_and_places_are_bounded_and_given_back() {
    let server = Server::start(None, Vec::new()).await;
    let address = server.admin.address();
    let mut streams = Vec::new();
    for _ in 0..16 {
        let mut stream = Stream::open(address, "/api/events").await;
        let event = stream.next_event().await;
        assert!(event.starts_with("event: pools\ndata: {"), "{event}");
        streams.push(stream);
    }
    let reply = server.get("/api/events").await;
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (503, Some("too_many_subscribers")));
    streams.pop();
    // The place of a follower that left is free at the latest when its next event finds nobody.
    loop {
        let mut stream = Stream::open(address, "/api/events").await;
        if stream.status() == 200 {
            assert!(stream.next_event().await.contains("\"chat\""));
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn actions_run_and_are_remembered() {
    let run = |target: Target, on: bool| -> Running {
        Box::pin(async move {
            assert_eq!(target, Target { pool: 1, endpoint: 0 });
            if on { Ok(()) } else { Err("the engine does not answer".to_owned()) }
        })
    };
    let kill = Action { name: "engine", on: "Kill engine", off: "Revive engine", run: Arc::new(run) };
    let server = Server::start(None, vec![kill]).await;
    let path = "/api/pools/embed/endpoints/0/actions/engine";
    let reply = server.post(path, &json!({ "on": true })).await;
    assert_eq!(reply.status, 200);
    let pools = server.get("/api/pools").await.json();
    assert_eq!(pools["actions"], json!([{ "name": "engine", "on": "Kill engine", "off": "Revive engine" }]));
    assert_eq!(pools["pools"][1]["endpoints"][0]["actions"], json!({ "engine": true }));
    let reply = server.post(path, &json!({ "on": false })).await;
    assert_eq!((reply.status, reply.json()["error"]["message"].as_str()), (502, Some("the engine does not answer")));
    let pools = server.get("/api/pools").await.json();
    assert_eq!(
        pools["pools"][1]["endpoints"][0]["actions"],
        json!({ "engine": true }),
        "a failed switch did not switch"
    );
    assert_eq!(server.post("/api/pools/embed/endpoints/0/actions/nothing", &json!({ "on": true })).await.status, 404);
}

#[tokio::test]
async fn the_page_is_there_with_its_policy() {
    let server = Server::start(None, Vec::new()).await;
    for (path, media) in [("/", "text/html"), ("/app.js", "text/javascript"), ("/style.css", "text/css")] {
        let reply = server.get(path).await;
        assert!(reply.status == 200 && reply.header("content-type").unwrap().starts_with(media), "{path}");
        assert!(reply.header("content-security-policy").unwrap().contains("default-src 'none'"));
    }
}

#[tokio::test]
async fn a_token_guards_everything_but_the_page_and_the_probes() {
    let server = Server::start(Some("s3cret"), Vec::new()).await;
    for path in ["/", "/app.js", "/style.css", "/healthz", "/readyz"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    for path in ["/metrics", "/api/pools", "/api/requests", "/api/policies", "/api/events", "/nothing"] {
        let reply = server.get(path).await;
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")), "{path}");
        assert!(!reply.body.contains("s3cret"));
    }
    let drain = "/api/pools/chat/endpoints/0/drain";
    assert_eq!(server.post(drain, &json!({ "draining": true })).await.status, 401);
    let with = |token: &str| {
        format!(
            "GET /api/pools HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
    };
    assert_eq!(send(server.admin.address(), &with("s3cret")).await.status, 200);
    assert_eq!(send(server.admin.address(), &with("s3creT")).await.status, 401);
}

#[tokio::test]
async fn foreign_names_and_foreign_pages_are_refused() {
    let server = Server::start(None, Vec::new()).await;
    let address = server.admin.address();
    let reply = send(address, "GET /api/pools HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (403, Some("host_not_allowed")));
    let body = r#"{"draining":true}"#;
    let drain = |headers: &str| {
        let head = "POST /api/pools/chat/endpoints/0/drain HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n";
        format!("{head}Content-Length: {}\r\n{headers}\r\n{body}", body.len())
    };
    for (headers, status) in [
        ("Content-Type: text/plain\r\n", 415),
        ("", 415),
        ("Content-Type: application/json\r\nOrigin: http://evil.example\r\n", 403),
        ("Content-Type: application/json\r\nOrigin: null\r\n", 403),
        ("Content-Type: application/json\r\nOrigin: http://localhost:1\r\n", 200),
    ] {
        assert_eq!(send(address, &drain(headers)).await.status, status, "{headers}");
    }
}

#[tokio::test]
async fn a_port_in_use_names_the_address_and_the_remedy() {
    let server = Server::start(None, Vec::new()).await;
    let taken = tidegate_config::Admin { address: server.admin.address(), token: None };
    let subject = Subject {
        current: server.gateway.current().clone(),
        governor: None,
        telemetry: Arc::clone(&server.telemetry),
        rules: None,
        config: None,
        ready: Arc::new(|| true),
        actions: Vec::new(),
    };
    let error = Admin::start(&taken, subject).unwrap_err().to_string();
    assert!(error.contains(&taken.address.to_string()) && error.contains("choose another"), "{error}");
}

#[tokio::test]
async fn stopping_frees_the_port() {
    let server = Server::start(None, Vec::new()).await;
    let address = server.admin.address();
    let mut stream = Stream::open(address, "/api/events").await;
    stream.next_event().await;
    server.admin.stop().await;
    assert!(stream.ends().await, "followers are let go");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn the_config_is_shown_and_a_rejected_file_says_why() {
    let server = Server::start(None, Vec::new()).await;
    let shown = server.get("/api/config").await.json();
    assert_eq!((&shown["generation"], &shown["needs_restart"]), (&json!(1), &json!(["threads"])));
    assert_eq!(server.get("/api/pools").await.json()["config"]["file"], json!("gateway.yaml"));
    let applied = server.post("/api/config/reload", &json!({})).await;
    assert_eq!((applied.status, &applied.json()["generation"]), (200, &json!(2)));
    let rejected = server.post("/api/config/reload", &json!({})).await;
    assert_eq!((rejected.status, &rejected.json()["error"]["code"]), (422, &json!("config_rejected")));
    assert_eq!(rejected.json()["error"]["problems"][0]["line"], json!(3));
    assert_eq!(server.get("/api/config/reload").await.status, 405);
}

#[tokio::test]
async fn another_token_holds_from_the_next_request_on() {
    let server = Server::start(Some("old"), Vec::new()).await;
    let ask = |token: &str| {
        format!(
            "GET /api/pools HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
    };
    assert_eq!(send(server.admin.address(), &ask("old")).await.status, 200);
    server.admin.set_token(Some(Secret::new("new")));
    assert_eq!(send(server.admin.address(), &ask("old")).await.status, 401);
    assert_eq!(send(server.admin.address(), &ask("new")).await.status, 200);
}

#[tokio::test]
async fn rules_are_listed_switched_and_taken_back() {
    let server = Server::start(None, Vec::new()).await;
    let rule = server.get("/api/rules").await.json()["rules"][0].clone();
    assert_eq!((&rule["name"], &rule["present"], &rule["value"]), (&json!("shed"), &json!(80.0), &Value::Null));
    let off = server.post("/api/rules/shed", &json!({ "enabled": false })).await;
    assert_eq!((off.status, &off.json()["enabled"]), (200, &json!(false)));
    let back = server.post("/api/rules/shed/revert", &json!({})).await;
    assert_eq!((back.status, &back.json()["present"]), (200, &json!(100.0)));
    assert_eq!(server.post("/api/rules/other/revert", &json!({})).await.status, 404);
    assert_eq!(server.post("/api/rules/shed", &json!({ "on": 1 })).await.status, 400);
    assert_eq!(server.get("/api/rules/shed").await.status, 405);
}
