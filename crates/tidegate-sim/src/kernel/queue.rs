//! What happens next, in order of time and, within one instant, of scheduling.
//!
//! A binary heap of small entries. The running number makes the order total, so two runs of one seed never differ by the heap's
//! internals. O(log n) a push and a pop.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tidegate_core::time::Instant;

/// What is due. Requests are named by their slot, endpoints and gateways by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// An engine has something to put out.
    Engine(u32),
    /// A request reaches its endpoint.
    Reach(u32),
    /// The first byte of an answer reaches the gateway.
    FirstByte(u32),
    /// The end of an answer reaches the gateway.
    End(u32),
    /// A refusal reaches the gateway.
    Refusal(u32),
    /// A gateway reads all status pages.
    Poll(u32),
    /// What it read arrives.
    Reports(u32),
    /// A gateway checks all endpoints.
    Check(u32),
    /// Gateways count the tokens of their streams.
    Progress,
    /// Loads are sampled for a plot.
    Sample,
    /// A fault begins.
    Fault(u32),
    /// A fault ends.
    FaultEnds(u32),
    /// A pool changes by time alone.
    Deadline(u32),
    /// A probe of a gateway is answered; the place where it is kept.
    Probed(u32),
    /// A request that a limit spaced out may enter.
    Enter(u32),
    /// Shares of a gateway change, and those in line for them ask again.
    Shares(u32),
    /// A planned change of the fleet.
    Change(u32),
    /// The autoscaler of a group looks.
    Scale(u32),
    /// The cold start of an endpoint's engine is over.
    Ready(u32),
    /// An engine that leaves stops, whatever it still has.
    Grace(u32),
    /// A client of a closed loop asks.
    Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Instant,
    number: u64,
    due: Due,
}

impl Ord for Entry {
    // Reversed, as the heap gives its largest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Entry>,
    number: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: Instant, due: Due) {
        self.number += 1;
        self.heap.push(Entry { at, number: self.number, due });
    }

    /// The instant of the earliest entry.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|e| e.at)
    }

    pub(super) fn pop(&mut self) -> Option<(Instant, Due)> {
        self.heap.pop().map(|e| (e.at, e.due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_then_order_of_scheduling() {
        let mut q = Queue::default();
        let at = Instant::from_nanos;
        q.push(at(5), Due::Engine(1));
        q.push(at(3), Due::Engine(2));
        q.push(at(5), Due::Engine(0));
        let order: Vec<Due> = std::iter::from_fn(|| q.pop().map(|(_, d)| d)).collect();
        assert_eq!(order, [Due::Engine(2), Due::Engine(1), Due::Engine(0)]);
    }
}
