//! Asking one page of an endpoint for its load, again and again.
//!
//! Whatever is wrong with a poll, it is told as a miss or as a report with an impossible number, never as a load of zero: an engine
//! that cannot answer must not look idle. A page that takes long to make is asked for less often: engines have come to a halt because
//! somebody polled their metrics.

use crate::client::Client;
use crate::dial::Dial;
use crate::merge::Merged;
use crate::miss::Miss;
use crate::pace::Pace;
use crate::watch::{Clock, TellFacts};
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::Polled;
use tidegate_core::load::LoadReport;
use tidegate_core::rng::Rng;
use tidegate_core::time::Instant;
use tidegate_telemetry::SignalFacts;
use tokio::time::timeout;

/// Share of the interval by which each wait is shortened or lengthened.
pub(crate) const JITTER: f64 = 0.1;
/// Longest wait while polls fail, in intervals.
const MAX_BACKOFF: u32 = 8;
/// A page is asked for at most every so many times of what its last answer took.
const REST: u32 = 10;

/// A kind of page that tells an endpoint's load.
pub(crate) trait LoadPage: Send + 'static {
    /// Its key in `load`.
    const SOURCE: &'static str;
    /// Bound on its length, in bytes.
    const LIMIT_BYTES: usize;

    /// What the page says, which shows the engine at `sampled_at` or after.
    ///
    /// # Errors
    /// If it says nothing.
    fn read(&mut self, sampled_at: Instant, body: &[u8]) -> Result<LoadReport, Miss>;

    /// What was found on the last page that was read.
    fn facts(&self) -> PageFacts;
}

/// What was found on a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PageFacts {
    /// Whose page it is, where that is known.
    pub(crate) engine: Option<&'static str>,
    /// Signals that it has.
    pub(crate) present: Vec<&'static str>,
    /// Signals that it could have and lacks.
    pub(crate) missing: Vec<&'static str>,
    /// Why the endpoint should get nothing new, if so.
    pub(crate) gate: Option<String>,
}

impl PageFacts {
    /// `signal` is there, or not.
    pub(crate) fn note(&mut self, signal: &'static str, is_there: bool) {
        if is_there { self.present.push(signal) } else { self.missing.push(signal) }
    }
}

/// The loop of one page of one endpoint.
pub(crate) struct Poller<D, P> {
    pub(crate) pool: Arc<str>,
    /// The endpoint's URL, which need not be where the page is.
    pub(crate) endpoint: Arc<str>,
    pub(crate) client: Client<D>,
    pub(crate) path: String,
    pub(crate) polled: Polled,
    pub(crate) page: P,
    pub(crate) merged: Arc<Merged>,
    pub(crate) tell_facts: TellFacts,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
}

impl<D: Dial, P: LoadPage> Poller<D, P> {
    pub(crate) async fn run(mut self) {
        let mut pace = Pace::new(self.rng.clone(), JITTER);
        let (mut missed, mut last) = (0, None);
        loop {
            pace.on_ask();
            // The page shows the engine at some moment between question and answer; the question is the cautious end.
            let sampled_at = (self.clock)();
            let read = match timeout(self.polled.timeout, self.client.get(&self.path, P::LIMIT_BYTES)).await {
                Ok(answer) => answer.and_then(|body| self.page.read(sampled_at, &body)),
                Err(_) => Err(Miss::Timeout),
            };
            let took = (self.clock)().since(sampled_at);
            let next = rest(self.polled.interval, took);
            let trouble = match &read {
                Ok(report) => {
                    report.impossible().map(|(name, value)| Miss::Impossible(name.to_owned(), value).to_string())
                }
                Err(miss) => Some(miss.to_string()),
            };
            match read {
                Ok(report) => {
                    missed = 0;
                    // How much less often it is asked for than configured.
                    let stretch = next.as_secs_f64() / self.polled.interval.as_secs_f64().max(f64::MIN_POSITIVE);
                    self.merged.on_read(P::SOURCE, report, stretch);
                }
                Err(_) => {
                    self.client.close();
                    missed += 1;
                    self.merged.on_miss(P::SOURCE);
                }
            }
            self.say(trouble, &mut last);
            pace.wait(next * backoff(missed)).await;
        }
    }

    /// Tells what was found, and logs it, where it differs from the last time.
    fn say(&self, trouble: Option<String>, last: &mut Option<SignalFacts>) {
        let PageFacts { engine, present, missing, gate } = self.page.facts();
        // What an earlier page said keeps nobody out.
        let gate = gate.filter(|_| trouble.is_none());
        let facts = SignalFacts { source: P::SOURCE, engine, present, missing, gate, trouble, models: Vec::new() };
        if last.as_ref() == Some(&facts) {
            return;
        }
        let (pool, endpoint, source) = (&*self.pool, &*self.endpoint, P::SOURCE);
        let was_trouble = last.as_ref().is_some_and(|l| l.trouble.is_some());
        match &facts.trouble {
            // The first of several in a row; what each says is in the admin API.
            Some(reason) if !was_trouble => tracing::info!(pool, endpoint, source, %reason, "load poll failed"),
            Some(_) => {}
            None => {
                let (engine, present) = (facts.engine.unwrap_or("none"), facts.present.join(" "));
                let (missing, gate) = (facts.missing.join(" "), facts.gate.as_deref().unwrap_or("none"));
                tracing::info!(pool, endpoint, source, engine, present, missing, gate, "load signals");
            }
        }
        (self.tell_facts)(&self.endpoint, facts.clone());
        *last = Some(facts);
    }
}

/// Intervals to wait after `missed` misses in a row: 1, 1, 2, 4, 8, 8, ...
pub(crate) fn backoff(missed: u32) -> u32 {
    2u32.saturating_pow(missed.saturating_sub(1)).min(MAX_BACKOFF)
}

/// The time between two questions of which the last took so long.
pub(crate) fn rest(interval: Duration, took: Duration) -> Duration {
    interval.max(took * REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_eight_intervals() {
        assert_eq!([0, 1, 2, 3, 4, 5, 50].map(backoff), [1, 1, 2, 4, 8, 8, 8]);
    }

    #[test]
    fn a_slow_page_gets_ten_times_as_long_a_rest() {
        let ms = Duration::from_millis;
        assert_eq!([10, 100, 400].map(|took| rest(ms(1000), ms(took))), [ms(1000), ms(1000), ms(4000)]);
    }
}
