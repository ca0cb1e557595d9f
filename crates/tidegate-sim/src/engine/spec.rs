//! Which engine to build: the models behind one name.

use tidegate_core::rng::Rng;

use super::article::{Article, ArticleParams};
use super::cpu::{Cpu, CpuParams};
use super::embedding::{Embedding, EmbeddingParams};
use super::fixed::{Fixed, FixedParams};
use super::llm::{Llm, LlmParams};
use super::vector::{Vector, VectorParams};
use super::{Detail, Engine, EngineModel};

/// Stream of the seed from which an article engine's background is drawn.
const BACKGROUND_STREAM: u64 = 1;
/// Stream of the seed from which it is drawn what a vector index has in its cache.
const CACHE_STREAM: u64 = 6;

/// A model and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EngineSpec {
    /// A delay per request.
    Fixed(FixedParams),
    /// The article's engine (`--model load`).
    Load(ArticleParams),
    /// Continuous batching.
    Llm(LlmParams),
    /// Batches that are collected in a window.
    Embedding(EmbeddingParams),
    /// A search that is faster where its answer is cached.
    Vector(VectorParams),
    /// Cores that all requests share.
    Cpu(CpuParams),
}

impl EngineSpec {
    /// An idle engine; equal seeds give equal engines.
    pub fn build(&self, seed: u64, speed: f64, detail: Detail) -> Engine {
        let model: Box<dyn EngineModel> = match *self {
            Self::Fixed(params) => Box::new(Fixed::new(params, detail)),
            Self::Load(params) => Box::new(Article::new(params, detail, Rng::stream(seed, BACKGROUND_STREAM))),
            Self::Llm(params) => Box::new(Llm::new(params, detail)),
            Self::Embedding(params) => Box::new(Embedding::new(params, detail)),
            Self::Vector(params) => Box::new(Vector::new(params, detail, Rng::stream(seed, CACHE_STREAM))),
            Self::Cpu(params) => Box::new(Cpu::new(params, detail)),
        };
        Engine::new(model, speed)
    }

    /// The model's name, as a fleet calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::Load(_) => "load",
            Self::Llm(_) => "llm",
            Self::Embedding(_) => "embedding",
            Self::Vector(_) => "vector",
            Self::Cpu(_) => "cpu",
        }
    }
}
