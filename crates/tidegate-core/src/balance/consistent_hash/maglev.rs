//! Maglev: every endpoint fills a table in the order of its own permutation, taking turns.
//!
//! Eisenbud et al., NSDI 2016, section 3.4. The table is the next prime above max(65,536, 100 n), so shares differ by about 1 %.
//! Weighted endpoints take turns in proportion to their weight.

use crate::endpoint::Endpoint;
use crate::hash::mix;
use crate::id::EndpointId;
use alloc::vec::Vec;

/// Look-ups tried by rehashing before the table is walked.
const REHASHES: u32 = 16;

/// The table.
#[derive(Debug, Default)]
pub(super) struct Maglev {
    table: Vec<EndpointId>,
}

struct Filler {
    id: EndpointId,
    key: u64,
    at: u64,
    skip: u64,
    weight: f64,
    due: f64,
}

impl Maglev {
    pub(super) fn build<'a>(&mut self, members: impl Iterator<Item = &'a Endpoint>) {
        let mut fillers: Vec<Filler> =
            members.map(|e| Filler { id: e.id, key: e.key, at: 0, skip: 0, weight: e.weight, due: 0.0 }).collect();
        self.table.clear();
        if fillers.is_empty() {
            return;
        }
        // By key, not by slot: replicas that learned of the endpoints in another order must build the same table.
        fillers.sort_unstable_by_key(|f| f.key);
        let size = next_prime((100 * fillers.len() as u64).max(65_536));
        let heaviest = fillers.iter().map(|f| f.weight).fold(0.0, f64::max);
        for f in &mut fillers {
            (f.at, f.skip) = (mix(f.key) % size, mix(f.key ^ 0x9E37_79B9_7F4A_7C15) % (size - 1) + 1);
        }
        let mut table: Vec<Option<EndpointId>> = alloc::vec![None; size as usize];
        let mut left = size;
        while left > 0 {
            for f in &mut fillers {
                f.due += f.weight / heaviest;
                if f.due < 1.0 || left == 0 {
                    continue;
                }
                f.due -= 1.0;
                while table[f.at as usize].is_some() {
                    f.at = (f.at + f.skip) % size;
                }
                table[f.at as usize] = Some(f.id);
                left -= 1;
            }
        }
        self.table.extend(table.into_iter().flatten());
    }

    /// The endpoint of `point`, or of its rehashes if it does not accept; and whether it is the very first.
    pub(super) fn find(&self, point: u64, accepts: impl Fn(EndpointId) -> bool) -> Option<(EndpointId, bool)> {
        let size = self.table.len() as u64;
        if size == 0 {
            return None;
        }
        let mut at = point;
        for n in 0..REHASHES {
            let id = self.table[(at % size) as usize];
            if accepts(id) {
                return Some((id, n == 0));
            }
            at = mix(at.wrapping_add(0x9E37_79B9_7F4A_7C15));
        }
        let (before, after) = self.table.split_at((point % size) as usize);
        after.iter().chain(before).copied().find(|&id| accepts(id)).map(|id| (id, false))
    }
}

fn next_prime(from: u64) -> u64 {
    let is_prime =
        |n: u64| n > 2 && n % 2 == 1 && (3..).step_by(2).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    (from + 1..).find(|&n| is_prime(n)).unwrap_or(65_537)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_table_is_the_papers() {
        assert_eq!(next_prime(65_536), 65_537);
        assert_eq!(next_prime(1_000_000), 1_000_003);
    }
}
