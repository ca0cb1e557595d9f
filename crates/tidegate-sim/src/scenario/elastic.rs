//! `changes`, `fleet[].cold_start` and `fleet[].autoscale`: fleets that change while they serve.

use std::time::Duration;

use tidegate_config::{Kind, Reader, Section, Table};

use super::key::{count, key, means, number, or, or_such_as, required, share, time};
use crate::kernel::elastic::{Autoscale, Change, ColdStart, Metric, Step};
use crate::kernel::setup::Site;

impl Section for ColdStart {
    const TABLE: &'static Table = &Table {
        place: "fleet[].cold_start",
        summary: "How long an engine that starts during the run takes until it answers checks and serves, with an empty cache; drawn anew for \
                  every start, evenly between the two.",
        keys: &[
            time("min", (0.0, 86_400.0), required("15s"), "Shortest."),
            time("max", (0.0, 86_400.0), means("the same", "30s"), "Longest."),
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let min = r.duration("min");
        let max = r.duration_or_none("max").unwrap_or(min);
        if max < min && r.all_good(&["min", "max"]) {
            let found = format!("max {} s, min {} s", max.as_secs_f64(), min.as_secs_f64());
            r.contradiction("max", found, "max at least min", "for example: `min: 15s, max: 30s`".to_owned());
        }
        Self { min, max: max.max(min) }
    }
}

/// The keys of which exactly one says what an autoscaler follows.
const METRICS: [&str; 4] = ["in_flight", "queue", "kv_usage", "slo"];

impl Section for Autoscale {
    const TABLE: &'static Table = &Table {
        place: "fleet[].autoscale",
        summary: "Starts and stops engines of this kind as the horizontal autoscaler of Kubernetes does, which KEDA drives: wanted are the sum of \
                  a metric over its engines divided by the target, rounded up; at most twice as many, or four more, at a time; fewer once fewer \
                  have been enough for `settle`. Exactly one of `in_flight`, `queue`, `kv_usage` and `slo`.",
        keys: &[
            number(
                "in_flight",
                (0.001, 1e6),
                means("another metric", "16"),
                "Target: requests in flight per endpoint.",
            ),
            number(
                "queue",
                (0.001, 1e6),
                means("another metric", "2"),
                "Target: requests waiting per endpoint, in the pool's queue and in the engines.",
            ),
            share(
                "kv_usage",
                (0.01, 1.0),
                means("another metric", "60%"),
                "Target: used share of an engine's KV memory, for `llm`.",
            ),
            share(
                "slo",
                (0.01, 0.9999),
                means("another metric", "98%"),
                "Target: share of the requests that meet `goal`, for streams; half as many engines again while fewer do, one less while at \
                          most half of those that may miss it do.",
            ),
            count("min", 10_000, or_such_as("1", "2"), "Fewest engines."),
            count(
                "max",
                10_000,
                required("12"),
                "Most engines, those that still end what they have included. `load` of a trace is a share of what these saturate at.",
            ),
            time("interval", (0.1, 86_400.0), or("15s"), "Time between two looks."),
            time(
                "settle",
                (0.0, 86_400.0),
                or_such_as("5m", "2m"),
                "How long fewer engines must have been enough before any leaves.",
            ),
            share(
                "tolerance",
                (0.0, 0.9),
                or("10%"),
                "How far from its target the metric may be before anything is done.",
            ),
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let mut metrics = Vec::new();
        metrics.extend(r.number_or_none("in_flight").map(Metric::InFlight));
        metrics.extend(r.number_or_none("queue").map(Metric::Queue));
        metrics.extend(r.number_or_none("kv_usage").map(Metric::KvUsage));
        metrics.extend(r.number_or_none("slo").map(Metric::Slo));
        if metrics.len() != 1 && r.all_good(&METRICS) {
            let found = if metrics.is_empty() { "no metric" } else { "more than one metric" };
            let key = METRICS.into_iter().find(|k| r.is_set(k)).unwrap_or("max");
            let hint = "for example: `in_flight: 16`".to_owned();
            r.contradiction(key, found.to_owned(), "one of in_flight, queue, kv_usage, slo", hint);
        }
        let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let (min, max) = (number(r.integer("min")), number(r.integer("max")));
        if max < min && r.all_good(&["min", "max"]) {
            let hint = "for example: `min: 2, max: 12`".to_owned();
            r.contradiction("max", format!("max {max}, min {min}"), "max at least min", hint);
        }
        Self {
            metric: metrics.first().copied().unwrap_or(Metric::InFlight(1.0)),
            min,
            max: max.max(min),
            interval: r.duration("interval"),
            settle: r.duration("settle"),
            tolerance: r.number("tolerance"),
        }
    }
}

/// A change as written.
#[derive(Clone, Debug)]
pub struct PlannedChange {
    endpoint: String,
    at: Duration,
    step: Step,
}

impl Section for PlannedChange {
    const TABLE: &'static Table = &Table {
        place: "changes[]",
        summary: "An endpoint that joins or leaves. One whose first change is to join is not there before.",
        keys: &[
            key(
                "endpoint",
                Kind::Name,
                required("a100-2"),
                "Name of the endpoint, with its number where its `count` is more than 1.",
            ),
            time("at", (0.0, 1e8), required("60s"), "When."),
            key(
                "change",
                Kind::Choice(&["join", "leave"]),
                required("join"),
                "`join`: its engine starts, with its `cold_start`, and it joins the pool; `leave`: it gets no new request, and its engine \
                          stops when the last one has ended.",
            ),
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let step = if r.choice("change") == "leave" { Step::Leave } else { Step::Join };
        Self { endpoint: r.text("endpoint").unwrap_or_default(), at: r.duration("at"), step }
    }
}

impl PlannedChange {
    /// The changes in a fleet of `sites`.
    ///
    /// # Errors
    /// No endpoint has the name of one, or an endpoint joins or leaves twice in a row.
    pub fn all(planned: &[Self], sites: &[Site]) -> Result<Vec<Change>, String> {
        let mut changes = Vec::with_capacity(planned.len());
        for p in planned {
            let site = sites.iter().position(|s| s.name == p.endpoint);
            let site = site.ok_or_else(|| format!("changes: no endpoint {}", p.endpoint))?;
            changes.push(Change { site: site as u32, at: p.at, step: p.step });
        }
        changes.sort_by_key(|c| (c.site, c.at));
        for pair in changes.windows(2) {
            if pair[0].site == pair[1].site && pair[0].step == pair[1].step {
                let name = &sites[pair[0].site as usize].name;
                let word = if pair[0].step == Step::Join { "joins" } else { "leaves" };
                let (first, second) = (pair[0].at.as_secs_f64(), pair[1].at.as_secs_f64());
                return Err(format!(
                    "changes: {name} {word} at {first} s and again at {second} s; joins and leaves take turns"
                ));
            }
        }
        Ok(changes)
    }
}
