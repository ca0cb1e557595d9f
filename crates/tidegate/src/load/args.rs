//! The command line of `tidegate load`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::{Method, Uri};
use tidegate_core::rng::Rng;
use tidegate_sim::workload::synthetic::Synthetic;
use tidegate_sim::workload::{Arrivals, Trace};

use super::plan::{Lengths, MAX_REQUESTS, Pattern, Plan};

/// Where recorded traces lie, seen from the repository's root.
const TRACES: &str = "../shared/traces";

/// Deviation of bursty gaps over their mean where none is given.
const DEFAULT_CV: f64 = 4.0;

/// How requests come in an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Process {
    /// Equal gaps
    Constant,
    /// Independent exponential gaps
    Poisson,
    /// Independent gaps of coefficient of variation --cv
    Bursty,
}

/// Put load on a service and measure it, from intended start times
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  tidegate load http://127.0.0.1:8080 --stream --rate 20 --duration 60
  tidegate load http://127.0.0.1:8080 --stream --arrivals bursty --cv 13 --rate 5
  tidegate load http://127.0.0.1:8080 --stream --trace azure-conv --speed 2 --start 600 --length 600
  tidegate load http://127.0.0.1:8080 --path /infer --clients 8 --requests 30 --rounds 5
  tidegate load http://127.0.0.1:8080 -H 'authorization: Bearer KEY' --json

A trace is a CSV with t_ms or t_s, input_tokens, output_tokens; azure-conv and azure-code are read from ../shared/traces or, where
that is absent, replaced by a synthetic stand-in.

