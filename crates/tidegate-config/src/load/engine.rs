//! The engines whose metrics are known by name.

/// An inference engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM's own server.
    TrtLlm,
    /// Triton with the TensorRT-LLM backend.
    Triton,
    /// llama.cpp's server.
    LlamaCpp,
    /// Text Generation Inference.
    Tgi,
    /// Text Embeddings Inference.
    Tei,
}

/// The word that leaves it to the page.
pub(super) const AUTO: &str = "auto";
/// What may be written for `engine`.
pub(super) const WORDS: &[&str] = &[AUTO, "vllm", "sglang", "trtllm", "triton", "llama_cpp", "tgi", "tei"];

impl Engine {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Vllm, Self::Sglang, Self::TrtLlm, Self::Triton, Self::LlamaCpp, Self::Tgi, Self::Tei];

    /// Its word in the config.
    pub fn as_str(self) -> &'static str {
        WORDS[self as usize + 1]
    }

    /// The engine of a word; `None` for `auto`.
    pub(super) fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|e| e.as_str() == word)
    }
}
