//! The status page of one endpoint: `{"response_time": s, "current_load": 0..1, "cpu": 0..1, "gpu": 0..1, "memory": 0..1}`.

use crate::miss::Miss;
use crate::poll::{LoadPage, PageFacts};
use serde::Deserialize;
use tidegate_core::load::LoadReport;
use tidegate_core::time::Instant;

/// The page.
#[derive(Debug, Default)]
pub(crate) struct StatusPage {
    facts: PageFacts,
}

impl LoadPage for StatusPage {
    const SOURCE: &'static str = "status";
    const LIMIT_BYTES: usize = 64 << 10;

    fn read(&mut self, sampled_at: Instant, body: &[u8]) -> Result<LoadReport, Miss> {
        self.facts = PageFacts::default();
        let status = Status::read(body)?;
        let named = [("load", status.current_load), ("response_time", status.response_time)];
        named.iter().for_each(|(name, value)| self.facts.note(name, value.is_some()));
        let used = [("cpu", status.cpu), ("gpu", status.gpu), ("memory", status.memory)];
        // They are extras: a page without them lacks nothing.
        used.iter().filter(|(_, value)| value.is_some()).for_each(|(name, _)| self.facts.note(name, true));
        Ok(status.report(sampled_at))
    }

    fn facts(&self) -> PageFacts {
        self.facts.clone()
    }
}

/// What a page says. Keys that are not ours are left alone; a key that is there twice or is no number makes the page unreadable.
#[derive(Debug, Deserialize)]
struct Status {
    response_time: Option<f64>,
    current_load: Option<f64>,
    cpu: Option<f64>,
    gpu: Option<f64>,
    memory: Option<f64>,
}

impl Status {
    fn read(body: &[u8]) -> Result<Self, Miss> {
        let status: Self = serde_json::from_slice(body).map_err(Miss::NotJson)?;
        let numbers = [status.response_time, status.current_load, status.cpu, status.gpu, status.memory];
        if numbers.iter().all(Option::is_none) { Err(Miss::NoNumber) } else { Ok(status) }
    }

    /// Absent numbers stay absent and impossible ones impossible: the pool calls them by their names.
    fn report(&self, sampled_at: Instant) -> LoadReport {
        LoadReport {
            sampled_at,
            load: self.current_load,
            response_time_s: self.response_time,
            utilisation: [self.cpu, self.gpu, self.memory],
            ..LoadReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_page_is_read() {
        let text = br#"{"response_time": 0.4, "current_load": 0.25, "gpu": 1, "server_name": "e1", "cpu": null}"#;
        let report = Status::read(text).unwrap().report(Instant::from_nanos(7));
        let expected = LoadReport {
            sampled_at: Instant::from_nanos(7),
            load: Some(0.25),
            response_time_s: Some(0.4),
            utilisation: [None, Some(1.0), None],
            ..LoadReport::default()
        };
        assert_eq!(report, expected);
    }
}
