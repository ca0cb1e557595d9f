//! The status page of one endpoint: `{"response_time": s, "current_load": 0..1, "cpu": 0..1, "gpu": 0..1, "memory": 0..1}`.
//!
//! Whatever is wrong with a poll, it is told as a miss or as a report with an impossible number, never as a load of zero: an engine
//! that cannot answer must not look idle.

use crate::client::Client;
use crate::dial::Dial;
use crate::miss::Miss;
use crate::pace::Pace;
use crate::watch::{Clock, Tell};
use serde::Deserialize;
use std::sync::Arc;
use tidegate_config::StatusSource;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::load::{LoadReport, WorkReport};
use tidegate_core::rng::Rng;
use tidegate_core::time::Instant;
use tokio::time::timeout;

/// Bound on a status page, in bytes.
const LIMIT_BYTES: usize = 64 << 10;
/// Share of the interval by which each wait is shortened or lengthened.
const JITTER: f64 = 0.1;
/// Longest wait while polls fail, in intervals.
const MAX_BACKOFF: u32 = 8;

/// The loop of one endpoint.
pub(crate) struct Poller<D> {
    pub(crate) pool: Arc<str>,
    pub(crate) id: EndpointId,
    pub(crate) client: Client<D>,
    pub(crate) source: StatusSource,
    pub(crate) tell: Tell,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
}

impl<D: Dial> Poller<D> {
    pub(crate) async fn run(mut self) {
        let mut pace = Pace::new(self.rng.clone(), JITTER);
        let mut missed = 0;
        loop {
            pace.on_ask();
            // The page shows the engine at some moment between question and answer; the question is the cautious end.
            let sampled_at = (self.clock)();
            match timeout(self.source.timeout, self.poll()).await.unwrap_or(Err(Miss::Timeout)) {
                Ok(status) => {
                    missed = 0;
                    (self.tell)(Event::LoadReported { endpoint: self.id, report: status.report(sampled_at) });
                }
                Err(miss) => {
                    self.client.close();
                    if missed == 0 {
                        tracing::info!(pool = &*self.pool, endpoint = %self.client.url(), reason = %miss, "status poll failed");
                    }
                    missed += 1;
                    (self.tell)(Event::LoadMissed(self.id));
                }
            }
            pace.wait(self.source.interval * backoff(missed)).await;
        }
    }

    async fn poll(&mut self) -> Result<Status, Miss> {
        let response = self.client.head(&self.source.path).await?;
        let status = response.status();
        let body = self.client.body(response.into_body(), LIMIT_BYTES).await?;
        if !status.is_success() {
            return Err(Miss::Status(status.as_u16()));
        }
        Status::read(&body)
    }
}

/// Intervals to wait after `missed` misses in a row: 1, 1, 2, 4, 8, 8, ...
fn backoff(missed: u32) -> u32 {
    2u32.saturating_pow(missed.saturating_sub(1)).min(MAX_BACKOFF)
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
            work: WorkReport::default(),
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
            work: WorkReport::default(),
        };
        assert_eq!(report, expected);
    }

    #[test]
    fn waits_double_up_to_eight_intervals() {
        assert_eq!([0, 1, 2, 3, 4, 5, 50].map(backoff), [1, 1, 2, 4, 8, 8, 8]);
    }
}
