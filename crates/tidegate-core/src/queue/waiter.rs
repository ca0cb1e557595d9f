//! One request that waits.

use crate::id::EndpointId;
use crate::request::Request;
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

/// The place of a waiting request: a slot and how often the slot was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl WaiterId {
    /// Slot and generation, for a journal.
    pub const fn parts(self) -> (u32, u32) {
        (self.slot, self.generation)
    }

    /// The id of these parts. One that was never given out finds nobody.
    pub const fn from_parts((slot, generation): (u32, u32)) -> Self {
        Self { slot, generation }
    }
}

/// The right to be told the decision, and the duty to take it or to leave. Not `Clone`; consumed by [`crate::pool::Pool::claim`] and
/// [`crate::pool::Pool::leave`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a waiter that neither claims nor leaves keeps its place"]
pub struct Waiter(pub(crate) WaiterId);

impl Waiter {
    /// Its place.
    pub fn id(&self) -> WaiterId {
        self.0
    }
}

/// A request as it waits: what a decision has to know of it once it is its turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    pub(crate) hash_key: Option<u64>,
    pub(crate) affinity_key: Option<u64>,
    pub(crate) model: u64,
    pub(crate) max_output: u32,
    pub(crate) prompt_tokens: Option<u32>,
    pub(crate) prefix: Vec<u64>,
    pub(crate) block_tokens: u32,
    /// When its first token would come too late.
    pub(crate) due: Option<Instant>,
    pub(crate) tpot_goal: Option<Duration>,
    pub(crate) attempted: Vec<EndpointId>,
    pub(crate) tenant: u64,
    pub(crate) route_class: u8,
    pub(crate) weight: f64,
    pub(crate) priority: u8,
    pub(crate) cost: f64,
    pub(crate) queued_at: Instant,
    pub(crate) deadline: Instant,
}

impl Waiting {
    /// `req` as it begins to wait at `now`.
    pub(crate) fn of(req: &Request<'_>, now: Instant) -> Self {
        Self {
            hash_key: req.hash_key,
            affinity_key: req.affinity_key,
            model: req.model,
            max_output: req.max_output,
            prompt_tokens: req.prompt_tokens,
            prefix: Vec::from(req.prefix),
            block_tokens: req.block_tokens,
            due: req.ttft_goal.map(|goal| now + goal),
            tpot_goal: req.tpot_goal,
            attempted: Vec::from(req.attempted),
            tenant: req.tenant,
            route_class: req.class,
            weight: req.weight(),
            priority: req.priority,
            cost: req.cost(),
            queued_at: now,
            deadline: req.deadline.unwrap_or(Instant::FAR_FUTURE),
        }
    }

    /// When its answer should begin.
    pub(crate) fn by(&self) -> Instant {
        self.due.map_or(self.deadline, |due| due.min(self.deadline))
    }

    /// The request, to be decided about at `now`: what it waited is gone from its goal.
    pub(crate) fn request(&self, now: Instant) -> Request<'_> {
        Request {
            hash_key: self.hash_key,
            affinity_key: self.affinity_key,
            model: self.model,
            max_output: self.max_output,
            prompt_tokens: self.prompt_tokens,
            prefix: &self.prefix,
            block_tokens: self.block_tokens,
            matched: &[],
            shared: 0.0,
            starts: &[],
            ttft_goal: self.due.map(|due| due.since(now)),
            tpot_goal: self.tpot_goal,
            attempted: &self.attempted,
            tenant: self.tenant,
            class: self.route_class,
            tenant_weight: self.weight,
            priority: self.priority,
            cost: self.cost,
            deadline: Some(self.deadline),
        }
    }
}
