//! What was measured.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate_sim::workload::Latency;

/// Different errors and endpoints that are told apart; further ones count as `other`.
const MOST_KINDS: usize = 256;

/// How one request went.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// `None`: well. Otherwise what went wrong, such as `503 overloaded` or `timeout`.
    pub(super) error: Option<String>,
    /// From the intended start to the end.
    pub(super) total_s: f64,
    /// From the intended start to the first content, for streams.
    pub(super) ttft_s: Option<f64>,
    /// Mean interval between content events, for streams with two or more.
    pub(super) mean_interval_s: Option<f64>,
    /// Which endpoint answered, by the gateway's header.
    pub(super) endpoint: Option<String>,
    /// How much later than intended the request started, because of this client.
    pub(super) late_s: f64,
}

/// A round of a closed loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// From 1.
    pub round: u32,
    /// From its first request to its last answer, seconds.
    pub total_s: f64,
}

/// The results of a plan. Latencies are those of successful requests.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Name of the row.
    pub name: String,
    /// Requests that ended.
    pub requests: u64,
    /// Of these, well.
    pub succeeded: u64,
    /// Of these, within the goodput limits.
    pub good: u64,
    /// Requests cut short because the plan was stopped.
    pub unfinished: u64,
    /// From the intended start to the end.
    pub total: Latency,
    /// From the intended start to the first content.
    pub ttft: Latency,
    /// Between content events of a stream.
    pub interval: Latency,
    /// How much later than intended requests started because this client was behind or at `max_in_flight`.
    pub late: Latency,
    /// Failed requests by what went wrong.
    pub errors: BTreeMap<String, u64>,
    /// Requests by the endpoint that answered; empty without a gateway.
    pub endpoints: BTreeMap<String, u64>,
    /// Content events received.
    pub events: u64,
    /// Rounds of a closed loop.
    pub rounds: Vec<Round>,
    /// From the plan's start to the last answer.
    pub took: Duration,
}

impl Report {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    pub(super) fn on_sample(&mut self, sample: Sample, good_ttft_s: f64, good_interval_s: f64) {
        self.requests += 1;
        self.late.record(sample.late_s);
        if let Some(endpoint) = sample.endpoint {
            count(&mut self.endpoints, endpoint);
        }
        if let Some(error) = sample.error {
            return count(&mut self.errors, error);
        }
        self.succeeded += 1;
        self.total.record(sample.total_s);
        if let Some(ttft_s) = sample.ttft_s {
            self.ttft.record(ttft_s);
        }
        let first_s = sample.ttft_s.unwrap_or(sample.total_s);
        let good = first_s <= good_ttft_s && sample.mean_interval_s.is_none_or(|s| s <= good_interval_s);
        self.good += u64::from(good);
    }

    /// Successful share of the requests, 0..=1.
    pub fn success(&self) -> f64 {
        share(self.succeeded, self.requests)
    }

    /// Successful requests per second, over the whole run.
    pub fn throughput_rps(&self) -> f64 {
        self.succeeded as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Share of the requests per endpoint, 0..=1.
    pub fn shares(&self) -> BTreeMap<String, f64> {
        let all = self.endpoints.values().sum();
        self.endpoints.iter().map(|(name, n)| (name.clone(), share(*n, all))).collect()
    }

    /// The row of a report: times in seconds, shares as fractions; fields that mean nothing here are absent.
    pub fn row(&self) -> Value {
        let mut row = Map::new();
        let mut put = |key: &str, value: Option<f64>| {
            if let Some(x) = value.filter(|x| x.is_finite()) {
                row.insert(key.to_owned(), json!(x));
            }
        };
        put("mean_latency_s", self.total.mean_s());
        put("se_latency_s", self.total.standard_error_s());
        for (suffix, set) in [("", &self.total), ("_ttft", &self.ttft), ("_interval", &self.interval)] {
            put(&format!("p50{suffix}_s"), set.quantile_s(0.5));
            put(&format!("p90{suffix}_s"), set.quantile_s(0.9));
            put(&format!("p99{suffix}_s"), set.quantile_s(0.99));
        }
        put("mean_ttft_s", self.ttft.mean_s());
        put("mean_interval_s", self.interval.mean_s());
        put("p99_late_s", self.late.quantile_s(0.99));
        put("throughput_rps", Some(self.throughput_rps()));
        put("events_per_s", Some(self.events as f64 / self.took.as_secs_f64().max(1e-9)).filter(|x| *x > 0.0));
        if self.requests > 0 {
            put("success", Some(self.success()));
            put("goodput", Some(share(self.good, self.requests)));
        }
        row.insert("name".into(), json!(self.name));
        row.insert("requests".into(), json!(self.requests));
        if !self.endpoints.is_empty() {
            row.insert("share".into(), json!(self.shares()));
        }
        if !self.errors.is_empty() {
            row.insert("errors".into(), json!(self.errors));
        }
        if self.unfinished > 0 {
            row.insert("unfinished".into(), json!(self.unfinished));
        }
        Value::Object(row)
    }

    /// The rounds of a closed loop.
    pub fn rounds_json(&self) -> Vec<Value> {
        let one = |r: &Round| json!({"policy": self.name, "round": r.round, "total_s": r.total_s});
        self.rounds.iter().map(one).collect()
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn count(map: &mut BTreeMap<String, u64>, key: String) {
    let key = if map.len() >= MOST_KINDS && !map.contains_key(&key) { "other".to_owned() } else { key };
    *map.entry(key).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_latency_of_successes_only() {
        let mut r = Report::new("x");
        let ok =
            |total_s, ttft_s| Sample { total_s, ttft_s: Some(ttft_s), endpoint: Some("a".into()), ..Sample::default() };
        r.on_sample(ok(1.0, 0.5), 2.0, 0.1);
        r.on_sample(ok(5.0, 3.0), 2.0, 0.1);
        r.on_sample(Sample { error: Some("503 overloaded".into()), total_s: 99.0, ..Sample::default() }, 2.0, 0.1);
        r.took = Duration::from_secs(2);
        let row = r.row();
        assert_eq!((row["requests"].as_u64(), row["mean_latency_s"].as_f64()), (Some(3), Some(3.0)));
        assert_eq!((row["throughput_rps"].as_f64(), row["share"]["a"].as_f64()), (Some(1.0), Some(1.0)));
        assert!((row["success"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-12);
        assert!((row["goodput"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(row["errors"]["503 overloaded"], 1);
        assert!(row.get("mean_interval_s").is_none(), "nothing to say");
    }
}
