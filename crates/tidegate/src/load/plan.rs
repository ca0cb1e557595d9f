//! What to ask, of whom, and when.

use std::fmt::Write as _;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::uri::Authority;
use http::{Method, Uri};
use serde_json::json;
use tidegate_core::rng::Rng;
use tidegate_core::time::duration_from_secs;
use tidegate_sim::workload::{Arrivals, Trace, TraceRequest};

/// Streams of the seed.
const ARRIVALS_STREAM: u64 = 201;
/// Most requests of an open-loop plan.
pub(super) const MAX_REQUESTS: usize = 5_000_000;
/// What a token counts as wherever nobody tokenizes.
const BYTES_PER_TOKEN: usize = 4;
/// Sent where the prompt's length is fixed by a header, and repeated where it is sent in full.
const PROMPT: &str = "Tell me how the tide gate opens and closes with the water under the bridge. ";

/// Lengths that a request fixes, tokens; `None` leaves it to the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Prompt, tokens.
    pub prompt_tokens: Option<u32>,
    /// Answer, tokens.
    pub output_tokens: Option<u32>,
    /// The place of the request in the plan's trace, by which its prompt's blocks are found.
    pub recorded: Option<u32>,
}

/// One request of an open-loop plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shot {
    /// Intended start, after the plan's start.
    pub at: Duration,
    /// Its lengths.
    pub lengths: Lengths,
}

/// When requests start.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// By an arrival process, for a time.
    Open {
        /// The process.
        arrivals: Arrivals,
        /// For how long requests start.
        length: Duration,
        /// Lengths of all of them.
        lengths: Lengths,
    },
    /// As recorded; already cut and sped up.
    Trace(Trace),
    /// Clients that ask again when answered.
    Closed {
        /// How many, at least 1.
        clients: usize,
        /// Requests per round, by all of them together.
        requests: u64,
        /// Rounds, one after another.
        rounds: u32,
        /// Lengths of all requests.
        lengths: Lengths,
    },
}

/// A load to put on a service.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the report's row.
    pub name: String,
    /// Base URL: scheme `http`, host, port; a path in it goes before `path`.
    pub url: Uri,
    /// Path of the requests.
    pub path: String,
    /// `POST` with a body in the OpenAI shape that belongs to the path, or `GET` without.
    pub method: Method,
    /// Model name in the body.
    pub model: String,
    /// Whether to ask for streams.
    pub stream: bool,
    /// Headers of every request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// When requests start.
    pub pattern: Pattern,
    /// Most requests at a time; later ones wait here, and their latency counts from their intended start all the same.
    pub max_in_flight: usize,
    /// After how long, from its start, a request counts as failed.
    pub timeout: Duration,
    /// Goodput counts answers whose first token came within this, seconds,
    pub good_ttft_s: f64,
    /// and whose mean interval between tokens is at most this, seconds.
    pub good_interval_s: f64,
    /// Send prompts at their full length, four bytes a token, instead of naming it in a header.
    pub full_prompts: bool,
    /// Seed of arrivals.
    pub seed: u64,
}

impl Plan {
    /// Streams of chat to `url`, one a second for ten seconds; change what you need.
    pub fn new(name: &str, url: Uri) -> Self {
        Self {
            name: name.to_owned(),
            url,
            path: "/v1/chat/completions".to_owned(),
            method: Method::POST,
            model: "tidegate-sim-8b".to_owned(),
            stream: true,
            headers: Vec::new(),
            pattern: Pattern::Open {
                arrivals: Arrivals::Poisson { rate: 1.0 },
                length: Duration::from_secs(10),
                lengths: Lengths::default(),
            },
            max_in_flight: 2000,
            timeout: Duration::from_secs(120),
            good_ttft_s: 2.0,
            good_interval_s: 0.1,
            full_prompts: false,
            seed: 1,
        }
    }

    /// Host and port of the service.
    pub(super) fn authority(&self) -> anyhow::Result<&Authority> {
        let scheme = self.url.scheme_str().unwrap_or("http");
        anyhow::ensure!(scheme == "http", "{}: only http is supported, found {scheme}", self.url);
        let authority = self.url.authority();
        let authority =
            authority.ok_or_else(|| anyhow::anyhow!("{}: no host; example: http://127.0.0.1:8080", self.url))?;
        let names_port = !authority.as_str().ends_with(authority.host());
        let is_port = authority.port_u16().is_some_and(|port| port > 0);
        anyhow::ensure!(is_port || !names_port, "{}: the port is a number from 1 to 65535", self.url);
        Ok(authority)
    }

    /// Path of the requests, after the base URL's own.
    pub(super) fn target(&self) -> String {
        format!("{}{}", self.url.path().trim_end_matches('/'), self.path)
    }

