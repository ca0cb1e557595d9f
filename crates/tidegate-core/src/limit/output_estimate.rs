//! How long an answer will be, learned per tenant and model.
//!
//! A limit on tokens has to reserve before anybody knows. Where a request does not say `max_tokens`, the mean would put half of all
//! requests in debt. So a quantile is tracked ([`Quantile`]). O(1) and 16 bytes per key; keys are bounded.

use super::directory::{Directory, OTHERS};
use crate::stats::Quantile;
use alloc::string::String;
use alloc::vec::Vec;

/// The part of answers that are to be no longer than the estimate.
const QUANTILE: f64 = 0.8;
/// What is assumed of a key nothing is known of, in tokens.
const UNKNOWN: f64 = 256.0;
/// Longest estimate, in tokens.
const LONGEST: f64 = 1e7;

/// Learned lengths of answers.
#[derive(Clone, Debug)]
pub struct OutputEstimate {
    keys: Directory<Quantile>,
}

impl OutputEstimate {
    /// Nothing learned; at most `max_keys` pairs of tenant and model, beyond which the rest is learned as one.
    pub fn new(max_keys: usize) -> Self {
        Self { keys: Directory::new(max_keys) }
    }

    /// Output tokens to reserve: `max_tokens` where the request says it, so that what is admitted can be told in advance and is never
    /// in debt; else about the 0.8 quantile of what this tenant got of this model, else of what anybody beyond the bound got, else 256.
    pub fn tokens_for(&self, tenant: &str, model: &str, max_tokens: Option<u32>) -> f64 {
        let known = self.keys.find(0, &key(tenant, model)).or_else(|| self.keys.find(0, OTHERS));
        let learned = known.and_then(|slot| self.keys.get(slot)).and_then(|q| q.value()).unwrap_or(UNKNOWN);
        max_tokens.map_or(learned, f64::from)
    }

    /// An answer ended by itself after `tokens` tokens. Answers that were cut off by the client or a failure teach nothing.
    pub fn on_output(&mut self, tenant: &str, model: &str, tokens: f64) {
        let slot = self.slot(&key(tenant, model));
        let Some(learned) = self.keys.get_mut(slot) else { return };
        let tokens = if tokens.is_nan() { 1.0 } else { tokens.clamp(1.0, LONGEST) };
        learned.on_sample(tokens, QUANTILE);
    }

    /// Every pair with its estimate and the number of answers behind it, for another process.
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

    /// How many pairs are learned.
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

fn key(tenant: &str, model: &str) -> String {
    let mut key = String::with_capacity(tenant.len() + model.len() + 1);
    key.push_str(tenant);
    key.push('\0');
    key.push_str(model);
    key
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
                over += u32::from(k >= 1000 && tokens > e.tokens_for("t", "m", None));
                e.on_output("t", "m", tokens);
            }
            let part = f64::from(over) / 20_000.0;
            assert!((part - 0.2).abs() < 0.03, "{mean}: {part}");
        }
    }

    #[test]
    fn max_tokens_caps_it_and_keys_stay_within_their_bound() {
        let mut e = OutputEstimate::new(100);
        assert_eq!(e.tokens_for("t", "m", Some(16)), 16.0);
        assert_eq!(e.tokens_for("t", "m", None), 256.0);
        (0..10_000).for_each(|k| e.on_output(&format!("t{k}"), "m", 10.0));
        assert!(e.len() <= 101);
        e.on_output("new", "m", f64::NAN);
        assert!(e.tokens_for("new", "m", None).is_finite());
    }
}
