//! Whole loops against scripted engines, in memory and in paused time; what is about sockets, on loopback.

mod cache_events;
mod cases;
mod engine;
mod metrics;

use crate::metric::{Seen, TellSeen, follow_through};
use crate::watch::{Clock, Tell, TellFacts, TellModels, TellServes, Told as Ears, Watch};
use engine::{Engine, Reply};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_config::{Config, ListedModel, Pool};
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::load::Degraded;
use tidegate_core::placement::Serves;
use tidegate_telemetry::SignalFacts;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A pool of one endpoint at `url` with `lines` of settings.
fn pool_at(url: &str, lines: &str) -> Pool {
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  p:\n    endpoints: [{{ url: '{url}' }}]\n    {lines}\n"
    );
    Config::parse(&text, "t.yaml", &|_| None).unwrap().0.pools.remove(0)
}

/// What was told, each with the milliseconds since the start.
struct Told {
    started: Instant,
    receiver: mpsc::UnboundedReceiver<(u128, Event)>,
    facts: Arc<Mutex<Vec<SignalFacts>>>,
    serves: Arc<Mutex<Vec<Serves>>>,
    models: Arc<Mutex<Vec<Vec<ListedModel>>>>,
    _watch: Watch,
}

impl Told {
    fn start(engine: &Arc<Engine>, lines: &str) -> Self {
        Self::with(lines, "http://engine:1", |watch, pool, ears| {
            watch.start_through(engine, pool, &[EndpointId(0)], ears, 7);
        })
    }

    fn with(lines: &str, url: &str, start: impl FnOnce(&mut Watch, &Pool, &Ears)) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let started = Instant::now();
        let tell: Tell = Arc::new(move |event| {
            // The test may be over.
            let _ = sender.send((started.elapsed().as_millis(), event));
        });
        let clock: Clock = Arc::new(move || {
            tidegate_core::time::Instant::from_nanos(u64::try_from(started.elapsed().as_nanos()).unwrap())
        });
        let mut _watch = Watch::default();
        let facts: Arc<Mutex<Vec<SignalFacts>>> = Arc::default();
        let kept = Arc::clone(&facts);
        let tell_facts: TellFacts = Arc::new(move |_, facts| kept.lock().unwrap().push(facts));
        let serves: Arc<Mutex<Vec<Serves>>> = Arc::default();
        let heard = Arc::clone(&serves);
        let tell_serves: TellServes = Arc::new(move |_, serves| heard.lock().unwrap().push(serves.clone()));
        let models: Arc<Mutex<Vec<Vec<ListedModel>>>> = Arc::default();
        let heard = Arc::clone(&models);
        let tell_models: TellModels = Arc::new(move |_, listed| heard.lock().unwrap().push(listed.to_vec()));
        let ears = Ears { events: tell, facts: tell_facts, serves: tell_serves, models: tell_models, clock };
        start(&mut _watch, &pool_at(url, lines), &ears);
        Self { started, receiver, facts, serves, models, _watch }
    }

    async fn next(&mut self) -> (u128, Event) {
        self.receiver.recv().await.unwrap()
    }

    async fn checks(&mut self, n: usize) -> Vec<(u128, bool)> {
        let mut checks = Vec::new();
        while checks.len() < n {
            let (at, event) = self.next().await;
            let Event::Checked { endpoint: EndpointId(0), passed } = event else { panic!("{event:?}") };
            checks.push((at, passed));
        }
        checks
    }

    /// When polls ended, and the load that was reported; `None` is a miss.
    async fn polls(&mut self, n: usize) -> Vec<(u128, Option<f64>)> {
        let mut polls = Vec::new();
        while polls.len() < n {
            match self.next().await {
                (at, Event::LoadReported { report, .. }) => polls.push((at, report.load)),
                (at, Event::LoadMissed(EndpointId(0))) => polls.push((at, None)),
                (_, event) => panic!("{event:?}"),
            }
        }
        polls
    }
}

const CHECKS: &str =
    "health: { http: { path: /health }, interval: 5s, unhealthy_interval: 1s, timeout: 500ms, jitter: 0 }";
