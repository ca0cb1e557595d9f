//! The promotion day of the simulator, live: engines, gateway and load generators as processes on loopback, an ordinary day and one with a
//! promotion, eight seconds each; and the same two days in virtual time. Bounds are generous: a busy machine of two cores runs this too.
//!
//! `cargo test --release -p tidegate --test promotion_day_live -- --nocapture` prints both side by side.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of a test, which is there to fail, and to show")]

use std::io::{BufRead as _, BufReader};
use std::num::NonZeroUsize;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tidegate_sim::batch::{Seeds, run};
use tidegate_sim::report::report;
use tidegate_sim::scenario::{Scenario, Unread};

const SECONDS: u32 = 8;
const QUIET: u32 = 3;
const QUIET_RATE: f64 = 3.0;
const PROMO_RATE: f64 = 4.0;
const FACTOR: f64 = 20.0;
const TOKENS: (u32, u32) = (400, 60);

/// What stands in front of the pool, in both worlds.
const QUEUE: &str = "max_in_flight: 40, queue: { max_wait: 5s, max_per_tenant: 100 }";
const LIMITS: &str = "\
rate_limits: [{ name: requests, limit: 40 requests/s, max_wait: 5s, shares: { promo: { assured: 4 requests/s } }, others: { assured: 8 requests/s } }]
concurrency_limits: [{ name: streams, max_in_flight: 60, each: 12 }]";

/// A `tidegate` process, ended with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// An engine and its address.
fn engine(name: &str) -> (Process, String) {
    let mut command = tidegate(&["engine", "--preset", "a100-8b", "--json", "--name", name]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    (Process(child), told["address"].as_str().unwrap().to_owned())
}

/// A gateway before `engines`, and its URL.
fn gateway(engines: &[String]) -> (Process, String) {
    let urls: Vec<String> = engines.iter().map(|e| format!("{{ url: 'http://{e}', max_in_flight: 64 }}")).collect();
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]
admin: off
threads: 1
tenants: {{ identify: [{{ header: {{ name: x-tenant, trust: [127.0.0.1] }} }}], unknown: accept }}
{LIMITS}
pools: {{ chat: {{ {QUEUE}, breaker: off, endpoints: [{}] }} }}
",
        urls.join(", ")
    );
    let path = std::env::temp_dir().join(format!("tidegate-promotion-{}.yaml", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let mut child = tidegate(&["serve", "-c"]).arg(&path).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let url = lines.find_map(|l| l.strip_prefix("listening on ").map(str::to_owned)).unwrap();
    // Whatever else it says is read, so that it is never held up.
    std::thread::spawn(move || lines.for_each(drop));
    (Process(child), url)
}

/// Streams of one tenant.
fn load(url: &str, tenant: &str, rate: f64, seed: u32) -> Child {
    let (header, rate, seed) = (format!("x-tenant: {tenant}"), rate.to_string(), seed.to_string());
    let (duration, prompt, output) = (SECONDS.to_string(), TOKENS.0.to_string(), TOKENS.1.to_string());
    let mut command = tidegate(&["load", url, "--stream", "--json", "-H", &header, "--rate", &rate, "--seed", &seed]);
    command.args(["--duration", &duration, "--prompt-tokens", &prompt, "--output-tokens", &output]);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// What one day came to for the quiet tenants.
#[derive(Clone, Copy, Debug)]
struct Day {
    p99_s: f64,
    success: f64,
}

fn live(url: &str, promo_rate: f64) -> Day {
    let promo = load(url, "promo", promo_rate, 100);
    let quiet: Vec<Child> = (1..=QUIET).map(|k| load(url, &format!("quiet-{k}"), QUIET_RATE, k)).collect();
    let row = |child: Child| -> Value {
        let output = child.wait_with_output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        told["policies"][0].clone()
    };
    let rows: Vec<Value> = quiet.into_iter().map(row).collect();
    println!("promo: {}", row(promo));
    let number = |key: &'static str| rows.iter().map(move |r| r[key].as_f64().unwrap());
    Day { p99_s: number("p99_s").fold(0.0, f64::max), success: number("success").sum::<f64>() / f64::from(QUIET) }
}

fn simulated(promo_rate: f64) -> Day {
    let (prompt, output) = TOKENS;
    let text = format!(
        "duration: {SECONDS}s
fleet: [{{ name: e, count: 2, max_in_flight: 64, llm: {{ preset: a100-8b }} }}]
pool: {{ breaker: off }}
governance:
  - name: ours
    {}
    {}
workload:
  stream: true
  prompt_tokens: {prompt}
  output_tokens: {output}
  tenants:
    - {{ name: quiet, count: {QUIET}, arrivals: {{ rate: {QUIET_RATE} }} }}
    - {{ name: promo, arrivals: {{ rate: {promo_rate} }} }}
",
        QUEUE.replace(", queue", "\n    queue"),
        LIMITS.replace('\n', "\n    ")
    );
    let (scenario, _) = Scenario::parse(&text, "live.yaml", &|_| None).unwrap_or_else(|p| unreadable(&p[0]));
    let (cells, rows) = (scenario.cells(&|_| Err(Unread::Absent(String::new()))).unwrap(), scenario.rows());
    let runs = run(&cells, &rows, Seeds { first: 1, count: 8 }, NonZeroUsize::MIN, |_, _| {});
    let quiet = report(&cells[0], &rows, &runs[0]).tenants.remove(0);
    Day { p99_s: quiet.p99_s.unwrap(), success: quiet.success }
}

#[allow(clippy::panic, reason = "helper of a test")]
fn unreadable(problem: &tidegate_config::Problem) -> ! {
    panic!("{problem}")
}

#[test]
fn the_quiet_notice_as_little_live_as_in_virtual_time() {
    let engines = [engine("a"), engine("b")];
    let addresses: Vec<String> = engines.iter().map(|(_, address)| address.clone()).collect();
    let (_gateway, url) = gateway(&addresses);
    let (calm, busy) = (live(&url, PROMO_RATE), live(&url, PROMO_RATE * FACTOR));
    let (calm_sim, busy_sim) = (simulated(PROMO_RATE), simulated(PROMO_RATE * FACTOR));
    println!(
        "ordinary:  live {calm:.3?}, simulated {calm_sim:.3?}\npromotion: live {busy:.3?}, simulated {busy_sim:.3?}"
    );

    assert!(busy_sim.p99_s < 1.25 * calm_sim.p99_s && busy_sim.success > 0.995, "{calm_sim:?} {busy_sim:?}");
    assert!(busy.p99_s < 1.6 * calm.p99_s && busy.success > 0.97, "{calm:?} {busy:?}");
    for (live, sim) in [(calm, calm_sim), (busy, busy_sim)] {
        let ratio = live.p99_s / sim.p99_s;
        assert!((0.6..1.8).contains(&ratio), "live {live:?}, simulated {sim:?}");
    }
}
