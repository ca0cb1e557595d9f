//! What an admitted request holds, and what a refused one is told.

use crate::limit::concurrency::Permit;
use crate::limit::quantity::{Quantity, Scope};
use crate::limit::tree::NodeId;
use crate::time::{Duration, Instant};
use alloc::string::String;
use alloc::vec::Vec;

/// What a request took of one rule.
#[derive(Debug)]
pub(super) struct Hold {
    /// The rule, by a number that is never used again.
    pub(super) rule: u32,
    pub(super) slot: u32,
    pub(super) leaf: Option<NodeId>,
    pub(super) taken: f64,
}

/// What a request took of all rules. Give it to [`super::Limits::settle`] or [`super::Limits::release`], however the request ends.
#[must_use = "a reservation that is dropped is never settled"]
#[derive(Debug)]
pub struct Reservation {
    pub(super) holds: Vec<Hold>,
    pub(super) permits: Vec<(u32, Permit)>,
    pub(super) not_before: Instant,
}

impl Reservation {
    /// When the request may be sent: later than now where a rule spaces requests out.
    pub fn not_before(&self) -> Instant {
        self.not_before
    }
}

/// A refusal. Nothing was taken anywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    /// A stable code, such as `tenant_rate_limit_exceeded`.
    pub by: &'static str,
    /// Whose limit.
    pub scope: Scope,
    /// The rule's name.
    pub rule: String,
    /// What it counts; absent for requests in flight.
    pub quantity: Option<Quantity>,
    /// When the request would fit, if nothing else comes before it; absent where nobody can know (requests in flight) or it never will.
    pub retry_after: Option<Duration>,
    /// Whether it can never fit: an error of the request, not of its time.
    pub terminal: bool,
}

impl Limited {
    /// Whether this refusal lasts longer than `other`.
    pub(super) fn outlasts(&self, other: &Self) -> bool {
        let length = |l: &Self| (l.terminal, l.retry_after.is_none(), l.retry_after);
        length(self) > length(other)
    }
}
