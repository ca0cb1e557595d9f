//! How long an answer will be, learned per tenant, model and size of the prompt.
//!
//! A limit on tokens has to reserve before anybody knows. Where a request does not say `max_tokens`, the mean would put half of all
//! requests in debt. So a quantile is tracked ([`Quantile`]), of all answers of a pair of tenant and model, and of those to prompts of about
//! one size: a summary of a long text and a question in one line are of one tenant and one model. O(1) and 16 bytes per key; keys are bounded.

use super::directory::{Directory, OTHERS};
use crate::stats::Quantile;
use alloc::string::String;
use alloc::vec::Vec;

/// The part of answers that are to be no longer than the estimate.
const QUANTILE: f64 = 0.8;
/// What is assumed of a key nothing is known of, in tokens.
const UNKNOWN: f64 = 256.0;
/// Prompts of one size: up to so many tokens, and longer than the next smaller.
const SIZES: [u32; 4] = [256, 1024, 4096, 16_384];
/// Answers to prompts of one size after which they speak for themselves.
const ENOUGH: u32 = 30;
/// Longest estimate, in tokens.
const LONGEST: f64 = 1e7;

/// Learned lengths of answers.
#[derive(Clone, Debug)]
pub struct OutputEstimate {
    keys: Directory<Quantile>,
}

impl OutputEstimate {
    /// Nothing learned; at most `max_keys` pairs of tenant and model, and sizes of theirs, beyond which the rest is learned as one.
    pub fn new(max_keys: usize) -> Self {
        Self { keys: Directory::new(max_keys) }
    }

    /// Output tokens to reserve: `max_tokens` where the request says it, so that what is admitted can be told in advance and is never
    /// in debt; else about the 0.8 quantile of what this tenant got of this model for prompts of that size, else for any, else of what anybody
    /// beyond the bound got, else 256.
    pub fn tokens_for(&self, tenant: &str, model: &str, prompt_tokens: f64, max_tokens: Option<u32>) -> f64 {
        if let Some(max) = max_tokens {
            return f64::from(max);
        }
        let (sized, pair) = keys(tenant, model, prompt_tokens);
        let known = |key: &str| self.keys.find(0, key).and_then(|slot| self.keys.get(slot));
        let of_size = known(&sized).filter(|q| q.samples() >= ENOUGH);
        of_size.or_else(|| known(&sized[..pair])).or_else(|| known(OTHERS)).and_then(Quantile::value).unwrap_or(UNKNOWN)
    }

    /// An answer ended by itself after `tokens` tokens. Answers that were cut off by the client or a failure teach nothing.
    pub fn on_output(&mut self, tenant: &str, model: &str, prompt_tokens: f64, tokens: f64) {
        let tokens = if tokens.is_nan() { 1.0 } else { tokens.clamp(1.0, LONGEST) };
        let (sized, pair) = keys(tenant, model, prompt_tokens);
        for key in [&sized[..pair], &sized] {
            let slot = self.slot(key);
            if let Some(learned) = self.keys.get_mut(slot) {
                learned.on_sample(tokens, QUANTILE);
            }
        }
    }

    /// Every key with its estimate and the number of answers behind it, for another process.
    pub fn save(&self) -> Vec<(String, f64, u32)> {
        let known = |(_, key, q): (u32, &str, &Quantile)| Some((key.into(), q.value()?, q.samples()));
        self.keys.iter().filter_map(known).collect()
    }

    /// Goes on from what [`OutputEstimate::save`] told in another process.
    pub fn restore(&mut self, saved: &[(String, f64, u32)]) {
        for (key, tokens, samples) in saved {
            let slot = self.slot(key);
            if let Some(learned) = self.keys.get_mut(slot)
                && (1.0..=LONGEST).contains(tokens)
            {
                *learned = Quantile::of(*tokens, *samples);
            }
        }
    }

    /// How many keys are learned.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing is learned.
    pub fn is_empty(&self) -> bool {
        self.keys.len() == 0
    }

    fn slot(&mut self, key: &str) -> u32 {
        if let Some(slot) = self.keys.find(0, key) {
            self.keys.touch(slot);
            return slot;
        }
        if self.keys.is_full() {
            match self.keys.victim(|_, _| true) {
                Some(gone) => {
                    self.keys.remove(gone);
                }
                None if key != OTHERS => return self.slot(OTHERS),
                None => {}
            }
        }
        self.keys.insert(0, key, Quantile::default())
    }
}

/// The key of prompts of one size, and how much of it is the key of the tenant and the model.
fn keys(tenant: &str, model: &str, prompt_tokens: f64) -> (String, usize) {
    let mut key = String::with_capacity(tenant.len() + model.len() + 3);
    key.push_str(tenant);
    key.push('\0');
    key.push_str(model);
    let pair = key.len();
    key.push('\0');
    let size = SIZES.iter().filter(|&&most| prompt_tokens > f64::from(most)).count();
    key.push((b'0' + size as u8) as char);
    (key, pair)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use alloc::format;

    #[test]
    fn a_fifth_of_answers_exceeds_the_estimate_whatever_their_length() {
        for mean in [20.0, 400.0, 8000.0] {
            let (mut e, mut rng) = (OutputEstimate::new(10), Rng::new(1));
            let mut over = 0;
            for k in 0..21_000 {
                let tokens = libm::exp(rng.normal(libm::log(mean), 0.8));
                over += u32::from(k >= 1000 && tokens > e.tokens_for("t", "m", 100.0, None));
                e.on_output("t", "m", 100.0, tokens);
            }
            let part = f64::from(over) / 20_000.0;
            assert!((part - 0.2).abs() < 0.03, "{mean}: {part}");
        }
    }

    #[test]
    fn max_tokens_caps_it_and_keys_stay_within_their_bound() {
        let mut e = OutputEstimate::new(100);
        assert_eq!(e.tokens_for("t", "m", 1.0, Some(16)), 16.0);
        assert_eq!(e.tokens_for("t", "m", 1.0, None), 256.0);
        (0..10_000).for_each(|k| e.on_output(&format!("t{k}"), "m", 1.0, 10.0));
        assert!(e.len() <= 101);
        e.on_output("new", "m", f64::NAN, f64::NAN);
        assert!(e.tokens_for("new", "m", 1.0, None).is_finite());
    }

    #[test]
    fn long_prompts_and_short_ones_have_answers_of_their_own_length() {
        let mut e = OutputEstimate::new(100);
        for _ in 0..200 {
            e.on_output("t", "m", 100.0, 400.0);
            e.on_output("t", "m", 20_000.0, 50.0);
        }
        let [short, long, unseen] = [100.0, 20_000.0, 2_000.0].map(|prompt| e.tokens_for("t", "m", prompt, None));
        assert!((short - 400.0).abs() < 60.0 && (long - 50.0).abs() < 10.0, "{short} {long}");
        assert!((60.0..=460.0).contains(&unseen), "of that size nothing is known, of the pair it is: {unseen}");
    }
}
