//! What a published rule knows of an endpoint: the newest report, and what was sent since it arrived.

use tidegate_core::endpoint::Endpoints;
use tidegate_core::event::EndpointEvent;
use tidegate_core::id::EndpointId;
use tidegate_core::load::WorkReport;
use tidegate_core::outcome::Verdict;

/// Weight of the newest answer in agentgateway's averages.
const WEIGHT: f64 = 0.3;

/// One endpoint.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) report: WorkReport,
    /// Own tokens sent since the report arrived.
    pub(super) since: f64,
    /// Own tokens sent whose first byte has not come.
    pub(super) queued: f64,
    /// Prompt tokens of all own requests inside.
    pub(super) held: f64,
    pub(super) health: f64,
    pub(super) latency_s: f64,
}

impl Default for Known {
    fn default() -> Self {
        let report = WorkReport::default();
        Self { report, since: 0.0, queued: 0.0, held: 0.0, health: 1.0, latency_s: 0.0 }
    }
}

/// All endpoints.
#[derive(Debug, Default)]
pub(super) struct Board {
    known: Vec<Known>,
    nobody: Known,
}

impl Board {
    pub(super) fn get(&self, id: EndpointId) -> &Known {
        self.known.get(id.index()).unwrap_or(&self.nobody)
    }

    fn at(&mut self, id: EndpointId) -> &mut Known {
        if self.known.len() <= id.index() {
            self.known.resize(id.index() + 1, Known::default());
        }
        &mut self.known[id.index()]
    }

    pub(super) fn on_event(&mut self, id: EndpointId, event: &EndpointEvent<'_>, _endpoints: &Endpoints) {
        let known = self.at(id);
        match event {
            EndpointEvent::Dispatched(d) => {
                known.since += d.work;
                known.queued += d.work;
                known.held += d.work + d.matched;
            }
            EndpointEvent::FirstByte(d, ttft_s) => {
                known.queued = (known.queued - d.work).max(0.0);
                known.latency_s += WEIGHT * (ttft_s - known.latency_s);
            }
            EndpointEvent::Ended(d, outcome, _) => {
                if d.first_byte_at.is_none() {
                    known.queued = (known.queued - d.work).max(0.0);
                }
                known.held = (known.held - d.work - d.matched).max(0.0);
                let well = f64::from(u8::from(outcome.verdict == Verdict::Success));
                known.health += WEIGHT * (well - known.health);
            }
            EndpointEvent::Reported(report) => (known.report, known.since) = (report.work, 0.0),
            _ => {}
        }
    }
}
