//! Auto-tuning with real parts: a gateway process, an engine, and a page whose numbers the test raises and lowers.
#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use serde_json::{Value, json};
use tidegate::engine::{self, RunningEngine};
use tidegate_sim::engine::EngineSpec;
use tidegate_sim::engine::fixed::FixedParams;
use tidegate_testkit::{PATIENCE, eventually};

/// A page of one gauge in percent, and a Prometheus server that knows the same.
struct Exporter {
    address: SocketAddr,
    percent: Arc<AtomicU64>,
}

impl Exporter {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, percent) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(10)));
        let shown = Arc::clone(&percent);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A gateway that is being stopped may have gone away.
                let _ = answer(stream, shown.load(SeqCst));
            }
        });
        Self { address, percent }
    }
}

fn answer(mut stream: TcpStream, percent: u64) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = String::new();
    let mut lines = BufReader::new(stream.try_clone()?);
    while !head.ends_with("\r\n\r\n") && lines.read_line(&mut head)? > 0 {}
    let body = if head.starts_with("GET /api/v1/query?query=busy") {
        json!({ "status": "success", "data": { "resultType": "scalar", "result": [0, percent.to_string()] } })
            .to_string()
    } else {
        format!("# TYPE busy gauge\nbusy{{cpu=\"0\"}} 1\nbusy{{cpu=\"1\"}} {percent}\n")
    };
    write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// `tidegate serve`, ended with the test.
