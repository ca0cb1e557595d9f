//! The lowest score, ties broken uniformly: a rule that always takes the first of equals sends everybody to one endpoint.

use super::Cx;
use crate::id::EndpointId;
use core::cmp::Ordering;

/// Keeps the candidate with the lowest `(first, second)` score; equals are chosen among uniformly (reservoir sampling).
pub(super) struct Lowest {
    best: Option<EndpointId>,
    first: f64,
    second: f64,
    equals: usize,
}

impl Lowest {
    pub(super) fn new() -> Self {
        Self { best: None, first: f64::INFINITY, second: f64::INFINITY, equals: 0 }
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
            Ordering::Less => (self.best, self.first, self.second, self.equals) = (Some(id), first, second, 1),
            Ordering::Equal => {
                self.equals += 1;
                if cx.rng.below(self.equals) == 0 {
                    self.best = Some(id);
                }
            }
            Ordering::Greater => {}
        }
    }

    pub(super) fn take(self) -> Option<EndpointId> {
        self.best
    }
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
