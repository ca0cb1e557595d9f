//! The prefix cache of a language-model engine: which blocks of prompts are in its KV memory, the least recently used going first.

use tidegate_core::id::EndpointId;
use tidegate_core::prefix::{PrefixConfig, PrefixIndex};

use super::EngineSpec;

/// The one endpoint of the index: the engine itself.
const OWN: EndpointId = EndpointId(0);
/// Bound on the index, bytes; the engine's own KV memory is the tighter one.
const MEMORY: usize = 1 << 30;

/// The cache.
#[derive(Debug)]
pub struct PromptCache {
    index: PrefixIndex,
    found: Vec<(EndpointId, f64)>,
}

impl PromptCache {
    /// An empty one, for an engine that has KV memory.
    pub fn of(spec: &EngineSpec) -> Option<Self> {
        let EngineSpec::Llm(params) = spec else { return None };
        let bounds = PrefixConfig { tokens: params.kv_tokens, memory: MEMORY };
        Some(Self { index: PrefixIndex::new(bounds, 1.0), found: Vec::new() })
    }

    /// Prompt tokens of these blocks, of `block_tokens` each, that are in it, from the first on without a gap; from now on all of them are.
    pub fn find(&mut self, blocks: &[u64], block_tokens: u32) -> u32 {
        if blocks.is_empty() {
            return 0;
        }
        self.index.look_up(blocks, block_tokens, &mut self.found);
        self.index.on_sent(OWN, blocks, block_tokens);
        self.found.first().map_or(0, |f| f.1 as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixed::FixedParams;
    use super::super::llm::LlmParams;
    use super::*;

    #[test]
    fn a_prompt_is_found_as_far_as_it_is_the_same_from_its_beginning_on() {
        let params = LlmParams { kv_tokens: 1600, ..LlmParams::A100_8B };
        let mut cache = PromptCache::of(&EngineSpec::Llm(params)).unwrap();
        assert_eq!(cache.find(&[1, 2, 3], 16), 0);
        assert_eq!([cache.find(&[1, 2, 9], 16), cache.find(&[1, 2, 3, 4], 16)], [32, 48]);
        assert_eq!(cache.find(&[7, 2, 3], 16), 0, "what stands before it is not the same");
        assert_eq!(cache.find(&[], 16), 0);
        let long: Vec<u64> = (100..200).collect();
        cache.find(&long, 16);
        assert_eq!(cache.find(&[1, 2, 3], 16), 0, "a hundred blocks is all there is room for");
        assert!(PromptCache::of(&EngineSpec::Fixed(FixedParams::default())).is_none());
    }
}
