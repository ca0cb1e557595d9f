//! Engines' metrics as the source of load: whole loops against scripted engines, in paused time.

use super::engine::{Engine, Reply};
use super::{Told, pool_at};
use std::time::Duration;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::load::{Degraded, WorkReport};

const METRICS: &str = "load: { metrics: { path: /metrics, interval: 1s, timeout: 500ms } }";
const VLLM: &str = "vllm:num_requests_running 3\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.5\nvllm:generation_tokens_total 100\nvllm:prompt_tokens_total 50\n";

#[tokio::test(start_paused = true)]
async fn an_engine_is_known_by_its_page_and_its_counts_are_told() {
    let engine = Engine::new(|_| Reply::json(VLLM));
    let mut told = Told::start(&engine, METRICS);
    let (_, event) = told.next().await;
    let Event::LoadReported { endpoint: EndpointId(0), report } = event else { panic!("{event:?}") };
    let expected = WorkReport {
        running: Some(3.0),
        waiting: Some(2.0),
        queued_tokens: None,
        generated_total: Some(100.0),
        prompt_total: Some(50.0),
        kv_usage: Some(0.5),
    };
    assert_eq!((report.work, report.load), (expected, None));
    assert_eq!(engine.first_line(0), "GET /metrics HTTP/1.1");
    told.polls(3).await;
    let facts = told.facts.lock().unwrap().clone();
    assert_eq!(facts.len(), 1, "told once as long as nothing changes: {facts:?}");
    assert_eq!((facts[0].engine, facts[0].source, facts[0].trouble.as_deref()), (Some("vllm"), "metrics", None));
    assert_eq!(facts[0].present, ["running", "waiting", "generated_tokens", "prompt_tokens", "kv_usage"]);
}

/// gateways.md 3 in its form for metrics: an answer without them is said aloud and never an idle engine.
#[tokio::test(start_paused = true)]
async fn case_3_a_page_that_is_not_there_or_has_nothing_degrades_the_pool_and_says_why() {
    for (reply, why) in [
        (Reply::status(404), "status 404"),
        (Reply::json("# HELP vllm:num_requests_running x\npython_info 1\n"), "--disable-log-stats"),
        (Reply::json(""), "no engine is known"),
        (Reply::Silence, "no answer in time"),
    ] {
        let engine = Engine::new(move |_| reply);
        let settings = pool_at("http://engine:1", METRICS);
        let mut pool = tidegate_core::pool::Pool::new(settings.core(), false, 1);
        let now = tidegate_core::time::Instant::from_nanos(1);
        let id = pool.add(now, settings.core_endpoints().remove(0));
        let mut told = Told::start(&engine, METRICS);
        let (_, event) = told.next().await;
        assert!(matches!(event, Event::LoadMissed(EndpointId(0))), "{event:?}");
        pool.on_event(now, event);
        assert_eq!(pool.endpoints().loads[id.index()].degraded_at(now), Some(Degraded::Missing));
        let facts = told.facts.lock().unwrap().clone();
        assert!(facts[0].trouble.as_deref().is_some_and(|t| t.contains(why)), "{facts:?}");
    }
}

/// gateways.md 23: polling the metrics made the engine unresponsive.
#[tokio::test(start_paused = true)]
async fn case_23_a_page_that_takes_long_is_asked_for_less_often() {
    let engine = Engine::new(|_| Reply::JsonAfter(Duration::from_millis(400), VLLM));
    let mut told = Told::start(&engine, METRICS);
    let polls = told.polls(6).await;
    let waits: Vec<f64> = polls.windows(2).map(|w| (w[1].0 - w[0].0) as f64).collect();
    // The first wait is a random part of one.
    assert!(waits[1..].iter().all(|w| (3_600.0..=4_400.0).contains(w)), "{waits:?}");
    assert_eq!(engine.most_outstanding(), 1);
}