Exit codes: 0 fine, 1 no request succeeded or the load could not start, 2 wrong usage.")]
pub struct Args {
    /// Base URL of the service
    pub url: Uri,
    /// Open loop: requests per second
    #[arg(long, default_value_t = 10.0)]
    pub rate: f64,
    /// Open loop: how they come
    #[arg(long, value_enum, default_value = "poisson")]
    pub arrivals: Process,
    /// Open loop, bursty: deviation of the gaps over their mean [default: 4]
    #[arg(long)]
    pub cv: Option<f64>,
    /// Open loop: for how long requests start, seconds
    #[arg(long, default_value_t = 10.0)]
    pub duration: f64,
    /// Open loop as recorded: a CSV file, azure-conv or azure-code
    #[arg(long, value_name = "FILE", conflicts_with_all = ["clients", "prompt_tokens", "output_tokens"])]
    pub trace: Option<String>,
    /// Trace: replay this many times as fast
    #[arg(long, default_value_t = 1.0, requires = "trace")]
    pub speed: f64,
    /// Trace: begin here, seconds of the trace
    #[arg(long, default_value_t = 0.0, requires = "trace")]
    pub start: f64,
    /// Trace: this much of it, seconds of the trace
    #[arg(long, requires = "trace")]
    pub length: Option<f64>,
    /// Trace: spread requests at random over this many seconds, for times that were rounded down to it
    #[arg(long, default_value_t = 0.0, requires = "trace")]
    pub spread: f64,
    /// Closed loop: this many clients, each asking again when answered
    #[arg(long, requires = "requests")]
    pub clients: Option<usize>,
    /// Closed loop: requests per round
    #[arg(long, requires = "clients")]
    pub requests: Option<u64>,
    /// Closed loop: rounds
    #[arg(long, default_value_t = 1, requires = "clients")]
    pub rounds: u32,
    /// Ask for streams
    #[arg(long)]
    pub stream: bool,
    /// Model name in the requests
    #[arg(long, default_value = "tidegate-sim-8b")]
    pub model: String,
    /// Path of the requests; under /v1/ they are POSTs in the OpenAI shape, otherwise GETs
    #[arg(long, default_value = "/v1/chat/completions")]
    pub path: String,
    /// A header of every request, as in 'name: value'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// Length of every prompt, tokens, told to a simulated engine by header
    #[arg(long)]
    pub prompt_tokens: Option<u32>,
    /// Length of every answer, tokens, told to a simulated engine by header and to others as max_tokens
    #[arg(long)]
    pub output_tokens: Option<u32>,
    /// Send prompts at full length, four bytes a token, with the blocks that a trace tells, instead of a short text and its length in a header
    #[arg(long)]
    pub full_prompts: bool,
    /// Most requests at a time; later ones wait, and waiting counts
    #[arg(long, default_value_t = 2000)]
    pub max_in_flight: usize,
    /// A request that takes longer than this many seconds has failed
    #[arg(long, default_value_t = 120.0)]
    pub timeout: f64,
    /// Goodput: first token within this many seconds
    #[arg(long, default_value_t = 2.0)]
    pub good_ttft: f64,
    /// Goodput: mean interval between tokens at most this many seconds
    #[arg(long, default_value_t = 0.1)]
    pub good_interval: f64,
    /// Name of the row
    #[arg(long, default_value = "load")]
    pub name: String,
    /// Seed of the arrivals
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// The plan, and which trace it replays; `Err` says what is wrong with the arguments.
    pub fn plan(&self) -> Result<(Plan, Option<String>), String> {
        for (flag, value) in [
            ("--rate", self.rate),
            ("--cv", self.cv.unwrap_or(DEFAULT_CV)),
            ("--speed", self.speed),
            ("--timeout", self.timeout),
            ("--duration", self.duration),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return Err(format!("{flag} {value} is out of range: above 0"));
            }
        }
        if self.cv.is_some() && (self.arrivals != Process::Bursty || self.clients.is_some() || self.trace.is_some()) {
            return Err("--cv has a meaning for --arrivals bursty only".to_owned());
        }
        if self.max_in_flight == 0 {
            return Err("--max-in-flight 0 is out of range: 1 or more".to_owned());
        }
        if self.rate * self.duration > MAX_REQUESTS as f64 {
            return Err(format!("--rate times --duration is more than {MAX_REQUESTS} requests"));
        }
        let (pattern, trace) = self.pattern()?;
        let get = !self.path.starts_with("/v1/");
        let plan = Plan {
            path: self.path.clone(),
            method: if get { Method::GET } else { Method::POST },
            model: self.model.clone(),
            stream: self.stream,
            headers: self.headers.iter().map(|h| parse_header(h)).collect::<Result<_, _>>()?,
            pattern,
            max_in_flight: self.max_in_flight,
            timeout: Duration::from_secs_f64(self.timeout.min(86_400.0)),
            good_ttft_s: self.good_ttft,
            good_interval_s: self.good_interval,
            full_prompts: self.full_prompts,
            seed: self.seed,
            ..Plan::new(&self.name, self.url.clone())
        };
        plan.authority().map_err(|e| e.to_string())?;
        Ok((plan, trace))
    }

    fn pattern(&self) -> Result<(Pattern, Option<String>), String> {
        let lengths = Lengths { prompt_tokens: self.prompt_tokens, output_tokens: self.output_tokens, recorded: None };
        if let (Some(clients), Some(requests)) = (self.clients, self.requests) {
            return Ok((Pattern::Closed { clients, requests, rounds: self.rounds, lengths }, None));
        }
        if let Some(name) = &self.trace {
            let (trace, label) = read_trace(name, self.seed)?;
            let trace = self.cut(trace)?;
            return Ok((Pattern::Trace(trace), Some(label)));
        }
        let (rate, cv) = (self.rate, self.cv.unwrap_or(DEFAULT_CV));
        let arrivals = match self.arrivals {
            Process::Constant => Arrivals::Constant { rate },
            Process::Poisson => Arrivals::Poisson { rate },
            Process::Bursty => Arrivals::Bursty { rate, cv },
        };
        Ok((Pattern::Open { arrivals, length: Duration::from_secs_f64(self.duration.min(1e7)), lengths }, None))
    }

    fn cut(&self, trace: Trace) -> Result<Trace, String> {
        let seconds = |flag: &str, s: f64| {
            Duration::try_from_secs_f64(s).map_err(|_| format!("{flag} {s} is out of range: 0 or more seconds"))
        };
        let length = self.length.map(|s| seconds("--length", s)).transpose()?;
        let spread = seconds("--spread", self.spread)?;
        let span = trace.span();
        let trace = trace.spread(spread, &mut Rng::new(self.seed)).window(seconds("--start", self.start)?, length);
        if trace.requests.is_empty() {
            return Err(format!("no request of the trace is in this window; it lasts {:.0} s", span.as_secs_f64()));
        }
        Ok(trace.speed_up(self.speed))
    }
}

/// The trace and how to call it.
fn read_trace(name: &str, seed: u64) -> Result<(Trace, String), String> {
    let (file, stand_in) = match name {
        "azure-conv" => ("azure2023_conv.csv", Some(Synthetic::conversation())),
        "azure-code" => ("azure2023_code.csv", Some(Synthetic::code())),
        other => (other, None),
    };
    let path = if stand_in.is_some() { Path::new(TRACES).join(file) } else { PathBuf::from(file) };
    match (std::fs::read_to_string(&path), stand_in) {
        (Ok(text), _) => {
            let trace = Trace::of_text(&text).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok((trace, name.to_owned()))
        }
        (Err(_), Some(synthetic)) => Ok((synthetic.trace(seed), format!("{name} (synthetic)"))),
        (Err(e), None) => Err(format!("cannot read {name}: {e}; a CSV file, azure-conv or azure-code is expected")),
    }
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("-H {text:?} is not a header; example: -H 'authorization: Bearer KEY'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    Ok((name, value.trim().parse().map_err(|_| wrong())?))
}
