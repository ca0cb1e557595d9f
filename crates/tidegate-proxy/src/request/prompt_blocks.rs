//! A prompt as chained hashes of its blocks, by which a pool knows who has computed its beginning before.
//!
//! Blocks are of bytes, at the usual estimate of bytes per token, over what stands in the body before and in the prompt, in the order in which
//! engines put it: tools, system, messages or prompt. The raw text is hashed and not what it means: two turns of one conversation are sent by
//! the same client in the same writing. Only whole blocks count, so the end of one turn, which the next goes on from, spoils at most one.

use crate::request::sniff::{BYTES_PER_TOKEN, Fields};
use crate::state::pool::PoolHandle;
use tidegate_core::hash::hash_bytes;
use tidegate_core::prefix::chain;

/// Most blocks of a prompt that are looked at.
const MAX_BLOCKS: usize = 512;
/// Members of a body that make its prompt, in the order in which engines put them.
const PARTS: [&str; 8] = ["tools", "system", "messages", "prompt", "input", "inputs", "contents", "query"];

/// The hashes for `pool`, and the tokens of a block; nothing is looked at where it remembers nothing.
pub(crate) fn of(fields: &Fields<'_>, pool: &PoolHandle) -> (Vec<u64>, u32) {
    let block_tokens = pool.settings().prefix_cache.as_ref().map(|c| c.block);
    block_tokens.map_or_else(Default::default, |block| (prefix(fields, block), block))
}

/// The hashes of the prompt's complete blocks of `block_tokens` tokens each, the first block's first. Prompts for different models have
/// nothing in common.
fn prefix(fields: &Fields<'_>, block_tokens: u32) -> Vec<u64> {
    let size = block_tokens as usize * BYTES_PER_TOKEN;
    let parts: Vec<&[u8]> = PARTS.iter().filter_map(|name| fields.raw(name)).map(str::as_bytes).collect();
    let bytes: usize = parts.iter().map(|p| p.len()).sum();
    let whole = (bytes / size.max(1)).min(MAX_BLOCKS);
    if whole == 0 {
        return Vec::new();
    }
    let model = fields.raw("model").map_or(0, |m| hash_bytes(m.as_bytes()));
    let mut blocks = Blocks { parts: &parts, at: 0, size, spare: Vec::new() };
    let hashes = (0..whole).map_while(|n| blocks.next_hash().map(|h| if n == 0 { h ^ model } else { h }));
    chain(hashes).collect()
}

/// Walks over the parts block by block; only a block that lies in two parts is copied.
struct Blocks<'p, 'b> {
    parts: &'p [&'b [u8]],
    at: usize,
    size: usize,
    spare: Vec<u8>,
}

impl Blocks<'_, '_> {
    fn next_hash(&mut self) -> Option<u64> {
        self.spare.clear();
        loop {
            let left = self.parts.first()?.get(self.at..)?;
            let wanted = self.size - self.spare.len();
            match left.get(..wanted) {
                Some(block) if self.spare.is_empty() => {
                    self.at += wanted;
                    return Some(hash_bytes(block));
                }
                Some(rest) => {
                    self.spare.extend_from_slice(rest);
                    self.at += wanted;
                    return Some(hash_bytes(&self.spare));
                }
                None => {
                    self.spare.extend_from_slice(left);
                    (self.parts, self.at) = (self.parts.get(1..)?, 0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Vec<u64> {
        prefix(&Fields::parse(body.as_bytes()).unwrap(), 4)
    }

    fn chat(model: &str, turns: &[&str]) -> String {
        let turns: Vec<String> = turns.iter().map(|t| format!("{{\"role\":\"user\",\"content\":\"{t}\"}}")).collect();
        format!("{{\"stream\":true,\"model\":\"{model}\",\"messages\":[{}]}}", turns.join(","))
    }

    fn common(a: &[u64], b: &[u64]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn a_conversation_that_goes_on_begins_like_its_last_turn() {
        let long = "a question that is long enough for several blocks of sixteen bytes";
        let (first, second) = (of(&chat("m", &[long])), of(&chat("m", &[long, "and another one"])));
        assert!(second.len() > first.len() && first.len() >= 5, "{first:?}");
        assert!(common(&first, &second) >= first.len() - 1, "{first:?} {second:?}");
        assert_eq!(common(&first, &of(&chat("other", &[long]))), 0, "another model");
        assert_eq!(
            common(&first, &of(&chat("m", &["something else that has nothing to do with the first"]))),
            1,
            "the head of a message"
        );
    }

    #[test]
    fn parts_are_hashed_as_if_they_were_one() {
        let one = of(r#"{"prompt":"0123456789012345678901234567890123456789"}"#);
        let two = of(r#"{"prompt":"0123456789012345678901234567890123456789","system":"sys"}"#);
        assert_eq!((one.len(), two.len()), (2, 2));
        assert_eq!(common(&one, &two), 0, "what stands before counts");
        let order = of(r#"{"system":"sys","prompt":"0123456789012345678901234567890123456789"}"#);
        assert_eq!(two, order, "the order in the body does not");
    }

    #[test]
    fn any_shape_has_a_prefix_or_none_and_never_too_long_a_one() {
        for (body, blocks) in [
            ("{}", 0),
            (r#"{"prompt":null}"#, 0),
            (r#"{"prompt":"short"}"#, 0),
            (r#"{"prompt":[1,2,3,4,5,6,7,8,9,10]}"#, 1),
            (r#"{"input":["0123456789","0123456789"]}"#, 1),
            (r#"{"model":7,"messages":{"a":"0123456789"}}"#, 1),
        ] {
            assert_eq!(of(body).len(), blocks, "{body}");
        }
        assert_eq!(of(&format!("{{\"prompt\":\"{}\"}}", "x".repeat(1 << 20))).len(), MAX_BLOCKS);
        assert!(prefix(&Fields::parse(b"{\"prompt\":\"abc\"}").unwrap(), 0).len() <= MAX_BLOCKS);
    }
}