/// ... and what it said holds as long as nobody asks again.
#[tokio::test(start_paused = true)]
async fn a_page_that_is_asked_for_less_often_is_not_old_in_between() {
    let slow = Engine::new(|n| if n < 4 { Reply::JsonAfter(Duration::from_millis(400), VLLM) } else { Reply::Silence });
    let settings = pool_at("http://engine:1", METRICS);
    let mut pool = tidegate_core::pool::Pool::new(settings.core(), false, 1);
    let at = |ms: u128| tidegate_core::time::Instant::from_nanos(u64::try_from(ms).unwrap() * 1_000_000 + 1);
    let id = pool.add(at(0), settings.core_endpoints().remove(0));
    let mut told = Told::start(&slow, METRICS);
    let mut seen = Vec::new();
    let mut last = 0;
    for _ in 0..9 {
        let (ms, event) = told.next().await;
        seen.extend((last > 0).then(|| pool.endpoints().loads[id.index()].degraded_at(at(ms - 1))));
        pool.on_event(at(ms), event);
        last = ms;
    }
    assert_eq!(seen[..4], [None; 4], "asked every four seconds, and three of those make it old");
    assert_eq!(seen[7], Some(Degraded::Old), "a page that no longer comes");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_encoded_though_nobody_asked_for_it_is_said_so() {
    let engine =
        Engine::new(|_| Reply::Raw("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc"));
    let mut told = Told::start(&engine, METRICS);
    let (_, event) = told.next().await;
    assert!(matches!(event, Event::LoadMissed(_)), "{event:?}");
    assert!(engine.head(0).contains("accept-encoding: identity\r\n"), "{}", engine.head(0));
    let facts = told.facts.lock().unwrap().clone();
    assert!(facts[0].trouble.as_deref().is_some_and(|t| t.contains("encoded as gzip")), "{facts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bad_value_of_one_source_is_named_and_leaves_the_others_alone() {
    let lines = "load: { metrics: {}, accelerator: { url: 'http://{host}:9400/gpus' }, node: { url: 'http://{host}:9100/node' } }";
    let engine = Engine::by_path(|path| match path {
        "/gpus" => Reply::json("DCGM_FI_DEV_GPU_UTIL{gpu=\"1\"} 9999\n"),
        "/node" => Reply::json("node_memory_MemTotal_bytes 8\nnode_memory_MemAvailable_bytes 2\n"),
        _ => Reply::json(VLLM),
    });
    let settings = pool_at("http://engine:1", lines);
    let mut pool = tidegate_core::pool::Pool::new(settings.core(), false, 1);
    let id = pool.add(tidegate_core::time::Instant::ORIGIN, settings.core_endpoints().remove(0));
    let mut told = Told::start(&engine, lines);
    for _ in 0..12 {
        let (ms, event) = told.next().await;
        let at = tidegate_core::time::Instant::from_nanos(u64::try_from(ms).unwrap() * 1_000_000 + 1);
        pool.on_event(at, event);
        if ms > 0 {
            assert_eq!(pool.endpoints().loads[id.index()].degraded_at(at), None);
        }
    }
    let report = pool.endpoints().loads[id.index()].last().unwrap();
    assert_eq!((report.work.running, report.utilisation), (Some(3.0), [None, None, Some(0.75)]));
    let facts = told.facts.lock().unwrap().clone();
    let trouble: Vec<_> = facts.iter().filter_map(|f| Some((f.source, f.trouble.clone()?))).collect();
    assert_eq!(trouble, [("accelerator", "impossible: DCGM_FI_DEV_GPU_UTIL of GPU 1 9999".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_page_longer_than_its_bound_is_a_miss() {
    let huge: &'static str = format!("{VLLM}# {}\n", "x".repeat(5 << 20)).leak();
    let engine = Engine::new(move |_| Reply::json(huge));
    let mut told = Told::start(&engine, METRICS);
    let (_, event) = told.next().await;
    assert!(matches!(event, Event::LoadMissed(_)), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn any_metric_may_be_the_load() {
    let page = "busy{q=\"a\"} 0.25\nbusy{q=\"b\"} 0.75\nother 3\n";
    let engine = Engine::new(move |_| Reply::json(page));
    let mut told = Told::start(&engine, "load: { metrics: { load: 'max(busy)' } }");
    assert_eq!(told.polls(1).await[0].1, Some(0.75));
    let facts = told.facts.lock().unwrap().clone();
    assert!(facts[0].present.contains(&"load") && facts[0].engine.is_none(), "{facts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_status_page_and_metrics_are_told_together() {
    let lines = "load: { status: { path: /status }, metrics: { path: /metrics } }";
    let engine = Engine::by_path(move |path| match path {
        "/status" => Reply::json(r#"{"current_load": 0.5, "response_time": 0.2}"#),
        _ => Reply::json(VLLM),
    });
    let mut told = Told::start(&engine, lines);
    let mut both = None;
    for _ in 0..6 {
        if let (_, Event::LoadReported { report, .. }) = told.next().await
            && report.load.is_some()
            && report.work.running.is_some()
        {
            both = Some(report);
        }
    }
    let report = both.expect("a report of both");
    assert_eq!((report.load, report.response_time_s, report.work.running), (Some(0.5), Some(0.2), Some(3.0)));
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_is_too_hot_takes_its_endpoint_out_until_it_is_cool() {
    let script = |n| match n {
        0 => Reply::json("DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 95\n"),
        _ => Reply::json("DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 60\n"),
    };
    let engine = Engine::new(script);
    let lines = "policy: round_robin\n    load: { accelerator: { url: 'http://{host}:9400/gpus' } }";
    let settings = pool_at("http://engine:1", lines);
    let mut pool = tidegate_core::pool::Pool::new(settings.core(), false, 1);
    let now = tidegate_core::time::Instant::from_nanos(1);
    let id = pool.add(now, settings.core_endpoints().remove(0));
    let mut told = Told::start(&engine, lines);
    let mut gates = Vec::new();
    for _ in 0..2 {
        let (at, event) = told.next().await;
        let at = tidegate_core::time::Instant::from_nanos(u64::try_from(at).unwrap() * 1_000_000 + 1);
        pool.on_event(at, event);
        gates.push(pool.endpoints().get(id).gate.as_str());
    }
    assert_eq!(gates, ["unfit", "usable"]);
    assert_eq!(engine.first_line(0), "GET /gpus HTTP/1.1");
    let facts = told.facts.lock().unwrap().clone();
    assert_eq!(facts[0].gate.as_deref(), Some("GPU 0 is too hot: 95 degrees"));
    assert_eq!(facts[1].gate, None);
}

#[tokio::test(start_paused = true)]
async fn models_are_asked_for_and_what_an_engine_serves_is_told_once_as_long_as_it_stays() {
    const LINES: &str = "load: { metrics: { interval: 1s } }\n    models: { interval: 1s, timeout: 500ms }";
    let engine = Engine::by_path(|path| match path {
        "/v1/models" => {
            Reply::json("{\"data\":[{\"id\":\"m\",\"max_model_len\":4096},{\"id\":\"x\",\"parent\":\"m\"}]}")
        }
        _ => Reply::json(
            "vllm:num_requests_running 1\nvllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"x\"} 7\n",
        ),
    });
    let mut told = Told::start(&engine, LINES);
    told.polls(5).await;
    let serves = told.serves.lock().unwrap().clone();
    assert_eq!(serves.len(), 2, "one by each page: {serves:?}");
    let hash = |name: &str| tidegate_core::hash::hash_bytes(name.as_bytes());
    let last = serves.last().unwrap();
    assert_eq!((last.models.as_deref(), last.adapters.as_slice()), (Some(&[hash("m")][..]), &[hash("x")][..]));
    assert_eq!((last.max_adapters, last.max_context), (Some(4), Some(4096)));
    assert_eq!(last.adapters_in_use.as_deref(), Some(&[hash("x")][..]));
    let lists = told.models.lock().unwrap().clone();
    let names: Vec<(&str, bool)> = lists[0].iter().map(|m| (m.id.as_str(), m.is_adapter)).collect();
    assert!(names == [("m", false), ("x", true)] && lists.iter().all(|l| *l == lists[0]), "{lists:?}");
    let facts = told.facts.lock().unwrap().clone();
    let models = facts.iter().find(|f| f.source == "models").unwrap();
    assert_eq!((models.models.as_slice(), models.trouble.as_deref()), (&["m".to_owned(), "x".to_owned()][..], None));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_lists_nothing_yet_serves_what_it_served() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let engine = Engine::by_path(move |path| match path {
        "/health" => Reply::status(200),
        _ => match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Reply::json("{\"data\":[{\"id\":\"m\"}]}"),
            1 => Reply::json("{\"data\":[]}"),
            2 => Reply::status(503),
            _ => Reply::Silence,
        },
    });
    let lines =
        "models: { interval: 1s, timeout: 500ms }\n    health: { http: { path: /health }, interval: 1s, jitter: 0 }";
    let mut told = Told::start(&engine, lines);
    told.checks(20).await;
    assert_eq!(told.serves.lock().unwrap().len(), 1);
    let facts = told.facts.lock().unwrap().clone();
    let troubles: Vec<&str> = facts.iter().filter_map(|f| f.trouble.as_deref()).collect();
    assert_eq!(troubles, ["the list of models is empty", "status 503", "no answer in time"]);
}
