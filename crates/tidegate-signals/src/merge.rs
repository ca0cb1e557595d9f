//! What several pages say of one endpoint, as one report.
//!
//! Core corrects a report by what was sent since its sample, so a report has one sample time. It is that of the leading page, the first of
//! metrics, status, accelerator and node whose last poll was good: requests and tokens move fastest. The others' newest numbers are told with it,
//! as long as they are not too old; a page that fails leads no more, and the next takes over.

use crate::watch::Tell;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::load::LoadReport;

/// Most by which an interval is stretched: a bound for arithmetic, as a poll has a time-out.
const MOST_STRETCH: f64 = 1000.0;

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
    /// `stretch` (at least 1): how many times the configured interval passes until it is read again; so much longer it counts.
    pub(crate) fn on_read(&self, source: &'static str, report: LoadReport, stretch: f64) {
        let holds_for = (stretch > 1.0).then(|| self.max_age.mul_f64(stretch.min(MOST_STRETCH)));
        let report = LoadReport { holds_for, ..report };
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = parts.iter_mut().find(|p| p.0 == source) {
            part.1 = Some(report);
        }
        let mut there = parts.iter().filter_map(|(source, report)| report.map(|r| (*source, r)));
        let Some((_, lead)) = there.next().filter(|(first, _)| *first == source) else { return };
        let fresh = |r: &LoadReport| lead.sampled_at.since(r.sampled_at) < r.holds_for.unwrap_or(self.max_age);
        let whole = there.map(|(_, r)| r).filter(fresh).fold(lead, |whole, other| whole.with(&other));
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
        merged.on_read("status", status(100, 0.5), 1.0);
        assert_eq!(last(), Some(status(100, 0.5)), "alone it leads");
        merged.on_read("metrics", metrics(200), 1.0);
        assert_eq!(last(), Some(LoadReport { work, ..status(200, 0.5) }));
        merged.on_read("status", status(300, 0.7), 1.0);
        assert_eq!(told.lock().unwrap().len(), 2, "it waits for the leading page");
        merged.on_read("metrics", metrics(4000), 1.0);
        assert_eq!(last(), Some(metrics(4000)), "too old to be told");
        merged.on_miss("metrics");
        assert_eq!(last(), None);
        merged.on_read("status", status(4100, 0.1), 1.0);
        assert_eq!(last(), Some(status(4100, 0.1)), "the next takes over");
    }
}
