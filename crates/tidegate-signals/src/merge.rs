//! What several pages say of one endpoint, as one report.
//!
//! Core corrects a report by what was sent since its sample, so a report has one sample time. It is that of the leading page, the first of
//! metrics, status and accelerator whose last poll was good: requests and tokens move fastest. The others' newest numbers are told with it,
//! as long as they are not too old; a page that fails leads no more, and the next takes over.

use crate::watch::Tell;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::load::LoadReport;

/// The reports of one endpoint's pages.
pub(crate) struct Merged {
    id: EndpointId,
    max_age: Duration,
    tell: Tell,
    /// By source, in the order in which they lead; the last report, unless the last poll failed.
    parts: Mutex<Vec<(&'static str, Option<LoadReport>)>>,
}

impl Merged {
    /// For the pages called `sources`, the first to lead first.
    pub(crate) fn new(id: EndpointId, max_age: Duration, tell: Tell, sources: &[&'static str]) -> Self {
        Self { id, max_age, tell, parts: Mutex::new(sources.iter().map(|s| (*s, None)).collect()) }
    }

    /// A page was read.
    pub(crate) fn on_read(&self, source: &'static str, report: LoadReport) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = parts.iter_mut().find(|p| p.0 == source) {
            part.1 = Some(report);
        }
        let mut there = parts.iter().filter_map(|(source, report)| report.map(|r| (*source, r)));
        let Some((_, lead)) = there.next().filter(|(first, _)| *first == source) else { return };
        let fresh = |r: &LoadReport| lead.sampled_at.since(r.sampled_at) < self.max_age;
        let whole = there.map(|(_, r)| r).filter(fresh).fold(lead, together);
        drop(parts);
        (self.tell)(Event::LoadReported { endpoint: self.id, report: whole });
    }

    /// A page could not be read.
    pub(crate) fn on_miss(&self, source: &'static str) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = parts.iter_mut().find(|p| p.0 == source) {
            part.1 = None;
        }
        drop(parts);
        (self.tell)(Event::LoadMissed(self.id));
    }
}

/// The higher load and use count; response time and requests are those of the first that tells them.
fn together(lead: LoadReport, other: LoadReport) -> LoadReport {
    // NaN is kept: what is impossible must be seen.
    let higher = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) if a.is_nan() || b.is_nan() => Some(f64::NAN),
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    let [[cpu, gpu, memory], other_use] = [lead.utilisation, other.utilisation];
    LoadReport {
        sampled_at: lead.sampled_at,
        load: higher(lead.load, other.load),
        response_time_s: lead.response_time_s.or(other.response_time_s),
        utilisation: [higher(cpu, other_use[0]), higher(gpu, other_use[1]), higher(memory, other_use[2])],
        work: if lead.work.is_empty() { other.work } else { lead.work },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidegate_core::load::WorkReport;
    use tidegate_core::time::Instant;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_leading_page_tells_with_what_the_others_said_last() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell: Tell = Arc::new({
            let told = Arc::clone(&told);
            move |event| told.lock().unwrap().push(event)
        });
        let merged = Merged::new(EndpointId(3), Duration::from_secs(3), tell, &["metrics", "status"]);
        let status = |ms, load| LoadReport {
            sampled_at: at(ms),
            load: Some(load),
            response_time_s: Some(0.2),
            ..LoadReport::default()
        };
        let work = WorkReport { running: Some(4.0), ..WorkReport::default() };
        let metrics = |ms| LoadReport { sampled_at: at(ms), work, ..LoadReport::default() };
        let last = || match told.lock().unwrap().last() {
            Some(Event::LoadReported { endpoint: EndpointId(3), report }) => Some(*report),
            _ => None,
        };
        merged.on_read("status", status(100, 0.5));
        assert_eq!(last(), Some(status(100, 0.5)), "alone it leads");
        merged.on_read("metrics", metrics(200));
        assert_eq!(last(), Some(LoadReport { work, ..status(200, 0.5) }));
        merged.on_read("status", status(300, 0.7));
        assert_eq!(told.lock().unwrap().len(), 2, "it waits for the leading page");
        merged.on_read("metrics", metrics(4000));
        assert_eq!(last(), Some(metrics(4000)), "too old to be told");
        merged.on_miss("metrics");
        assert_eq!(last(), None);
        merged.on_read("status", status(4100, 0.1));
        assert_eq!(last(), Some(status(4100, 0.1)), "the next takes over");
    }
}
