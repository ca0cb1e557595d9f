//! Requests that wait their turn in an engine: first come, first served, and anybody may leave.

use std::collections::VecDeque;

use super::RequestId;

/// The line. Numbers rise, as each is given to a newcomer, so who leaves is found by halving.
#[derive(Debug)]
pub(super) struct Line<T>(VecDeque<(RequestId, T)>);

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Line<T> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A newcomer, whose number is above all others'.
    pub(super) fn push(&mut self, id: RequestId, what: T) {
        self.0.push_back((id, what));
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.0.front().map(|(_, what)| what)
    }

    pub(super) fn pop(&mut self) -> Option<(RequestId, T)> {
        self.0.pop_front()
    }

    /// The first `n`.
    pub(super) fn pop_many(&mut self, n: usize) -> impl Iterator<Item = (RequestId, T)> {
        self.0.drain(..n.min(self.0.len()))
    }

    /// Somebody leaves; whether they were there.
    pub(super) fn remove(&mut self, id: RequestId) -> bool {
        match self.0.binary_search_by_key(&id, |(waiting, _)| *waiting) {
            Ok(at) => self.0.remove(at).is_some(),
            Err(_) => false,
        }
    }
}
