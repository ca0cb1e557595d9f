//! Requests of one endpoint whose first byte has not come, oldest first.
//!
//! A queue in the order of dispatch, in which answered requests stay as gaps until they are at its front or too many. A request is found
//! by its turn, so an answer costs `O(log n)` and the oldest is at hand. The front part that was already found late is a prefix, as
//! whoever was sent earlier is late earlier.

use crate::id::RequestKey;
use crate::time::Instant;
use alloc::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Entry {
    turn: u64,
    at: Instant,
    key: RequestKey,
    answered: bool,
}

/// The queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    entries: VecDeque<Entry>,
    next_turn: u64,
    live: usize,
    /// So many at the front, answered ones included, are known to be late.
    late: usize,
}

impl Waiting {
    /// A request was sent. Its turn is to be named when it is answered.
    pub(super) fn on_dispatch(&mut self, now: Instant, key: RequestKey) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.entries.push_back(Entry { turn, at: now, key, answered: false });
        self.live += 1;
        turn
    }

    /// The next request gets this turn; to be called while nobody waits.
    pub(super) fn number_from(&mut self, turn: u64) {
        self.next_turn = turn;
    }

    /// The request of `turn` waits no longer. Whether it waited until now, and was late.
    pub(super) fn on_answer(&mut self, turn: u64) -> Option<bool> {
        let place = self.entries.binary_search_by_key(&turn, |e| e.turn).ok()?;
        let entry = &mut self.entries[place];
        if core::mem::replace(&mut entry.answered, true) {
            return None;
        }
        self.live -= 1;
        let was_late = place < self.late;
        self.tidy();
        Some(was_late)
    }

    /// Marks as late whoever was sent before `before`, and says how many are newly so.
    pub(super) fn pass(&mut self, before: Instant) -> u32 {
        let mut newly = 0;
        while let Some(e) = self.entries.get(self.late).filter(|e| e.at < before) {
            newly += u32::from(!e.answered);
            self.late += 1;
        }
        newly
    }

    /// When the oldest was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.entries.front().map(|e| e.at)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// How many of those that wait were sent at or after `since`, counted up to `most`.
    pub(super) fn count_since(&self, since: Instant, most: usize) -> usize {
        self.entries.iter().rev().take_while(|e| e.at >= since).filter(|e| !e.answered).take(most).count()
    }

    /// When the oldest ones were sent, oldest first.
    pub(super) fn times(&self) -> impl Iterator<Item = Instant> {
        self.entries.iter().filter(|e| !e.answered).map(|e| e.at)
    }

    /// All that wait, oldest first.
    pub(super) fn keys(&self) -> impl Iterator<Item = RequestKey> {
        self.entries.iter().filter(|e| !e.answered).map(|e| e.key)
    }

    fn tidy(&mut self) {
        while self.entries.front().is_some_and(|e| e.answered) {
            self.entries.pop_front();
            self.late = self.late.saturating_sub(1);
        }
        if self.entries.len() > 2 * self.live + 64 {
            self.late = self.entries.iter().take(self.late).filter(|e| !e.answered).count();
            self.entries.retain(|e| !e.answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> Instant {
        Instant::from_secs_f64(s)
    }
    const KEY: RequestKey = RequestKey { slot: 0, generation: 0 };

    #[test]
    fn one_that_hangs_does_not_make_the_queue_grow() {
        let mut w = Waiting::default();
        let hung = w.on_dispatch(at(0.0), KEY);
        for k in 0..100_000 {
            let turn = w.on_dispatch(at(f64::from(k)), KEY);
            assert_eq!(w.on_answer(turn), Some(false));
        }
        assert!(w.entries.len() < 200 && w.len() == 1);
        assert_eq!((w.on_answer(hung), w.on_answer(hung), w.len()), (Some(false), None, 0));
    }

    #[test]
    fn each_is_late_once() {
        let mut w = Waiting::default();
        let turns: std::vec::Vec<u64> = (0..3).map(|k| w.on_dispatch(at(f64::from(k)), KEY)).collect();
        w.on_answer(turns[1]);
        assert_eq!((w.pass(at(0.5)), w.pass(at(0.5))), (1, 0));
        assert_eq!(w.pass(at(10.0)), 1, "the answered one is not late");
        assert_eq!((w.on_answer(turns[0]), w.on_answer(turns[2])), (Some(true), Some(true)));
        assert_eq!((w.len(), w.oldest()), (0, None));
    }
}
