//! `governance`: what stands in front of the pool, one row of the comparison each.

use tidegate_config::{Absent, ConcurrencyLimit, Key, Kind, Queue, RateLimit, Reader, Section, Table};
use tidegate_core::limit::limits::config::LimitsConfig;
use tidegate_core::pool::config::{PoolConfig, RetryConfig};

use crate::kernel::governance::Governance;

/// One way to govern.
#[derive(Clone, Debug)]
pub struct Governed {
    /// Limits and baselines.
    pub governance: Governance,
    queue: Option<Queue>,
    max_in_flight: Option<u32>,
    retry_budget: f64,
}

const KEYS: &[Key] = &[
    Key { name: "name", kind: Kind::Name, absent: Absent::Required, summary: "Label of the row.", example: "ours" },
    Key {
        name: "max_in_flight",
        kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
        absent: Absent::Means("no bound"),
        summary: "Most requests of the pool in flight.",
        example: "32",
    },
    Key {
        name: "queue",
        kind: Kind::Table(Queue::TABLE),
        absent: Absent::Means("what finds no place is refused"),
        summary: "Where requests wait for a place, as in a config file.",
        example: "{ max_wait: 5s }",
    },
    Key {
        name: "rate_limits",
        kind: Kind::List(RateLimit::TABLE),
        absent: Absent::Means("no limits on rates"),
        summary: "Limits on rates, as in a config file.",
        example: "[{ name: all, limit: 100 requests/s }]",
    },
    Key {
        name: "concurrency_limits",
        kind: Kind::List(ConcurrencyLimit::TABLE),
        absent: Absent::Means("no limits on requests in flight"),
        summary: "Limits on requests in flight, as in a config file.",
        example: "[{ name: streams, max_in_flight: 200, each: 16 }]",
    },
    Key {
        name: "retry_budget",
        kind: Kind::Fraction { min: 0.0, max: 1.0, word: None },
        absent: Absent::Default("20%"),
        summary: "Retries the pool may make per request.",
        example: "10%",
    },
    Key {
        name: "told_apart",
        kind: Kind::Bool,
        absent: Absent::Default("true"),
        summary: "Whether limits and queue know who asks. A baseline does not: first come, first served.",
        example: "false",
    },
    Key {
        name: "windows",
        kind: Kind::Bool,
        absent: Absent::Default("false"),
        summary: "Baseline: plain `rate_limits` are windows that begin anew every period, instead of buckets.",
        example: "true",
    },
    Key {
        name: "known_lengths",
        kind: Kind::Bool,
        absent: Absent::Default("false"),
        summary: "Baseline: limits and queue know the length of every answer before it begins. A gateway learns it by tenant, and begins with 256 tokens.",
        example: "true",
    },
    Key {
        name: "naive_attempts",
        kind: Kind::Integer { min: 1, max: 10, word: None },
        absent: Absent::Means("retries within the budget"),
        summary: "Baseline: what failed is sent again, up to so many dispatches in all, with no budget asked.",
        example: "3",
    },
];

impl Section for Governed {
    const TABLE: &'static Table = &Table {
        place: "governance[]",
        summary: "One way to govern: a row of the comparison, under every policy.",
        keys: KEYS,
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let name = r.text("name").unwrap_or_default();
        let queue: Option<Queue> = r.table("queue");
        let rates: Vec<RateLimit> = r.list("rate_limits");
        let concurrency: Vec<ConcurrencyLimit> = r.list("concurrency_limits");
        let classes = queue.iter().flat_map(|q| q.core().classes.iter().map(|c| c.name.clone())).collect();
        let governance = Governance {
            name,
            limits: LimitsConfig {
                rules: rates.iter().map(|l| l.core().clone()).collect(),
                concurrency: concurrency.iter().map(|l| l.core().clone()).collect(),
            },
            waits: rates.iter().filter_map(|l| Some((l.core().name.clone(), l.queue_wait()?))).collect(),
            classes,
            told_apart: r.bool("told_apart"),
            windows: r.bool("windows"),
            known_lengths: r.bool("known_lengths"),
            naive_attempts: r.integer_or_none("naive_attempts").and_then(|n| u32::try_from(n).ok()),
        };
        let max_in_flight = r.integer_or_none("max_in_flight").and_then(|n| u32::try_from(n).ok());
        Self { governance, queue, max_in_flight, retry_budget: r.number("retry_budget") }
    }
}

impl Governed {
    /// The pool under it.
    pub fn pool(&self, pool: PoolConfig) -> PoolConfig {
        PoolConfig {
            queue: self.queue.as_ref().map(|q| q.core().clone()),
            max_in_flight: self.max_in_flight,
            retry: RetryConfig { budget: self.retry_budget, ..pool.retry },
            ..pool
        }
    }
}
