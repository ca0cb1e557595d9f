//! What is searched for: texts of which some are asked for far more often than others.
//!
//! Zipf: the text of rank k is asked for in proportion to 1/k^s. Drawn by its sum over the ranks: O(log texts) a draw, 8 bytes a text.

use std::sync::Arc;

use tidegate_core::hash::hash_bytes;
use tidegate_core::rng::Rng;

/// Texts with their popularity.
#[derive(Clone, Debug, PartialEq)]
pub struct Queries {
    /// Share of the texts up to each rank, rising to 1.
    up_to: Arc<[f64]>,
}

impl Queries {
    /// `texts` of them, at least 1, with exponent `zipf`, 0 or more: 0 asks for all alike.
    pub fn new(texts: u32, zipf: f64) -> Self {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = Vec::with_capacity(texts.max(1) as usize);
        for rank in 1..=texts.max(1) {
            sum += libm::pow(f64::from(rank), -zipf);
            up_to.push(sum);
        }
        up_to.iter_mut().for_each(|x| *x /= sum);
        Self { up_to: up_to.into() }
    }

    /// The hash of a text that somebody asks for, of its normalised form as a gateway makes it.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let rank = self.up_to.partition_point(|share| *share <= u).min(self.up_to.len() - 1);
        hash_bytes(&(rank as u64).to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_first_is_asked_for_as_often_as_its_rank_says() {
        let count = |zipf: f64| {
            let (queries, mut rng) = (Queries::new(100, zipf), Rng::new(3));
            let mut counts: HashMap<u64, u32> = HashMap::new();
            (0..50_000).for_each(|_| *counts.entry(queries.draw(&mut rng)).or_default() += 1);
            let mut counts: Vec<u32> = counts.into_values().collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts
        };
        // Sum of 1/k up to 100 is 5.187: 9,639 of the first, half as many of the second, within 5 s.d.
        let counts1 = count(1.0);
        assert!(counts1[0].abs_diff(9639) < 440 && counts1[1].abs_diff(4819) < 330, "{:?}", &counts1[..3]);
        let even = count(0.0);
        assert!(even.len() == 100 && even[0] < 640, "{:?}", &even[..3]);
    }
}
