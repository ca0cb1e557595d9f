//! A request in the lab.

use tidegate_core::id::{EndpointId, RequestKey};
use tidegate_core::outcome::Verdict;
use tidegate_core::pool::Ticket;

/// A request from its arrival to its end.
#[derive(Debug)]
pub(super) struct Job {
    /// How often the slot was used or its dispatch ended: what was due for an earlier one is void.
    pub(super) turn: u32,
    pub(super) ticket: Option<Ticket>,
    pub(super) gateway: u32,
    pub(super) endpoint: u32,
    /// Place of its connection.
    pub(super) place: u32,
    pub(super) tenant: u64,
    pub(super) began: bool,
    /// It takes a slot of its endpoint.
    pub(super) inside: bool,
    pub(super) sent_at: tidegate_core::time::Instant,
    /// Time from the first byte to the end, seconds.
    pub(super) rest_s: f64,
    pub(super) verdict: Verdict,
    pub(super) attempted: [EndpointId; 2],
    pub(super) attempts: u8,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            turn: 0,
            ticket: None,
            gateway: 0,
            endpoint: 0,
            place: 0,
            tenant: 0,
            began: false,
            inside: false,
            sent_at: tidegate_core::time::Instant::ORIGIN,
            rest_s: 0.0,
            verdict: Verdict::Success,
            attempted: [EndpointId(0); 2],
            attempts: 0,
        }
    }
}

impl Job {
    /// Whether it is out at endpoint `k`.
    pub(super) fn is_at(&self, k: u32) -> bool {
        self.endpoint == k && self.ticket.is_some()
    }

    /// Whether it is the dispatch behind `key`.
    pub(super) fn is(&self, key: RequestKey) -> bool {
        self.ticket.as_ref().map(Ticket::key) == Some(key)
    }
}
