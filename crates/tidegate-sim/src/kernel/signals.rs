//! What reaches the gateway besides answers: status pages, health checks, progress; and faults, which reach the engines.

use tidegate_core::event::Event;
use tidegate_core::load::{LoadReport, WorkReport};
use tidegate_core::outcome::Failure;
use tidegate_core::time::Instant;

use super::queue::Due;
use super::setup::Lie;
use super::{Kernel, PROGRESS_EVERY};
use crate::engine::{EngineModel as _, Status};
use crate::fault::{Fault, FaultKind};

/// When a page that stands still begins to.
const FROZEN_FROM: Instant = Instant::from_nanos(10_000_000_000);

impl Kernel<'_> {
    /// Reads every status page; what they say arrives one delay later.
    pub(super) fn on_poll(&mut self, gateway: u32) {
        let Some(probes) = self.setup.probes else { return };
        let now = self.now;
        let mut reports = Vec::with_capacity(self.endpoints.len());
        for site in 0..self.endpoints.len() as u32 {
            self.advance(site);
            self.wake(site);
            let e = &mut self.endpoints[site as usize];
            let lie = self.setup.lies.iter().find(|(s, _)| *s == site).map(|l| l.1);
            let answers = self.fleet.listens(site)
                && lie != Some(Lie::Missing)
                && !matches!(e.fault.kind, FaultKind::Refuse | FaultKind::Reset | FaultKind::Hang);
            reports.push(answers.then(|| {
                let mut status = e.engine.status_at(now);
                match lie {
                    Some(Lie::Zero) => status = Status::default(),
                    Some(Lie::Frozen) if now > FROZEN_FROM => status = *e.frozen.get_or_insert(status),
                    _ => {}
                }
                LoadReport {
                    sampled_at: now,
                    load: Some(status.load),
                    response_time_s: Some(status.response_time_s),
                    work: WorkReport {
                        running: Some(f64::from(status.running)),
                        waiting: Some(f64::from(status.waiting)),
                        queued_tokens: probes.queued_tokens.then_some(status.queued_tokens as f64),
                        generated_total: Some(status.generation_tokens as f64),
                        prompt_total: Some(status.prompt_tokens as f64),
                        kv_usage: Some(status.kv_usage.min(1.0)),
                    },
                    ..LoadReport::default()
                }
            }));
        }
        self.gateways[gateway as usize].reports.push_back(reports);
        self.queue.push(now + probes.delay, Due::Reports(gateway));
        self.queue.push(now + probes.interval, Due::Poll(gateway));
    }

    /// A round of status pages arrives.
    pub(super) fn on_reports(&mut self, gateway: u32) {
        let Some(reports) = self.gateways[gateway as usize].reports.pop_front() else { return };
        for (site, report) in reports.into_iter().enumerate() {
            let Some(endpoint) = self.gateways[gateway as usize].ids[site] else { continue };
            let event = match report {
                Some(report) => Event::LoadReported { endpoint, report },
                None => Event::LoadMissed(endpoint),
            };
            self.tell(gateway, event);
        }
    }

    /// Checks every endpoint. A hung engine fails; one that merely makes no progress says that it is well.
    pub(super) fn on_check(&mut self, gateway: u32) {
        let Some(every) = self.setup.check_every else { return };
        for i in 0..self.endpoints.len() {
            let Some(endpoint) = self.gateways[gateway as usize].ids[i] else { continue };
            let kind = self.endpoints[i].fault.kind;
            let passed =
                self.fleet.listens(i as u32) && !matches!(kind, FaultKind::Refuse | FaultKind::Reset | FaultKind::Hang);
            self.tell(gateway, Event::Checked { endpoint, passed });
        }
        self.queue.push(self.now + every, Due::Check(gateway));
    }

    /// Tells every pool how many tokens its own streams got at each endpoint.
    pub(super) fn on_progress(&mut self) {
        for i in 0..self.endpoints.len() {
            for g in 0..self.gateways.len() {
                let tokens = std::mem::take(&mut self.endpoints[i].tokens[g]);
                let Some(endpoint) = self.gateways[g].ids[i] else { continue };
                self.tell(g as u32, Event::Progress { endpoint, tokens });
            }
        }
        self.queue.push(self.now + PROGRESS_EVERY, Due::Progress);
    }

    /// A fault begins.
    pub(super) fn on_fault(&mut self, index: u32) {
        let outage = self.setup.outages[index as usize];
        if let Some(ends) = outage.fault.ends_at(self.now) {
            self.queue.push(ends, Due::FaultEnds(index));
        }
        self.set_fault(outage.site, outage.fault);
    }

    /// A fault ends.
    pub(super) fn on_fault_end(&mut self, index: u32) {
        let site = self.setup.outages[index as usize].site;
        self.set_fault(site, Fault::default());
    }

    fn set_fault(&mut self, site: u32, fault: Fault) {
        self.advance(site);
        let now = self.now;
        let e = &mut self.endpoints[site as usize];
        e.fault = fault;
        e.engine.set_slowdown(now, fault.slowdown());
        if matches!(fault.kind, FaultKind::Refuse | FaultKind::Reset) {
            let inside: Vec<_> = e.inside().collect();
            for (id, slot) in inside {
                let begun = self.active[slot as usize].first_at.is_some();
                self.break_off(site, id, slot, if begun { Failure::Truncated } else { Failure::Reset });
            }
        }
        self.wake(site);
    }
}
