//! Which engine to build: the three models behind one name.

use tidegate_core::rng::Rng;

use super::article::{Article, ArticleParams};
use super::fixed::{Fixed, FixedParams};
use super::llm::{Llm, LlmParams};
use super::{Detail, Engine, EngineModel};

/// Stream of the seed from which an article engine's background is drawn.
const BACKGROUND_STREAM: u64 = 1;

/// A model and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EngineSpec {
    /// A delay per request.
    Fixed(FixedParams),
    /// The article's engine (`--model load`).
    Load(ArticleParams),
    /// Continuous batching.
    Llm(LlmParams),
}

impl EngineSpec {
    /// An idle engine; equal seeds give equal engines.
    pub fn build(&self, seed: u64, speed: f64, detail: Detail) -> Engine {
        let model: Box<dyn EngineModel> = match *self {
            Self::Fixed(params) => Box::new(Fixed::new(params, detail)),
            Self::Load(params) => Box::new(Article::new(params, detail, Rng::stream(seed, BACKGROUND_STREAM))),
            Self::Llm(params) => Box::new(Llm::new(params, detail)),
        };
        Engine::new(model, speed)
    }

    /// The model's name: `fixed`, `load` or `llm`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::Load(_) => "load",
            Self::Llm(_) => "llm",
        }
    }
}
