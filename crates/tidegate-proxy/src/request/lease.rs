//! The duty to settle one dispatch, tied to a value: dropping it means that the client left.

use crate::request::hang::Hangs;
use crate::state::pool::PoolHandle;
use crate::upstream::endpoint_handle::EndpointHandle;
use std::cell::Cell;
use std::sync::Arc;
use tidegate_core::event::Event;
use tidegate_core::id::{EndpointId, RequestKey};
use tidegate_core::outcome::{Outcome, Verdict};
use tidegate_core::pool::Ticket;

/// Owns a core ticket and settles it exactly once.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Arc<PoolHandle>,
    ticket: Option<Ticket>,
    id: EndpointId,
    endpoint: Arc<EndpointHandle>,
    trial: bool,
    /// The upstream connection it goes over, once that is known.
    connection: Cell<Option<u64>>,
}

impl Lease {
    /// `endpoint` is where the ticket's endpoint was when it was given.
    pub(crate) fn new(pool: Arc<PoolHandle>, ticket: Ticket, endpoint: Arc<EndpointHandle>) -> Self {
        let (id, trial) = (ticket.endpoint(), ticket.is_trial());
        Self { pool, ticket: Some(ticket), id, endpoint, trial, connection: Cell::new(None) }
    }

    /// What the pool knows its endpoint as, while the lease lasts.
    pub(crate) fn id(&self) -> EndpointId {
        self.id
    }

    /// Where its endpoint is.
    pub(crate) fn endpoint(&self) -> &Arc<EndpointHandle> {
        &self.endpoint
    }

    pub(crate) fn pool(&self) -> &Arc<PoolHandle> {
        &self.pool
    }

    /// Whether the request is the trial of an ejected endpoint.
    pub(crate) fn is_trial(&self) -> bool {
        self.trial
    }

    /// The request goes over this connection.
    pub(crate) fn on_connected(&self, number: u64) {
        self.connection.set(Some(number));
    }

    /// Ends when the pool finds that the endpoint hangs.
    pub(crate) async fn hangs(&self) {
        let Some(key) = self.ticket.as_ref().map(Ticket::key) else { return std::future::pending().await };
        let _listening = Listening { hangs: &self.pool.live.hangs, key };
        if self.pool.live.hangs.listen(key).await.is_err() {
            std::future::pending::<()>().await;
        }
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
            self.pool.with(|pool, now| {
                // Only of failures is it asked whether they have one cause.
                if let (Verdict::Failed(_), Some(connection)) = (outcome.verdict, self.connection.get()) {
                    pool.on_event(now, Event::Connected { key: ticket.key(), connection });
                }
                pool.settle(now, ticket, outcome);
            });
        }
    }
}

/// Stops listening, whichever way the waiting ends.
struct Listening<'a> {
    hangs: &'a Hangs,
    key: RequestKey,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.hangs.forget(self.key);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end(Outcome::new(Verdict::Cancelled));
    }
}
