//! `when`: the metric of a rule and its bound.

use super::expression::expression;
use super::source::{Prometheus, Scrape, Source};
use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use crate::scalar;
use std::time::Duration;
use tidegate_core::tune::Op;

/// When a rule acts.
#[derive(Clone, Debug, PartialEq)]
pub struct When {
    /// Where the metric comes from.
    pub source: Source,
    /// How it is compared.
    pub op: Op,
    /// With what; durations are in seconds, percentages 0..1.
    pub value: f64,
    /// How long the condition holds before the rule acts.
    pub hold: Duration,
}

impl Section for When {
    const TABLE: &'static Table = &Table {
        place: "rules[].when",
        summary: "A metric of Tidegate's own, of a page that is scraped, or what a Prometheus server answers; and its bound.",
        keys: &[
            Key {
                name: "metric",
                kind: Kind::Expression,
                absent: Absent::Means("`prometheus` says it"),
                summary: "A series of /metrics, or of the page of `scrape`; p50 to p99.9, rate, max, min, avg and sum before it.",
                example: "p99(tidegate_ttft_seconds)",
            },
            Key {
                name: "window",
                kind: Kind::Duration { min: 1.0, max: 3600.0, word: None },
                absent: Absent::Default("30s"),
                summary: "How far back quantiles and rates look.",
                example: "1m",
            },
            Key {
                name: "scrape",
                kind: Kind::Table(Scrape::TABLE),
                absent: Absent::Means("Tidegate's own metrics, each second"),
                summary: "Another page in the Prometheus text format, such as an exporter's.",
                example: "{ url: http://127.0.0.1:9100/metrics }",
            },
            Key {
                name: "prometheus",
                kind: Kind::Table(Prometheus::TABLE),
                absent: Absent::Means("no server is asked"),
                summary: "An instant query of a Prometheus server, in place of `metric`.",
                example: "{ url: http://127.0.0.1:9090, query: up }",
            },
            Key {
                name: "op",
                kind: Kind::Choice(&[">", ">=", "<", "<="]),
                absent: Absent::Required,
                summary: "How the metric is compared with `value`.",
                example: "\">\"",
            },
            Key {
                name: "value",
                kind: Kind::Reading,
                absent: Absent::Required,
                summary: "The bound: a number, a duration (seconds) or a percentage (0..1).",
                example: "500ms",
            },
            Key {
                name: "for",
                kind: Kind::Duration { min: 0.0, max: 86_400.0, word: None },
                absent: Absent::Default("30s"),
                summary: "The condition must hold on every sample so long; a missing sample, and each change, begins the time anew.",
                example: "30s",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let metric = r.value("metric", expression);
        let window = r.duration("window");
        let scrape = r.table::<Scrape>("scrape");
        let prometheus = r.table::<Prometheus>("prometheus");
        let (has_metric, has_server) = (r.is_set("metric"), r.is_set("prometheus"));
        if has_metric == has_server {
            let found = if has_metric { "both `metric` and `prometheus`" } else { "no metric" };
            let at = if has_metric { "prometheus" } else { "op" };
            let hint = "for example: `metric: p99(tidegate_ttft_seconds)`".to_owned();
            r.contradiction(at, found.to_owned(), "one of metric, prometheus", hint);
        } else if has_server && scrape.is_some() {
            let found = "`scrape` beside `prometheus`".to_owned();
            r.contradiction("scrape", found, "one source", "remove one of the two".to_owned());
        }
        let source = match (prometheus, scrape, metric.unwrap_or_default()) {
            (Some(Prometheus(asked)), ..) => Source::Query(asked),
            (None, Some(Scrape(asked)), metric) => Source::Page { asked, metric, window },
            (None, None, metric) => Source::Own { metric, window },
        };
        let word = r.choice("op");
        let op = Op::ALL.into_iter().find(|o| o.as_str() == word).unwrap_or(Op::Above);
        let value = r.value("value", scalar::reading).unwrap_or_default();
        Self { source, op, value, hold: r.duration("for") }
    }
}
