//! What is due in the lab, in order of time and then of scheduling.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::outcome::Verdict;
use tidegate_core::time::Instant;

/// Something due. Jobs are named by slot and turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    FirstByte(u32, u32),
    End(u32, u32, Verdict),
    Probed(u32, u32, u64, bool),
    Deadline(u32),
    Tokens,
}

/// A heap of small keys; what is due lies beside it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    what: Vec<Due>,
    free: Vec<u32>,
    number: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: Instant, due: Due) {
        let place = match self.free.pop() {
            Some(place) => {
                self.what[place as usize] = due;
                place
            }
            None => {
                self.what.push(due);
                (self.what.len() - 1) as u32
            }
        };
        self.number += 1;
        // Number above, place below: 2^40 events, 2^24 at once.
        self.heap.push(Reverse((at.as_nanos(), self.number << 24 | u64::from(place))));
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| Instant::from_nanos(*at))
    }

    pub(super) fn pop(&mut self) -> Option<(Instant, Due)> {
        let Reverse((at, tail)) = self.heap.pop()?;
        let place = (tail & 0xFF_FFFF) as u32;
        self.free.push(place);
        Some((Instant::from_nanos(at), self.what[place as usize]))
    }
}