    /// The requests of an open-loop plan in order of their start; empty for a closed loop.
    pub fn shots(&self) -> Vec<Shot> {
        match &self.pattern {
            Pattern::Closed { .. } => Vec::new(),
            Pattern::Trace(trace) => {
                let lengths = |place, r| Lengths { recorded: u32::try_from(place).ok(), ..Lengths::of(r) };
                trace.requests.iter().enumerate().map(|(k, r)| Shot { at: r.at, lengths: lengths(k, r) }).collect()
            }
            Pattern::Open { arrivals, length, lengths } => {
                let mut rng = Rng::stream(self.seed, ARRIVALS_STREAM);
                let (mut at_s, mut shots) = (arrivals.gap_s(&mut rng), Vec::new());
                while at_s < length.as_secs_f64() && shots.len() < MAX_REQUESTS {
                    shots.push(Shot { at: duration_from_secs(at_s), lengths: *lengths });
                    at_s += arrivals.gap_s(&mut rng);
                }
                shots
            }
        }
    }

    /// A prompt of so many tokens: the blocks that the trace says, else one that begins as no other does.
    fn full_prompt(&self, tokens: u32, lengths: Lengths, number: u64) -> String {
        let bytes = tokens as usize * BYTES_PER_TOKEN;
        let mut text = String::with_capacity(bytes + PROMPT.len());
        if let (Pattern::Trace(trace), Some(place)) = (&self.pattern, lengths.recorded) {
            let blocks = trace.requests.get(place as usize).into_iter().flat_map(|r| &r.blocks);
            for id in blocks.flat_map(|&(first, last)| first..=last) {
                let end = text.len() + trace.tokens_of_block() as usize * BYTES_PER_TOKEN;
                while text.len() < end.min(bytes) {
                    let _ = write!(text, "Block {id} of it. ");
                }
                text.truncate(end.min(bytes));
            }
        }
        if text.is_empty() {
            let _ = write!(text, "Request {number}. ");
        }
        while text.len() < bytes {
            text.push_str(PROMPT);
        }
        text.truncate(bytes);
        text
    }

    /// The body of request `number`.
    pub(super) fn body(&self, lengths: Lengths, number: u64) -> String {
        let text = match lengths.prompt_tokens.filter(|_| self.full_prompts) {
            Some(tokens) => self.full_prompt(tokens, lengths, number),
            None => PROMPT.to_owned(),
        };
        let mut body = if self.path.ends_with("/embeddings") {
            return json!({"model": self.model, "input": text}).to_string();
        } else if self.path.ends_with("/chat/completions") {
            json!({"model": self.model, "messages": [{"role": "user", "content": text}]})
        } else {
            json!({"model": self.model, "prompt": text})
        };
        if self.stream {
            body["stream"] = json!(true);
        }
        if let Some(tokens) = lengths.output_tokens {
            body["max_tokens"] = json!(tokens);
        }
        body.to_string()
    }
}

impl Lengths {
    fn of(r: &TraceRequest) -> Self {
        Self { prompt_tokens: Some(r.prompt_tokens), output_tokens: Some(r.output_tokens.max(1)), recorded: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_arrivals() {
        let plan = Plan::new("a", Uri::from_static("http://127.0.0.1:1/base/"));
        assert_eq!(plan.shots(), plan.shots());
        assert_ne!(plan.shots(), Plan { seed: 2, ..plan.clone() }.shots());
        assert_eq!(plan.target(), "/base/v1/chat/completions");
    }

    #[test]
    fn a_full_prompt_has_four_bytes_a_token() {
        let plan = Plan { full_prompts: true, ..Plan::new("a", Uri::from_static("http://127.0.0.1:1")) };
        let lengths = Lengths { prompt_tokens: Some(1000), output_tokens: Some(5), recorded: None };
        let body: serde_json::Value = serde_json::from_str(&plan.body(lengths, 7)).unwrap();
        assert_eq!(body["messages"][0]["content"].as_str().map(str::len), Some(4000));
        assert_eq!((&body["max_tokens"], &body["stream"]), (&json!(5), &json!(true)));
        assert_ne!(plan.body(lengths, 7), plan.body(lengths, 8), "no engine has any of it in memory");
    }

    #[test]
    fn a_recorded_prompt_has_the_blocks_that_the_trace_says() {
        let request = |tokens, blocks| TraceRequest {
            prompt_tokens: tokens,
            output_tokens: 1,
            blocks,
            ..TraceRequest::default()
        };
        let requests = vec![request(40, vec![(5, 6), (9, 9)]), request(45, vec![(5, 5), (7, 7), (9, 9)])];
        let pattern = Pattern::Trace(Trace { requests, block_tokens: 16, ..Trace::default() });
        let plan = Plan { full_prompts: true, pattern, ..Plan::new("a", Uri::from_static("http://127.0.0.1:1")) };
        let text = |place: usize| {
            let lengths = plan.shots()[place].lengths;
            plan.full_prompt(lengths.prompt_tokens.unwrap(), lengths, place as u64)
        };
        let (one, other) = (text(0), text(1));
        assert_eq!((one.len(), other.len()), (160, 180));
        assert!(one[..64] == other[..64] && one[64..128] != other[64..128] && one[128..] == other[128..160]);
    }
}
