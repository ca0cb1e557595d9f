//! The lowest score, ties broken uniformly: a rule that always takes the first of equals sends everybody to one endpoint.

use super::Cx;
use crate::id::EndpointId;
use crate::rng::Rng;
use core::cmp::Ordering;

/// Keeps the candidate with the lowest `(first, second)` score; equals are chosen among uniformly.
///
/// Reservoir sampling, with the gaps drawn instead of every candidate: the next of equals to take over after the `k`-th is the `J`-th,
/// `P(J > j) = k / j`, so `J = ceil(k / uniform)`. In an idle pool of ten thousand all are equal, and ten draws do.
pub(super) struct Lowest {
    best: Option<EndpointId>,
    first: f64,
    second: f64,
    equals: usize,
    /// Which of the equals takes over next; 0 until it is drawn.
    heir: usize,
}

impl Lowest {
    pub(super) fn new() -> Self {
        Self { best: None, first: f64::INFINITY, second: f64::INFINITY, equals: 0, heir: 0 }
    }

    /// Offers a candidate: lower `first` wins, then lower `second`, then chance.
    #[inline]
    pub(super) fn offer(&mut self, cx: &mut Cx<'_>, id: EndpointId, first: f64, second: f64) {
        cx.note(id, first);
        // Most candidates of a large pool end here, so that a decision over thousands is one comparison each.
        if first > self.first {
            return;
        }
        let order = match self.best {
            None => Ordering::Less,
            Some(_) => first.total_cmp(&self.first).then(second.total_cmp(&self.second)),
        };
        match order {
            Ordering::Less => *self = Self { best: Some(id), first, second, equals: 1, heir: 0 },
            Ordering::Equal => {
                if self.heir == 0 {
                    self.heir = after(self.equals, cx.rng);
                }
                self.equals += 1;
                if self.equals == self.heir {
                    (self.best, self.heir) = (Some(id), after(self.equals, cx.rng));
                }
            }
            Ordering::Greater => {}
        }
    }

    pub(super) fn take(self) -> Option<EndpointId> {
        self.best
    }
}

fn after(k: usize, rng: &mut Rng) -> usize {
    (libm::ceil(k as f64 / rng.unit()) as usize).max(k + 1)
}

/// Per-endpoint state of a policy, grown as endpoints join.
#[derive(Debug, Default)]
pub(super) struct PerEndpoint<T>(alloc::vec::Vec<T>);

impl<T: Default> PerEndpoint<T> {
    #[inline]
    pub(super) fn at(&mut self, id: EndpointId) -> &mut T {
        if id.index() >= self.0.len() {
            self.grow(id);
        }
        &mut self.0[id.index()]
    }

    #[cold]
    fn grow(&mut self, id: EndpointId) {
        self.0.resize_with(id.index() + 1, T::default);
    }

    pub(super) fn get(&self, id: EndpointId) -> Option<&T> {
        self.0.get(id.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    #[test]
    fn each_of_equals_is_as_likely() {
        // 70,000 choices among seven equals behind and before worse ones: within five standard errors.
        let (mut rng, mut counts) = (Rng::new(3), [0u32; 9]);
        for _ in 0..70_000 {
            let mut cx = Cx { now: Instant::ORIGIN, rng: &mut rng, explain: None };
            let mut lowest = Lowest::new();
            for k in 0..9 {
                lowest.offer(&mut cx, EndpointId(k), if k == 0 || k == 4 { 2.0 } else { 1.0 }, 0.5);
            }
            counts[lowest.take().map_or(0, EndpointId::index)] += 1;
        }
        assert_eq!((counts[0], counts[4]), (0, 0));
        let bound = 5.0 * libm::sqrt(10_000.0 * 6.0 / 7.0);
        let near = |&n: &u32| n == 0 || libm::fabs(f64::from(n) - 10_000.0) < bound;
        assert!(counts.iter().all(near), "{counts:?}");
    }
}
