//! The lowest score, ties broken uniformly: a rule that always takes the first of equals sends everybody to one endpoint.

use super::Cx;
use crate::id::EndpointId;
use core::cmp::Ordering;

/// Keeps the candidate with the lowest `(first, second)` score; equals are chosen among uniformly (reservoir sampling).
pub(super) struct Lowest {
    best: Option<(f64, f64, EndpointId)>,
    equals: usize,
}

impl Lowest {
    pub(super) fn new() -> Self {
        Self { best: None, equals: 0 }
    }

    /// Offers a candidate: lower `first` wins, then lower `second`, then chance.
    pub(super) fn offer(&mut self, cx: &mut Cx<'_>, id: EndpointId, first: f64, second: f64) {
        cx.note(id, first);
        let order = match self.best {
            None => Ordering::Less,
            Some((f, s, _)) => first.total_cmp(&f).then(second.total_cmp(&s)),
        };
        match order {
            Ordering::Less => (self.best, self.equals) = (Some((first, second, id)), 1),
            Ordering::Equal => {
                self.equals += 1;
                if cx.rng.below(self.equals) == 0 {
                    self.best = Some((first, second, id));
                }
            }
            Ordering::Greater => {}
        }
    }

    pub(super) fn take(self) -> Option<EndpointId> {
        self.best.map(|(_, _, id)| id)
    }
}

/// Per-endpoint state of a policy, grown as endpoints join.
#[derive(Debug, Default)]
pub(super) struct PerEndpoint<T>(alloc::vec::Vec<T>);

impl<T: Default> PerEndpoint<T> {
    pub(super) fn at(&mut self, id: EndpointId) -> &mut T {
        if id.index() >= self.0.len() {
            self.0.resize_with(id.index() + 1, T::default);
        }
        &mut self.0[id.index()]
    }

    pub(super) fn get(&self, id: EndpointId) -> Option<&T> {
        self.0.get(id.index())
    }
}