const POLLS: &str = "load: { status: { path: /status, interval: 1s, timeout: 500ms } }";

#[tokio::test(start_paused = true)]
async fn the_first_check_is_at_once_and_each_state_has_its_interval() {
    let engine = Engine::new(|n| Reply::status(if n < 3 { 503 } else { 200 }));
    let mut told = Told::start(&engine, CHECKS);
    // Unhealthy from the first check on; healthy again after the second pass at 4 s.
    let expected = [(0, false), (1000, false), (2000, false), (3000, true), (4000, true), (9000, true), (14000, true)];
    assert_eq!(told.checks(7).await, expected);
    assert_eq!(engine.first_line(0), "GET /health HTTP/1.1");
    assert!(engine.head(0).contains("host: engine:1\r\n"), "{}", engine.head(0));
}

#[tokio::test(start_paused = true)]
async fn a_healthy_endpoint_keeps_its_interval_until_the_threshold() {
    let engine = Engine::new(|n| Reply::status(if n == 0 { 200 } else { 500 }));
    let mut told = Told::start(&engine, CHECKS);
    let times: Vec<u128> = told.checks(6).await.into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [0, 5000, 10000, 15000, 16000, 17000]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_engine_fails_in_time_and_is_asked_over_a_new_connection() {
    let engine = Engine::new(|n| if n == 1 { Reply::Silence } else { Reply::status(200) });
    let mut told = Told::start(&engine, CHECKS);
    assert_eq!(told.checks(3).await, [(0, true), (5500, false), (10000, true)]);
    assert_eq!((engine.connections(), engine.most_outstanding()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn checks_share_one_connection() {
    let engine = Engine::new(|_| Reply::status(200));
    let mut told = Told::start(&engine, CHECKS);
    told.checks(10).await;
    assert_eq!(engine.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_the_engine_closed_is_no_failed_check() {
    let engine = Engine::new(|_| Reply::StatusThenClose(200));
    let mut told = Told::start(&engine, CHECKS);
    assert!(told.checks(5).await.iter().all(|&(_, passed)| passed));
    // Closed without an answer, as a keep-alive that ran out at the wrong moment: asked again at once, over a fresh connection.
    let engine = Engine::new(|n| if n == 1 { Reply::Close } else { Reply::status(200) });
    let mut told = Told::start(&engine, CHECKS);
    assert_eq!(told.checks(3).await, [(0, true), (5000, true), (10000, true)]);
}

#[tokio::test(start_paused = true)]
async fn the_status_decides_even_where_the_body_trails_off() {
    let engine = Engine::new(|_| Reply::Raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"));
    let mut told = Told::start(&engine, CHECKS);
    assert!(told.checks(3).await.iter().all(|&(_, passed)| passed));
    assert_eq!(engine.most_outstanding(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_expected_statuses_pass() {
    for (status, passed) in [(199, false), (200, true), (302, true), (399, true), (404, false)] {
        let engine = Engine::new(move |_| Reply::status(status));
        let mut told = Told::start(&engine, "health: { http: { expect: 200-399 } }");
        // 199 is an interim answer: the final one never comes.
        assert_eq!(told.checks(1).await[0].1, passed, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_without_end_and_rubbish_fail() {
    for text in ["SMTP ready\r\n\r\n", "HTTP/1.1 200 OK\r\nx: "] {
        let engine = Engine::new(move |_| Reply::Raw(text));
        let mut told = Told::start(&engine, CHECKS);
        assert!(!told.checks(1).await[0].1, "{text}");
    }
    let long: &'static str = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(40_000)).leak();
    let engine = Engine::new(move |_| Reply::Raw(long));
    assert!(!Told::start(&engine, CHECKS).checks(1).await[0].1);
}

#[tokio::test(start_paused = true)]
async fn jitter_spreads_checks_within_its_bounds() {
    let engine = Engine::new(|_| Reply::status(200));
    let mut told = Told::start(&engine, "health: { http: {}, interval: 10s, jitter: 20% }");
    let times: Vec<u128> = told.checks(50).await.into_iter().map(|(at, _)| at).collect();
    let waits: Vec<u128> = times.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(waits[0] <= 12_000, "the first wait is a part of an interval: {waits:?}");
    assert!(waits[1..].iter().all(|w| (7_999..=12_001).contains(w)), "{waits:?}");
    let (least, most) = (waits[1..].iter().min().unwrap(), waits[1..].iter().max().unwrap());
    assert!(most - least > 1_000, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn reports_carry_the_time_of_the_question() {
    let engine =
        Engine::new(|_| Reply::JsonAfter(Duration::from_millis(300), r#"{"response_time":0.1,"current_load":0.4}"#));
    let mut told = Told::start(&engine, POLLS);
    let (at, event) = told.next().await;
    let Event::LoadReported { report, .. } = event else { panic!("{event:?}") };
    assert_eq!((at, report.sampled_at.as_nanos(), report.load), (300, 0, Some(0.4)));
    assert_eq!(told.started.elapsed().as_millis(), 300);
}

#[tokio::test(start_paused = true)]
async fn no_bad_poll_looks_like_an_idle_engine() {
    let huge: &'static str = format!(r#"{{"current_load":0.1,"x":"{}"}}"#, "y".repeat(100_000)).leak();
    for body in [
        "",
        "{}",
        "[]",
        "0.1",
        "null",
        "not json",
        r#"{"current_load": NaN}"#,
        r#"{"current_load": 1e999}"#,
        r#"{"current_load": "0.1"}"#,
        r#"{"current_load": null}"#,
        r#"{"current_load": 0.1"#,
        r#"{"current_load": 0.1} {}"#,
        r#"{"current_load": 0.9, "current_load": 0.1}"#,
        r#"{"load": 0.1}"#,
        huge,
    ] {
        let engine = Engine::new(move |_| Reply::json(body));
        assert_eq!(Told::start(&engine, POLLS).polls(1).await[0].1, None, "{}", &body[..body.len().min(60)]);
    }
    for reply in
        [Reply::status(500), Reply::Silence, Reply::Close, Reply::Raw("HTTP/1.1 200 OK\r\n\r\n{\"current_load\":0.1")]
    {
        let engine = Engine::new(move |_| reply);
        assert_eq!(Told::start(&engine, POLLS).polls(1).await[0].1, None, "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn impossible_and_absent_loads_are_never_read_as_loads() {
    for (body, why) in [
        (r#"{"current_load": -0.1, "response_time": 0.1}"#, Some(Degraded::Impossible)),
        (r#"{"current_load": 1.5, "response_time": 0.1}"#, Some(Degraded::Impossible)),
        (r#"{"current_load": 0.5, "response_time": -1}"#, Some(Degraded::Impossible)),
        // A response time alone is a signal, of which no load can be read.
        (r#"{"response_time": 0.1}"#, None),
    ] {
        let engine = Engine::new(move |_| Reply::json(body));
        let settings = pool_at("http://engine:1", POLLS);
        let mut pool = tidegate_core::pool::Pool::new(settings.core(), false, 1);
        let now = tidegate_core::time::Instant::from_nanos(1);
        let id = pool.add(now, settings.core_endpoints().remove(0));
        let (_, event) = Told::start(&engine, POLLS).next().await;
        pool.on_event(now, event);
        assert_eq!(pool.endpoints().loads[id.index()].degraded_at(now), why, "{body}");
        assert_eq!(pool.endpoints().load_at(id, now), None);
    }
}

#[tokio::test(start_paused = true)]
async fn failing_polls_back_off_and_a_good_one_ends_it() {
    let good = r#"{"current_load":0.2}"#;
    let engine = Engine::new(move |n| if (1..=7).contains(&n) { Reply::status(500) } else { Reply::json(good) });
    let mut told = Told::start(&engine, POLLS);
    let polls = told.polls(11).await;
    let waits: Vec<f64> = polls.windows(2).map(|w| (w[1].0 - w[0].0) as f64 / 1000.0).collect();
    assert!(
        polls[0].1.is_some() && polls[1..8].iter().all(|p| p.1.is_none()) && polls[8..].iter().all(|p| p.1.is_some())
    );
    for (wait, intervals) in waits[1..].iter().zip([1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 1.0, 1.0]) {
        assert!((wait / intervals - 1.0).abs() <= 0.101, "{waits:?}");
    }
    assert_eq!(engine.connections(), 1 + 7, "a failed poll closes its connection, good ones share theirs");
}

#[tokio::test(start_paused = true)]
async fn a_slow_engine_never_has_two_polls_outstanding() {
    let engine = Engine::new(|_| Reply::JsonAfter(Duration::from_secs(30), r#"{"current_load":0.2}"#));
    let mut told = Told::start(&engine, "load: { status: { interval: 500ms, timeout: 500ms } }");
    assert!(told.polls(20).await.iter().all(|p| p.1.is_none()));
    assert_eq!(engine.most_outstanding(), 1);
}

#[tokio::test(start_paused = true)]
async fn stopping_tells_nothing_more_and_closes_the_connections() {
    let engine = Engine::new(|_| Reply::status(200));
    let mut told = Told::start(&engine, &format!("{CHECKS}\n    {POLLS}"));
    assert_eq!(told._watch.tasks(), 2);
    told.next().await;
    let Told { mut receiver, _watch, .. } = told;
    _watch.stop().await;
    while receiver.recv().await.is_some() {}
    engine.all_closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_reload_stops_what_is_gone_and_asks_nothing_anew_of_what_stays() {
    let engine = Engine::new(|_| Reply::status(200));
    let pool = |urls: &[&str], lines: &str| {
        let endpoints: Vec<String> = urls.iter().map(|u| format!("{{ url: 'http://{u}:1' }}")).collect();
        let text = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  p:\n    endpoints: [{}]\n    {lines}\n",
            endpoints.join(", ")
        );
        Config::parse(&text, "t.yaml", &|_| None).unwrap().0.pools.remove(0)
    };
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let tell: Tell = Arc::new(move |event| {
        let _ = sender.send(event);
    });
    let clock: Clock = Arc::new(|| tidegate_core::time::Instant::from_nanos(0));
    let ears = Ears {
        events: tell,
        facts: Arc::new(|_, _| {}),
        serves: Arc::new(|_, _| {}),
        models: Arc::new(|_, _| {}),
        clock,
    };
    let mut watch = Watch::default();
    let [first, second] = [pool(&["a", "b"], CHECKS), pool(&["b", "c"], CHECKS)];
    watch.start_through(&engine, &first, &[EndpointId(0), EndpointId(1)], &ears, 7);
    let mut asked = || {
        let mut ids = Vec::new();
        while let Ok(Event::Checked { endpoint, .. }) = receiver.try_recv() {
            ids.push(endpoint.0);
        }
        ids.sort_unstable();
        ids
    };
    tokio::time::sleep(Duration::from_millis(1)).await; // paused
    assert_eq!(asked(), [0, 1], "the first of each at once");
    watch.keep(&second).await;
    assert_eq!(watch.tasks(), 1, "a is asked no more");
    watch.start_through(&engine, &second, &[EndpointId(1), EndpointId(2)], &ears, 8);
    tokio::time::sleep(Duration::from_millis(1)).await; // paused
    assert_eq!(asked(), [2], "only the newcomer at once");
    watch.keep(&pool(&["b", "c"], POLLS)).await;
    assert_eq!(watch.tasks(), 0, "other settings are other tasks");
}

#[tokio::test]
async fn tcp_checks_pass_where_somebody_listens_and_fail_where_nobody_does() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let lines = "health: { tcp: {}, interval: 10ms, jitter: 0 }";
    let mut told = Told::with(lines, &url, |watch, pool, ears| watch.start(pool, &[EndpointId(0)], ears, 7));
    assert!(told.checks(2).await.iter().all(|&(_, passed)| passed));
    drop(listener);
    while told.checks(1).await[0].1 {}
}

#[tokio::test]
async fn real_sockets_names_and_keep_alive() {
    let engine = Engine::new(|_| Reply::json(r#"{"current_load":0.5}"#));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://localhost:{}", listener.local_addr().unwrap().port());
    let served = Arc::clone(&engine);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            served.serve(stream);
        }
    });
    let lines = "load: { status: { interval: 10ms, timeout: 10ms } }";
    let mut told = Told::with(lines, &url, |watch, pool, ears| watch.start(pool, &[EndpointId(0)], ears, 7));
    let (mut good, mut missed) = (0, 0);
    while good < 5 {
        if told.polls(1).await[0].1 == Some(0.5) { good += 1 } else { missed += 1 }
    }
    // Only a poll that a busy machine made late costs a connection.
    assert!(engine.connections() <= 1 + missed);
}

/// The sources of one rule whose `when` is `when`.
fn source(when: &str) -> tidegate_config::Source {
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\nrate_limits: [{{ name: all, limit: 5 requests/s }}]\n\
         pools: {{ p: {{ endpoints: [{{ url: http://a:1 }}] }} }}\n\
         rules: [{{ name: r, when: {{ {when}, op: \">\", value: 1 }}, do: {{ set: 5, target: rate_limits.all }} }}]"
    );
    Config::parse(&text, "t.yaml", &|_| None).unwrap().0.rules.remove(0).when.source
}

/// The first `n` things seen, and the head of the first question.
async fn seen(script: impl Fn(usize) -> Reply + Send + Sync + 'static, when: &str, n: usize) -> (Vec<Seen>, String) {
    let engine = Engine::new(script);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let tell: TellSeen = Arc::new(move |place, seen| {
        assert_eq!(place, 0);
        // The test may be over.
        let _ = sender.send(seen);
    });
    let clock: Clock = Arc::new(|| tidegate_core::time::Instant::ORIGIN);
    let _follow = follow_through(&engine, [source(when)].iter(), &tell, &clock, 7);
    let mut all = Vec::new();
    while all.len() < n {
        all.push(receiver.recv().await.unwrap());
    }
    (all, engine.head(0))
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_says_nothing_of_the_metric_and_one_that_lacks_it_does() {
    let script = |k| match k {
        0 => Reply::json("# a page\ngpu{i=\"0\"} 7\ngpu{i=\"1\"} 9\n"),
        1 => Reply::status(500),
        2 => Reply::Silence,
        3 => Reply::json("other 1\n"),
        _ => Reply::Close,
    };
    let (seen, head) =
        seen(script, "metric: max(gpu), scrape: { url: 'http://e:1/m?x=1', every: 1s, timeout: 500ms }", 5).await;
    assert_eq!(seen[0], Seen::Value(9.0));
    assert_eq!(seen[1], Seen::Failed("status 500".to_owned()));
    assert_eq!(seen[2], Seen::Failed("no answer in time".to_owned()));
    assert_eq!(seen[3], Seen::Missing("no series matches".to_owned()));
    assert!(matches!(seen[4], Seen::Failed(_)), "{:?}", seen[4]);
    assert!(head.starts_with("GET /m?x=1 HTTP/1.1"), "{}", head);
}

#[tokio::test(start_paused = true)]
async fn a_server_is_asked_the_query_and_its_number_told() {
    let script = |k| match k {
        0 => Reply::json(
            "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[{\"metric\":{},\"value\":[1,\"0.8\"]}]}}",
        ),
        _ => Reply::json("{\"status\":\"error\",\"error\":\"no\"}"),
    };
    let (seen, head) = seen(script, "prometheus: { url: 'http://e:1/base', query: 'avg(x) > 0', every: 1s }", 2).await;
    assert_eq!(seen, [Seen::Value(0.8), Seen::Failed("the server says: no".to_owned())]);
    assert!(head.starts_with("GET /base/api/v1/query?query=avg%28x%29%20%3E%200 HTTP/1.1"), "{}", head);
}
