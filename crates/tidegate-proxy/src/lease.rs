//! The duty to settle one dispatch, tied to a value: dropping it means that the client left.

use crate::pool::PoolHandle;
use std::sync::Arc;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::outcome::{Outcome, Verdict};
use tidegate_core::pool::Ticket;

/// Owns a core ticket and settles it exactly once.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Arc<PoolHandle>,
    ticket: Option<Ticket>,
    endpoint: EndpointId,
    trial: bool,
}

impl Lease {
    pub(crate) fn new(pool: Arc<PoolHandle>, ticket: Ticket) -> Self {
        let (endpoint, trial) = (ticket.endpoint(), ticket.is_trial());
        Self { pool, ticket: Some(ticket), endpoint, trial }
    }

    pub(crate) fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    pub(crate) fn pool(&self) -> &Arc<PoolHandle> {
        &self.pool
    }

    /// Whether the request is the trial of an ejected endpoint.
    pub(crate) fn is_trial(&self) -> bool {
        self.trial
    }

    /// The answer has begun, and well.
    pub(crate) fn on_first_byte(&self) {
        if let Some(ticket) = &self.ticket {
            self.pool.on_event(Event::FirstByte(ticket.key()));
        }
    }

    /// Ends the dispatch.
    pub(crate) fn settle(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(ticket) = self.ticket.take() {
            self.pool.with(|pool, now| pool.settle(now, ticket, outcome));
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end(Outcome::new(Verdict::Cancelled));
    }
}
