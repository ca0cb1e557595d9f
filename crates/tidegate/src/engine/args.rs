//! The command line of `tidegate engine`.

use std::net::SocketAddr;

use tidegate_sim::engine::EngineSpec;
use tidegate_sim::engine::article::ArticleParams;
use tidegate_sim::engine::fixed::FixedParams;
use tidegate_sim::engine::llm::{LlmParams, PRESETS};

use super::Config;

/// How an engine computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Model {
    /// Every request takes --delay, in parallel or with --slots at a time
    Fixed,
    /// Service time 0.1 + 0.9 u seconds, moved by background load; rejects above 0.9
    Load,
    /// Continuous batching with prefill, decoding and KV memory
    Llm,
}

/// A simulated inference engine: OpenAI-compatible, with faults that can be switched on while it runs
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  tidegate engine --model llm --preset a100-8b --address 127.0.0.1:8000
  tidegate engine --model fixed --delay 7 --slots 1 --speed 10 --name slow
  tidegate engine --model load --json
  curl http://CONTROL/fault -d '{\"kind\":\"cut\",\"rate\":0.1,\"for_s\":30}'
  curl http://CONTROL/stats

Faults, each with the fields it takes; for_s is how many seconds it lasts, for good without it:
  none         nothing is wrong: ends a fault
  refuse       connections are refused and existing ones closed
  reset        connections, new and old, are reset
  hang         connections are accepted, nothing is answered, streams freeze
  slow         everything takes factor (default 4) times as long
  status       a share rate (default 1) of the requests is answered with status (default 503), and retry_after_s if given
  cut          a share rate (default 1) of the answers breaks off in the middle
  no_progress  health checks are fine, no request makes progress

Exit codes: 0 stopped by Ctrl-C, 1 failed, 2 wrong usage.")]
pub struct Args {
    /// How it computes
    #[arg(long, value_enum, default_value = "llm")]
    pub model: Model,
    /// Parameters by name: a100-8b, h100-8b, half-a100 (llm); article, article-stale, article-herd (load)
    #[arg(long)]
    pub preset: Option<String>,
    /// Time a request takes, seconds (fixed) [default: 1]
    #[arg(long)]
    pub delay: Option<f64>,
    /// Requests served at a time; without it any number (fixed)
    #[arg(long)]
    pub slots: Option<u32>,
    /// Run this many times as fast
    #[arg(long, default_value_t = 1.0)]
    pub speed: f64,
    /// Where it serves users; port 0 lets the system choose
    #[arg(long, default_value = "127.0.0.1:0")]
    pub address: SocketAddr,
    /// Where faults are set and counts are read
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub control: SocketAddr,
    /// Its name, as /infer gives it
    #[arg(long, default_value = "engine")]
    pub name: String,
    /// The model name it serves
    #[arg(long, default_value = "tidegate-sim-8b")]
    pub served_model: String,
    /// Median length of an answer, tokens, where the request does not fix it [default: 130 for llm, 20 otherwise]
    #[arg(long)]
    pub output_tokens: Option<u32>,
    /// Cap on a stream's tokens per second, so that hundreds of streams fit on a small machine
    #[arg(long)]
    pub max_tokens_per_s: Option<f64>,
    /// Seed of lengths, faults and background load
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print the addresses as one line of JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// The engine they describe; `Err` says what is wrong with them.
    pub fn config(&self) -> Result<Config, String> {
        positive("--speed", self.speed)?;
        if let Some(rate) = self.max_tokens_per_s {
            positive("--max-tokens-per-s", rate)?;
        }
        if let Some(delay) = self.delay.filter(|s| !(s.is_finite() && *s >= 0.0)) {
            return Err(format!("--delay {delay} is out of range: 0 or more seconds"));
        }
        for (flag, value) in [("--slots", self.slots), ("--output-tokens", self.output_tokens)] {
            if value == Some(0) {
                return Err(format!("{flag} 0 is out of range: 1 or more"));
            }
        }
        let mut config = Config::new(&self.name, self.spec()?);
        config.served_model.clone_from(&self.served_model);
        (config.speed, config.seed) = (self.speed, self.seed);
        (config.address, config.control_address) = (self.address, self.control);
        config.max_tokens_per_s = self.max_tokens_per_s;
        if let Some(median) = self.output_tokens {
            config.output.median = f64::from(median);
        }
        Ok(config)
    }

    fn spec(&self) -> Result<EngineSpec, String> {
        let preset = self.preset.as_deref();
        for (flag, is_set) in [("--delay", self.delay.is_some()), ("--slots", self.slots.is_some())] {
            if is_set && self.model != Model::Fixed {
                return Err(format!("{flag} has a meaning for --model fixed only"));
            }
        }
        match (self.model, preset) {
            (Model::Fixed, None) => {
                let delay_s = self.delay.unwrap_or(1.0);
                Ok(EngineSpec::Fixed(FixedParams { delay_s, slots: self.slots, ..FixedParams::default() }))
            }
            (Model::Fixed, Some(_)) => Err("--preset has no meaning for --model fixed; use --delay and --slots".into()),
            (Model::Load, None | Some("article")) => Ok(EngineSpec::Load(ArticleParams::default())),
            (Model::Load, Some("article-stale")) => Ok(EngineSpec::Load(ArticleParams::stale())),
            (Model::Load, Some("article-herd")) => Ok(EngineSpec::Load(ArticleParams::herd())),
            (Model::Load, Some(other)) => {
                Err(format!("--preset {other} is unknown to --model load: article, article-stale, article-herd"))
            }
            (Model::Llm, preset) => {
                let name = preset.unwrap_or("a100-8b");
                let params = LlmParams::preset(name).ok_or_else(|| {
                    let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
                    format!("--preset {name} is unknown to --model llm: {}", names.join(", "))
                })?;
                // The cap is meant in the users' time, the parameters are in the engine's.
                let max_tokens_per_s = self.max_tokens_per_s.map(|rate| rate / self.speed);
                Ok(EngineSpec::Llm(LlmParams { max_tokens_per_s, ..params }))
            }
        }
    }
}

fn positive(flag: &str, value: f64) -> Result<(), String> {
    let ok = value.is_finite() && value > 0.0;
    if ok { Ok(()) } else { Err(format!("{flag} {value} is out of range: above 0")) }
}
