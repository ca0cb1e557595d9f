//! Beginnings of prompts that many requests share at a time, such as a system prompt.
//!
//! Who goes by what is cached sends all of them where the first went: that one has the beginning, and nobody else ever gets it. But an endpoint
//! has to compute it only once to have it for all that follow, so what a newcomer to it pays is a small part of its cost:
//!
//! ```text
//! k = uses of the block of late, each fading with exp(-age / tau), less two; tau: mean time of an answer     (Little: those under way)
//! part of its cost that counts at an endpoint that does not have it = n / (4 k + n)                        n endpoints
//! ```
//!
//! The turns of one conversation come one after the other: never are two of them under way, so for them the full cost counts.

use crate::time::Instant;
use alloc::vec::Vec;

/// Blocks whose uses are counted; a power of two. Those that share a place push out the one that is used less.
const PLACES: usize = 1 << 14;
/// Uses that one conversation alone may have, at most 1 / (1 - 1/e) turns of late.
const ALONE: f64 = 2.0;
/// How many times as many uses are to be expected while an engine keeps a block as there are now.
const AHEAD: f64 = 4.0;
/// Weight of the newest answer in the mean time of one, and its bounds in seconds.
const WEIGHT: f64 = 0.02;
const BOUNDS_S: (f64, f64) = (0.2, 60.0);

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    block: u64,
    uses: f64,
    at: Instant,
}

/// Which blocks are shared.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    places: Vec<Place>,
    answer_s: Option<f64>,
}

impl Shared {
    fn tau_s(&self) -> f64 {
        self.answer_s.unwrap_or(1.0).clamp(BOUNDS_S.0, BOUNDS_S.1)
    }

    /// An answer took so long.
    pub(super) fn on_answered(&mut self, seconds: f64) {
        let mean = self.answer_s.get_or_insert(seconds);
        *mean += WEIGHT * (seconds - *mean);
    }

    /// A prompt of these blocks was sent. O(blocks).
    pub(super) fn on_sent(&mut self, now: Instant, blocks: &[u64]) {
        if self.places.is_empty() {
            self.places.resize(PLACES, Place::default());
        }
        let tau_s = self.tau_s();
        for &block in blocks {
            let place = &mut self.places[block as usize % PLACES];
            let uses = place.uses * libm::exp(-now.secs_since(place.at) / tau_s);
            if place.block == block {
                (place.uses, place.at) = (uses + 1.0, now);
            } else if uses < 1.0 {
                *place = Place { block, uses: 1.0, at: now };
            }
        }
    }

    /// Tokens of this prompt that need not count, wherever it goes: what they cost is shared. O(blocks that are shared).
    pub(super) fn tokens(&self, now: Instant, blocks: &[u64], block_tokens: u32, endpoints: usize) -> f64 {
        let (tau_s, mut parts) = (self.tau_s(), 0.0);
        for &block in blocks {
            let Some(place) = self.places.get(block as usize % PLACES).filter(|p| p.block == block) else { break };
            let others = place.uses * libm::exp(-now.secs_since(place.at) / tau_s) - ALONE;
            if others <= 0.0 {
                break;
            }
            parts += AHEAD * others / (AHEAD * others + endpoints as f64);
        }
        parts * f64::from(block_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> Instant {
        Instant::from_secs_f64(s)
    }

    #[test]
    fn what_many_ask_with_at_a_time_costs_little_where_it_is_not_yet() {
        let mut shared = Shared::default();
        (0..50).for_each(|k| shared.on_sent(at(f64::from(k) * 0.05), &[1, 2, 100 + k as u64]));
        let tokens = shared.tokens(at(2.5), &[1, 2, 149, 3], 100, 4);
        assert!((180.0..200.0).contains(&tokens), "the system prompt, and nothing of the question: {tokens}");
        assert_eq!(shared.tokens(at(2.5), &[7, 2], 100, 4), 0.0, "what stands before it is not shared");
        assert_eq!(shared.tokens(at(30.0), &[1, 2], 100, 4), 0.0, "nobody asks any more");
        assert!(shared.tokens(at(2.5), &[1, 2], 100, 4) > shared.tokens(at(2.5), &[1, 2], 100, 64));
    }

    #[test]
    fn turns_of_a_conversation_are_not_shared_however_many_there_are() {
        let mut shared = Shared::default();
        (0..100).for_each(|_| shared.on_answered(3.0));
        for k in 0..200 {
            assert_eq!(shared.tokens(at(f64::from(k) * 3.0), &[1, 2], 100, 4), 0.0);
            shared.on_sent(at(f64::from(k) * 3.0), &[1, 2]);
        }
    }

    #[test]
    fn blocks_without_number_push_out_no_shared_one() {
        let mut shared = Shared::default();
        for k in 0..100_000u64 {
            let blocks = [5, crate::hash::mix(k)];
            shared.on_sent(at(k as f64 * 1e-3), &blocks);
        }
        assert!(shared.places.len() == PLACES && shared.tokens(at(100.0), &[5], 100, 4) > 99.0);
    }
}