struct Serving {
    process: Child,
    gateway: SocketAddr,
    admin: SocketAddr,
    _engine: RunningEngine,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Serving {
    fn start(exporter: &Exporter) -> Self {
        let spec = EngineSpec::Fixed(FixedParams { delay_s: 0.0, ..FixedParams::default() });
        let engine = engine::spawn(engine::Config::new("e", spec)).unwrap();
        let at = exporter.address;
        let text = format!(
            "listeners: [{{ address: '127.0.0.1:0' }}]
admin: {{ address: '127.0.0.1:0' }}
threads: 1
rate_limits: [{{ name: all, limit: 6_000 requests/min }}, {{ name: other, limit: 5_000 requests/s }}]
concurrency_limits: [{{ name: streams, max_in_flight: 400 }}]
pools: {{ p: {{ endpoints: [{{ url: '{}' }}], max_in_flight: 64 }} }}
rules:
  - name: shed
    when: {{ metric: max(busy), scrape: {{ url: 'http://{at}/metrics', every: 100ms }}, op: '>', value: 70, for: 300ms }}
    do: {{ scale: 0.5, target: rate_limits.all, min: 1_200, cooldown: 100ms }}
    revert: {{ value: 30, for: 300ms }}
  - name: dry
    when: {{ metric: max(busy), scrape: {{ url: 'http://{at}/metrics', every: 100ms }}, op: '>', value: 70, for: 300ms }}
    do: {{ scale: 0.5, target: rate_limits.other, min: 1_000, cooldown: 100ms }}
    dry_run: true
  - name: asked
    when: {{ prometheus: {{ url: 'http://{at}', query: busy, every: 100ms }}, op: '>', value: 70, for: 0s }}
    do: {{ step: -300, target: concurrency_limits.streams, min: 50, cooldown: 50ms }}
  - name: own
    when: {{ metric: tidegate_build_info, op: '>=', value: 1, for: 0s }}
    do: {{ set: 5, target: 'pools.p.endpoints[0].weight' }}
  - name: pool
    when: {{ metric: tidegate_pool_waiting, op: '<', value: 1, for: 0s }}
    do: {{ step: +9, target: pools.p.max_in_flight, max: 100 }}
  - name: nowhere
    when: {{ metric: nothing, scrape: {{ url: 'http://{at}/metrics', every: 50ms }}, op: '<', value: 1e9, for: 0s }}
    do: {{ set: 1, target: rate_limits.other }}
",
            engine.url()
        );
        let path = std::env::temp_dir().join(format!("tidegate-rules-{}.yaml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let mut process =
            serve.args(["serve", "-c"]).arg(&path).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut address = |before: &str| {
            let found = lines.find_map(|l| l.strip_prefix(before).map(str::to_owned));
            found.unwrap().parse().unwrap()
        };
        let (gateway, admin) = (address("listening on http://"), address("admin, metrics and live page on http://"));
        // Whatever else it says is read, so that it is never held up.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, gateway, admin, _engine: engine }
    }

    fn rule(&self, name: &str) -> Value {
        let all: Value = serde_json::from_str(&ask(self.admin, "GET", "/api/rules", "").1).unwrap();
        let found = all["rules"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned();
        found.unwrap()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        serde_json::from_str(&ask(self.admin, "POST", path, &body.to_string()).1).unwrap()
    }

    /// What the gateway tells a client of the limit on all requests.
    fn told(&self) -> String {
        let (head, _) = ask(self.gateway, "GET", "/x", "");
        let value = head.lines().find_map(|l| l.strip_prefix("ratelimit-limit: ").map(str::to_owned));
        value.unwrap_or(head)
    }
}

/// Head and body of an answer.
fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let n = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {n}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Before and after of the changes of a rule, the oldest first.
fn changes(rule: &Value) -> Vec<(f64, f64)> {
    let all = rule["changes"].as_array().unwrap().iter().rev();
    all.map(|c| (c["before"].as_f64().unwrap().round(), c["after"].as_f64().unwrap().round())).collect()
}

#[tokio::test]
async fn a_limit_falls_while_a_scraped_page_is_beyond_its_bound_and_comes_back() {
    let exporter = Exporter::start();
    let serving = Serving::start(&exporter);
    eventually("a first sample", || serving.rule("shed")["value"] == 10.0).await;
    assert_eq!(
        (serving.told(), serving.rule("shed")["present"].as_f64().unwrap().round()),
        ("6000".to_owned(), 6000.0)
    );

    exporter.percent.store(90, SeqCst);
    let fell = [(6000.0, 3000.0), (3000.0, 1500.0), (1500.0, 1200.0)];
    eventually("down to its bound", || changes(&serving.rule("shed")) == fell).await;
    assert_eq!(serving.told(), "1200");
    eventually("it holds on", || serving.rule("shed")["holds_for_s"].as_f64() > Some(0.5)).await;
    assert_eq!(changes(&serving.rule("shed")), fell, "it stays at its bound");
    let (_, page) = ask(serving.admin, "GET", "/metrics", "");
    for line in
        ["{rule=\"shed\"} 3", "{rule=\"dry\"} 0", "{rule=\"own\"} 1", "{rule=\"asked\"} 2", "{rule=\"nowhere\"} 0"]
    {
        assert!(page.contains(&format!("tidegate_rule_changes_total{line}\n")), "{line}");
    }
    the_others(&serving);

    exporter.percent.store(20, SeqCst);
    let back = [(1200.0, 2400.0), (2400.0, 4800.0), (4800.0, 6000.0)];
    eventually("back to the configured value", || changes(&serving.rule("shed")) == [fell, back].concat()).await;
    assert_eq!(serving.told(), "6000");
}

/// What the other rules did meanwhile.
fn the_others(serving: &Serving) {
    let dry = serving.rule("dry");
    assert_eq!(changes(&dry), [(5000.0, 2500.0), (2500.0, 1250.0), (1250.0, 1000.0)], "it says what it would do");
    let asked = serving.rule("asked");
    assert_eq!((changes(&asked), &asked["present"]), (vec![(400.0, 100.0), (100.0, 50.0)], &json!(50.0)));
    let (_, limits) = ask(serving.admin, "GET", "/api/limits", "");
    let limits: Value = serde_json::from_str(&limits).unwrap();
    let limit = |name| limits["limits"].as_array().unwrap().iter().find(|l| l["name"] == name).cloned().unwrap();
    assert_eq!((&limit("other")["rate_per_s"], &limit("streams")["depth"]), (&json!(5000.0), &json!(50.0)));
    let (_, pools) = ask(serving.admin, "GET", "/api/pools", "");
    let pools: Value = serde_json::from_str(&pools).unwrap();
    assert_eq!(pools["pools"][0]["endpoints"][0]["weight"], 5.0);
    assert_eq!(pools["pools"][0]["limit"], 73);
    let nowhere = serving.rule("nowhere");
    assert_eq!((&nowhere["value"], &nowhere["problem"]), (&Value::Null, &json!("no series matches")));
}

#[tokio::test]
async fn a_rule_is_switched_off_and_what_it_did_taken_back() {
    let exporter = Exporter::start();
    exporter.percent.store(50, SeqCst);
    let serving = Serving::start(&exporter);
    let off = serving.post("/api/rules/shed", &json!({ "enabled": false }));
    assert_eq!(off["enabled"], false);
    exporter.percent.store(90, SeqCst);
    eventually("it looks on", || serving.rule("shed")["holds_for_s"].as_f64() > Some(0.5)).await;
    assert_eq!((changes(&serving.rule("shed")), serving.told()), (Vec::new(), "6000".to_owned()));
    serving.post("/api/rules/shed", &json!({ "enabled": true }));
    eventually("it acts", || serving.told() == "1200").await;

    serving.post("/api/rules/shed", &json!({ "enabled": false }));
    let back = serving.post("/api/rules/shed/revert", &json!({}));
    assert_eq!((&back["changes"][0]["why"], back["present"].as_f64().unwrap().round()), (&json!("operator"), 6000.0));
    assert_eq!(serving.told(), "6000");
}

#[test]
fn a_metric_that_does_not_exist_does_not_start() {
    let path = std::env::temp_dir().join(format!("tidegate-no-metric-{}.yaml", std::process::id()));
    let text = "listeners: [{ address: 127.0.0.1:0 }]\nrate_limits: [{ name: all, limit: 5 requests/s }]\n\
        pools: { p: { endpoints: [{ url: http://a:1 }] } }\n\
        rules: [{ name: r, when: { metric: tidegate_pool_waitin, op: '>', value: 1 }, do: { set: 5, target: rate_limits.all } }]\n";
    std::fs::write(&path, text).unwrap();
    for command in ["check", "serve"] {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args([command, "-c"]).arg(&path).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.code() == Some(1) && said.contains("did you mean `tidegate_pool_waiting`?"), "{said}");
    }
}
