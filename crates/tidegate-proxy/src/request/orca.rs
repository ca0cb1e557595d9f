//! Load that an engine tells in a header of its answers (ORCA: `endpoint-load-metrics`).
//!
//! Two forms are read: JSON, and `name=value` pairs, each with or without the word of its form in front, as engines differ there. Of what
//! may be above 1 where more is asked than can be done, 1 is told. A report is told to the pool at most every 100 ms per endpoint, so that a
//! busy engine does not take the pool's lock once more per answer.

use crate::request::lease::Lease;
use crate::state::pool::PoolHandle;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_config::Load;
use tidegate_core::event::Event;
use tidegate_core::load::{LoadReport, WorkReport};
use tidegate_core::time::Instant;

/// What engines are asked by.
static FORMAT: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");
/// What they answer in.
static METRICS: HeaderName = HeaderName::from_static("endpoint-load-metrics");
/// Shortest time between two reports of an endpoint.
const EVERY: Duration = Duration::from_millis(100);
/// Bound on a header that is read, in bytes.
const LIMIT_BYTES: usize = 8 << 10;

/// Lets something happen at most every [`EVERY`], on whichever core.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    /// Nanoseconds of the clock at the last time; 0: never.
    last: AtomicU64,
}

impl Seldom {
    /// Whether it may happen at `now`; of several cores that ask at once one may.
    fn is_due(&self, now: Instant) -> bool {
        let last = self.last.load(Relaxed);
        let is_due = last == 0 || now.since(Instant::from_nanos(last)) >= EVERY;
        is_due && self.last.compare_exchange(last, now.as_nanos().max(1), Relaxed, Relaxed).is_ok()
    }
}

/// Asks for the load with an answer, where the pool wants to be told.
pub(crate) fn ask(headers: &mut HeaderMap, pool: &PoolHandle) {
    if !pool.tells_load() {
        return;
    }
    headers.insert(FORMAT.clone(), HeaderValue::from_static("TEXT"));
}

/// Takes the load out of an answer's head, which is none of the client's business, and tells the pool.
pub(crate) fn take(headers: &mut HeaderMap, lease: &Lease, now: Instant) {
    if !lease.pool().tells_load() {
        return;
    }
    let Some(value) = headers.remove(&METRICS) else { return };
    let Some(report) = value.to_str().ok().and_then(|text| read(text, now)) else { return };
    if !lease.endpoint().tells.is_due(now) {
        return;
    }
    // Two that report by themselves would take each other's place.
    let is_led = lease.pool().settings().load.as_ref().is_some_and(Load::is_polled);
    lease.endpoint().on_answered(report);
    if !is_led || lease.endpoint().is_unheard() {
        lease.pool().on_event(Event::LoadReported { endpoint: lease.id(), report });
    }
}

/// What a header says; `None` if nothing that is known.
fn read(text: &str, sampled_at: Instant) -> Option<LoadReport> {
    let text = text.trim();
    let rest = ["TEXT", "JSON"].iter().find_map(|word| {
        let (first, rest) = text.split_at_checked(word.len())?;
        first.eq_ignore_ascii_case(word).then(|| rest.trim_start())
    });
    let text = rest.unwrap_or(text);
    if text.len() > LIMIT_BYTES {
        return None;
    }
    let told = if text.starts_with('{') { serde_json::from_str(text).ok()? } else { Told::pairs(text) };
    let report = told.report(sampled_at);
    (!report.is_empty()).then_some(report)
}

#[derive(Debug, Default, Deserialize)]
struct Told {
    cpu_utilization: Option<f64>,
    mem_utilization: Option<f64>,
    application_utilization: Option<f64>,
    #[serde(default)]
    named_metrics: HashMap<String, f64>,
}

impl Told {
    /// From `name=value,name=value`; what cannot be read is left out.
    fn pairs(text: &str) -> Self {
        let mut told = Self::default();
        for (name, value) in text.split(',').filter_map(|pair| pair.split_once('=')) {
            let Ok(value) = value.trim().parse::<f64>() else { continue };
            match name.trim() {
                "cpu_utilization" => told.cpu_utilization = Some(value),
                "mem_utilization" => told.mem_utilization = Some(value),
                "application_utilization" => told.application_utilization = Some(value),
                name => {
                    if let Some(name) = name.strip_prefix("named_metrics.") {
                        told.named_metrics.insert(name.to_owned(), value);
                    }
                }
            }
        }
        told
    }

    fn report(&self, sampled_at: Instant) -> LoadReport {
        // Not `min`, which would make a number of what is none.
        let at_most_one = |v: f64| if v > 1.0 { 1.0 } else { v };
        let named = |name: &str| self.named_metrics.get(name).copied();
        LoadReport {
            sampled_at,
            load: self.application_utilization.or(self.cpu_utilization).map(at_most_one),
            response_time_s: None,
            utilisation: [self.cpu_utilization.map(at_most_one), None, self.mem_utilization],
            work: WorkReport {
                running: named("num_requests_running"),
                waiting: named("num_requests_waiting"),
                kv_usage: named("kv_cache_usage_perc"),
                ..WorkReport::default()
            },
            ..LoadReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> Instant {
        Instant::from_nanos(7)
    }

    #[test]
    fn every_form_says_the_same() {
        let work = WorkReport { waiting: Some(3.0), kv_usage: Some(0.25), ..WorkReport::default() };
        let expected = LoadReport {
            sampled_at: at(),
            load: Some(0.5),
            utilisation: [Some(1.0), None, None],
            work,
            ..LoadReport::default()
        };
        let pairs = "named_metrics.kv_cache_usage_perc=0.25, named_metrics.num_requests_waiting=3,cpu_utilization=1.7,application_utilization=0.5,x";
        let json = r#"{"named_metrics":{"kv_cache_usage_perc":0.25,"num_requests_waiting":3,"x":1},"cpu_utilization":1.7,"application_utilization":0.5}"#;
        for text in [
            pairs.to_owned(),
            format!("TEXT {pairs}"),
            format!("text {pairs}"),
            json.to_owned(),
            format!("JSON {json}"),
        ] {
            assert_eq!(read(&text, at()), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_busy_engine_is_heard_ten_times_a_second() {
        let seldom = Seldom::default();
        let due = (0..1000).filter(|ms| seldom.is_due(Instant::from_nanos(ms * 1_000_000 + 1))).count();
        assert_eq!(due, 10);
    }

    #[test]
    fn what_says_nothing_is_no_report() {
        let long = format!("named_metrics.kv_cache_usage_perc=0.2,{}", "x".repeat(LIMIT_BYTES));
        for text in ["", "TEXT", "BIN CZqZmZmZmbk/", "JSON {", "a=b", "named_metrics.other=1", &long] {
            assert_eq!(read(text, at()), None, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_told_as_it_is() {
        for text in ["named_metrics.kv_cache_usage_perc=42", "cpu_utilization=NaN", "application_utilization=-1"] {
            assert!(!read(text, at()).unwrap().is_possible(), "{text}");
        }
    }
}
