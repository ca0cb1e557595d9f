//! The engines of the article (its three-server model): response time and rejects follow a load that mostly others cause.
//!
//! u = clip(b + k n, 0, 1) with background b and own in-flight n; a request takes 0.1 + 0.9 u seconds, fixed when it is admitted;
//! u > 0.9 rejects at once with 503 `overloaded`. Idealised on purpose: for claims about language models use [`super::llm`].

use tidegate_core::rng::Rng;
use tidegate_core::time::{Instant, duration_from_secs};

use super::background::{Background, BackgroundParams};
use super::timeline::Timeline;
use super::{Admission, Detail, Emission, EngineModel, EngineRequest, Rejection, RequestId, Status};

/// Parameters of [`Article`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArticleParams {
    /// Load that one request of ours adds, `>= 0`.
    pub load_per_request: f64,
    /// Load above which arrivals are rejected, `0..=1`.
    pub max_load: f64,
    /// Response time at load 0, seconds.
    pub base_s: f64,
    /// Response time added at load 1, seconds.
    pub slope_s: f64,
    /// What others cause.
    pub background: BackgroundParams,
}

impl Default for ArticleParams {
    /// Setting A2.
    fn default() -> Self {
        Self {
            load_per_request: 0.01,
            max_load: 0.9,
            base_s: 0.1,
            slope_s: 0.9,
            background: BackgroundParams::default(),
        }
    }
}

impl ArticleParams {
    /// Setting B: momentum drift, made for old information.
    pub fn stale() -> Self {
        let background = BackgroundParams {
            tv_s: 3.0,
            sv: 0.25,
            low: 0.0,
            high: 1.1,
            surge_rate: 0.0,
            ..BackgroundParams::default()
        };
        Self { background, ..Self::default() }
    }

    /// Setting C: own requests weigh heavily, so that herds form.
    pub fn herd() -> Self {
        let background = BackgroundParams {
            tv_s: 2.0,
            sv: 0.1,
            low: 0.0,
            high: 0.6,
            surge_rate: 0.0,
            ..BackgroundParams::default()
        };
        Self { load_per_request: 0.05, background, ..Self::default() }
    }
}

/// One engine of the article.
#[derive(Debug)]
pub struct Article {
    params: ArticleParams,
    background: Background,
    running: Timeline,
    next_id: u64,
    prompt_tokens: u64,
    generation_tokens: u64,
}

impl Article {
    /// An idle engine whose background path follows from `rng`.
    pub fn new(params: ArticleParams, detail: Detail, rng: Rng) -> Self {
        let background = Background::new(params.background, rng);
        Self { params, background, running: Timeline::new(detail), next_id: 0, prompt_tokens: 0, generation_tokens: 0 }
    }

    fn load(&self, background: f64) -> f64 {
        (background + self.params.load_per_request * self.running.len() as f64).clamp(0.0, 1.0)
    }
}

impl EngineModel for Article {
    fn arrive(&mut self, now: Instant, request: &EngineRequest) -> Admission {
        self.background.advance(now);
        let load = self.load(self.background.level());
        if load > self.params.max_load {
            return Admission::Rejected(Rejection { status: 503, code: "overloaded", retry_after: None });
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.prompt_tokens += u64::from(request.prompt_tokens);
        self.running.start(now, id, request, duration_from_secs(self.params.base_s + self.params.slope_s * load));
        Admission::Accepted(id)
    }

    fn cancel(&mut self, _now: Instant, id: RequestId) -> bool {
        self.running.cancel(id)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.running.next_at()
    }

    fn advance(&mut self, now: Instant, out: &mut Vec<Emission>) {
        self.background.advance(now);
        while let Some(finished) = self.running.pop(now, out) {
            self.generation_tokens += finished.map_or(0, |f| u64::from(f.tokens));
        }
    }

    fn status_at(&self, now: Instant) -> Status {
        let load = self.load(self.background.level_at(now));
        Status {
            load,
            response_time_s: self.params.base_s + self.params.slope_s * load,
            running: self.running.len() as u32,
            prompt_tokens: self.prompt_tokens,
            generation_tokens: self.generation_tokens,
            ..Status::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Emitted;
    use super::*;

    const REQUEST: EngineRequest =
        EngineRequest { prompt_tokens: 1, cached_tokens: 0, query: None, output_tokens: 1, stream: false };

    /// An engine whose background is nailed to `level`.
    fn nailed(level: f64, load_per_request: f64) -> Article {
        let background =
            BackgroundParams { sv: 0.0, low: level, high: level, surge_rate: 0.0, ..BackgroundParams::default() };
        let params = ArticleParams { load_per_request, background, ..ArticleParams::default() };
        Article::new(params, Detail::EveryToken, Rng::new(1))
    }

    #[test]
    fn service_time_is_fixed_at_admission() {
        let mut e = nailed(0.5, 0.1);
        // u = 0.5, then 0.6: 0.55 s and 0.64 s.
        assert!(matches!(e.arrive(Instant::ORIGIN, &REQUEST), Admission::Accepted(RequestId(0))));
        assert!(matches!(e.arrive(Instant::ORIGIN, &REQUEST), Admission::Accepted(RequestId(1))));
        let mut out = Vec::new();
        e.advance(Instant::from_secs_f64(2.0), &mut out);
        let ends: Vec<u64> = out.iter().map(|x| x.at.as_nanos() / 1_000_000).collect();
        assert_eq!(ends, [550, 640]);
        assert!(out.iter().all(|x| x.what == Emitted::Done { tokens: 1 }));
    }

    #[test]
    fn rejects_at_once_above_nine_tenths_and_recovers() {
        let mut e = nailed(0.85, 0.05);
        assert!(matches!(e.arrive(Instant::ORIGIN, &REQUEST), Admission::Accepted(_)), "0.85");
        assert!(matches!(e.arrive(Instant::ORIGIN, &REQUEST), Admission::Accepted(_)), "0.90 is not above");
        let third = e.arrive(Instant::ORIGIN, &REQUEST);
        assert_eq!(third, Admission::Rejected(Rejection { status: 503, code: "overloaded", retry_after: None }));
        let status = e.status_at(Instant::ORIGIN);
        assert!(libm::fabs(status.load - 0.95) < 1e-12 && libm::fabs(status.response_time_s - 0.955) < 1e-12);
        e.advance(Instant::from_secs_f64(1.0), &mut Vec::new());
        assert!(matches!(e.arrive(Instant::from_secs_f64(1.0), &REQUEST), Admission::Accepted(_)));
    }
}
