//! A gateway in front of scripted endpoints, configured as a user would.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests: a failed expectation is a failed test")]

pub(crate) mod engine;
pub(crate) mod h2_client;
pub(crate) mod tls;

use parking_lot::Mutex;
use std::sync::Arc;
use tidegate_config::Config;
use tidegate_proxy::Gateway;
use tidegate_telemetry::{Record, Sink};
use tidegate_testkit::Client;

/// Keeps every record.
#[derive(Default)]
pub(crate) struct Records(Mutex<Vec<Record>>);

impl Sink for Records {
    fn on_record(&self, record: &Record) {
        self.0.lock().push(record.clone());
    }
}

impl Records {
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub(crate) fn outcomes(&self) -> Vec<&'static str> {
        self.0.lock().iter().map(|r| r.outcome).collect()
    }
}

/// A running gateway and what it recorded.
pub(crate) struct Running {
    pub(crate) gateway: Gateway,
    pub(crate) records: Arc<Records>,
}

impl Running {
    /// Starts a gateway with one pool called `p`; `pool` are its keys in YAML flow style, `top` further top-level lines.
    pub(crate) fn with(urls: &[String], pool: &str, top: &str) -> Self {
        let endpoints: Vec<String> =
            urls.iter().map(|u| if u.starts_with('{') { u.clone() } else { format!("{{ url: \"{u}\" }}") }).collect();
        Self::from_yaml(&format!("{top}\npools:\n  p: {{ endpoints: [{}], {pool} }}", endpoints.join(", ")))
    }

    /// Starts a gateway with these pools.
    pub(crate) fn from_yaml(rest: &str) -> Self {
        Self::listening("{ address: \"127.0.0.1:0\" }", rest)
    }

    /// Starts a gateway with these listeners.
    pub(crate) fn listening(listeners: &str, rest: &str) -> Self {
        let config = parse_with(listeners, rest);
        let records = Arc::new(Records::default());
        let gateway = Gateway::start(&config, Arc::clone(&records) as Arc<dyn Sink>).expect("starts");
        Self { gateway, records }
    }

    /// Puts another config in force, as a reload does; answers with its generation.
    pub(crate) fn reload(&self, rest: &str) -> u64 {
        self.gateway.put_in_force(self.gateway.prepare(&parse(rest)).expect("a config without a journal"))
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.gateway.addresses()[0]).await
    }

    /// Where its first listener listens.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.gateway.addresses()[0]
    }

    /// Requests in flight, over all pools.
    pub(crate) fn in_flight(&self) -> usize {
        self.gateway.pools().iter().map(|p| p.with(|pool, _| pool.in_flight())).sum()
    }

    pub(crate) fn outcomes(&self) -> Vec<&'static str> {
        self.records.outcomes()
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.records.0.lock().clone()
    }
}

/// What curl, which every build machine has, prints for `args`; and whether it was content.
pub(crate) async fn curl(args: &[&str]) -> (String, bool) {
    let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
    let run = move || std::process::Command::new("curl").args(["-sS", "--max-time", "20"]).args(args).output();
    let output = tokio::task::spawn_blocking(run).await.expect("runs").expect("curl is installed");
    let told = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&told).into_owned(), output.status.success())
}

pub(crate) fn parse(rest: &str) -> Config {
    parse_with("{ address: \"127.0.0.1:0\" }", rest)
}

fn parse_with(listeners: &str, rest: &str) -> Config {
    let text = format!("listeners: [{listeners}]\nadmin: off\nthreads: 1\n{rest}");
    let parsed = Config::parse(&text, "test", &|_| None);
    parsed.unwrap_or_else(|p| panic!("{}", p.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))).0
}
