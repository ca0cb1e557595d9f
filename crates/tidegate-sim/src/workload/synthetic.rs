//! Traces this project makes itself, for where the recorded ones are absent.
//!
//! Two stand-ins whose rate, burstiness and length quantiles are close to the Azure 2023 traces; they share no data with them, so
//! results on them are not results on the real ones and are labelled `synthetic`.

use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, duration_from_secs};

use super::arrivals::Arrivals;
use super::lengths::LogNormal;
use super::trace::{Trace, TraceRequest};

/// What a stand-in is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Synthetic {
    /// When requests come.
    pub arrivals: Arrivals,
    /// Prompt lengths.
    pub prompt: LogNormal,
    /// Answer lengths.
    pub output: LogNormal,
    /// How long it is.
    pub span: Duration,
}

impl Synthetic {
    /// Like conversation: 5.5/s, CV 1.1, prompts 1020/2735 and answers 129/424 (50 % / 90 %), 58 minutes.
    pub fn conversation() -> Self {
        Self {
            arrivals: Arrivals::Bursty { rate: 5.53, cv: 1.1 },
            prompt: LogNormal::from_quantiles(1020.0, 2735.0, 14_050),
            output: LogNormal::from_quantiles(129.0, 424.0, 1000),
            span: Duration::from_secs(58 * 60),
        }
    }

    /// Like code completion: 2.6/s, CV 13, prompts 1469/5194 and answers 13/55, 57 minutes.
    pub fn code() -> Self {
        Self {
            arrivals: Arrivals::Bursty { rate: 2.57, cv: 13.0 },
            prompt: LogNormal::from_quantiles(1469.0, 5194.0, 7437),
            output: LogNormal::from_quantiles(13.0, 55.0, 1900),
            span: Duration::from_secs(57 * 60),
        }
    }

    /// The trace that follows from `seed`.
    pub fn trace(&self, seed: u64) -> Trace {
        let (mut when, mut lengths) = (Rng::stream(seed, 1), Rng::stream(seed, 2));
        let mut requests = Vec::new();
        let mut at_s = self.arrivals.gap_s(&mut when);
        while at_s < self.span.as_secs_f64() {
            requests.push(TraceRequest {
                at: duration_from_secs(at_s),
                prompt_tokens: self.prompt.draw(&mut lengths),
                output_tokens: self.output.draw(&mut lengths),
                ..TraceRequest::default()
            });
            at_s += self.arrivals.gap_s(&mut when);
        }
        Trace { requests, ..Trace::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_like_what_it_stands_for() {
        let t = Synthetic::conversation().trace(1);
        // 19,250 expected, s.d. 1.1 * sqrt(19,250) = 153.
        assert!(t.requests.len().abs_diff(19_250) < 5 * 153, "{}", t.requests.len());
        let mut out: Vec<u32> = t.requests.iter().map(|r| r.output_tokens).collect();
        out.sort_unstable();
        assert!(out[out.len() / 2].abs_diff(129) < 8 && out[out.len() * 9 / 10].abs_diff(424) < 30);
        assert_eq!(t, Synthetic::conversation().trace(1), "equal seeds, equal traces");
        let code = Synthetic::code().trace(1);
        // s.d. 13 * sqrt(8,789) = 1,219.
        assert!(code.requests.len().abs_diff(8789) < 5 * 1219, "{}", code.requests.len());
    }
}
