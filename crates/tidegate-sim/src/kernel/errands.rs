//! What pools ask of their shell for their breakers: probes, and another way for requests that hang.

use tidegate_core::event::Event;
use tidegate_core::id::{EndpointId, ProbeId, RequestKey};
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::pool::Ticket;
use tidegate_core::time::Duration;

use super::queue::Due;
use super::{Active, Kernel};
use crate::engine::EngineModel as _;
use crate::fault::FaultKind;

/// A probe under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    gateway: u32,
    endpoint: EndpointId,
    id: ProbeId,
    passed: bool,
}

impl Kernel<'_> {
    /// Connect and health path, as a check does: a hung engine answers nothing, one that merely makes no progress says that it is well.
    pub(super) fn probe(&mut self, gateway: u32, endpoint: EndpointId, id: ProbeId, timeout: Duration) {
        let site = self.gateways[gateway as usize].site(endpoint);
        let kind = self.endpoints[site as usize].fault.kind;
        let passed =
            self.fleet.listens(site) && !matches!(kind, FaultKind::Refuse | FaultKind::Reset | FaultKind::Hang);
        let takes = if kind == FaultKind::Hang { timeout } else { self.setup.network * 2 };
        let probe = Probe { gateway, endpoint, id, passed };
        let place = match self.free_probes.pop() {
            Some(place) => {
                self.probes[place as usize] = probe;
                place
            }
            None => {
                self.probes.push(probe);
                (self.probes.len() - 1) as u32
            }
        };
        self.queue.push(self.now + takes, Due::Probed(place));
    }

    pub(super) fn on_probed(&mut self, place: u32) {
        let Probe { gateway, endpoint, id: probe, passed } = self.probes[place as usize];
        self.free_probes.push(place);
        self.tell(gateway, Event::Probed { endpoint, probe, passed });
    }

    /// The endpoint of this request hangs: it goes elsewhere if it is there and nothing of its answer is under way.
    pub(super) fn redispatch(&mut self, gateway: u32, key: RequestKey) {
        let waits = |a: &Active| {
            let inside = a.id.is_some_and(|id| self.endpoints[a.site as usize].slot(id).is_some());
            let silent = a.first_at.is_none() && a.tokens == 0;
            a.gateway == gateway && inside && silent && a.ticket.as_ref().map(Ticket::key) == Some(key)
        };
        let Some(slot) = self.active.iter().position(waits) else { return };
        let a = &mut self.active[slot];
        let (Some(ticket), Some(id)) = (a.ticket.take(), a.id.take()) else { return };
        a.verdict = Verdict::Failed(Failure::FirstByteTimeout);
        a.attempted.push(a.endpoint);
        let (outcome, site) = (Outcome::new(a.verdict), a.site as usize);
        self.endpoints[site].engine.cancel(self.now, id);
        self.endpoints[site].forget(id);
        self.gateways[gateway as usize].pool.settle(self.now, ticket, outcome);
        self.fleet.places[site].outstanding -= 1;
        self.on_outstanding(site as u32);
        self.dispatch(slot as u32);
    }
}
