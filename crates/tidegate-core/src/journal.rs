//! What goes into a pool and what comes out, so that a run can be recorded and every decision of it taken again.
//!
//! A pool is a function of its settings, its seed and its inputs in order. A [`Recorder`] sees exactly those, and the decisions; a replay
//! feeds the inputs to a fresh pool and compares. The recorder belongs to the shell: core calls it and does no I/O.

use crate::event::Event;
use crate::id::{EndpointId, RequestKey};
use crate::outcome::Outcome;
use crate::placement::Serves;
use crate::pool::config::{EndpointConfig, PoolConfig};
use crate::pool::{Decision, Shed};
use crate::queue::WaiterId;
use crate::request::Request;
use crate::saved::SavedPool;
use crate::time::Instant;

/// One input of a pool; for an admission, with the decision taken.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// An endpoint joined and got this id.
    Added(EndpointId, &'a EndpointConfig),
    /// An endpoint got new settings.
    Changed(EndpointId, &'a EndpointConfig),
    /// The pool got new settings, and whether its endpoints are health-checked from now on.
    Reconfigured(&'a PoolConfig, bool),
    /// The pool took over what another process knew.
    Restored(&'a SavedPool),
    /// An endpoint said what it serves.
    Serves(EndpointId, &'a Serves),
    /// An endpoint was taken out for good.
    Removed(EndpointId),
    /// Something happened.
    Event(&'a Event),
    /// Time was let pass.
    Deadline,
    /// A request was decided about.
    Admitted(&'a Request<'a>, Decided),
    /// A waiting request took its decision.
    Claimed(WaiterId, Decided),
    /// The client of a waiting request left.
    Left(WaiterId),
    /// A dispatch ended.
    Settled(RequestKey, Outcome),
}

/// A decision without the right to settle it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It went to an endpoint.
    Sent {
        /// The dispatch.
        key: RequestKey,
        /// Where it went.
        endpoint: EndpointId,
        /// The rule that decided.
        rule: &'static str,
        /// What in the rule decided.
        detail: &'static str,
    },
    /// It waits.
    Waits(WaiterId),
    /// It was refused.
    Shed(Shed),
}

impl Decided {
    /// What a decision was.
    pub fn of(decision: &Decision) -> Self {
        match decision {
            Decision::Send { ticket, rule, detail } => {
                Self::Sent { key: ticket.key(), endpoint: ticket.endpoint(), rule, detail }
            }
            Decision::Wait { waiter, .. } => Self::Waits(waiter.id()),
            Decision::Shed { why, .. } => Self::Shed(*why),
        }
    }
}

/// Takes down what goes into a pool, in order. Called under the pool's lock, so it must not block.
pub trait Recorder: Send {
    /// An input at `now`.
    fn on_entry(&mut self, now: Instant, entry: &Entry<'_>);
}
