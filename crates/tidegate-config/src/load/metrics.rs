//! An engine's own metrics as the source of its load.

use super::engine::{AUTO, Engine, WORDS};
use super::polled::{self, Polled};
use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use crate::rules::{Expression, expression};

/// A page in the Prometheus text format.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsSource {
    /// Where it is and how often it is asked for.
    pub page: Polled,
    /// Whose names are looked for; `None` finds it out by the page.
    pub engine: Option<Engine>,
    /// A metric that is the load, 0..1; `None`: the page tells requests and tokens only.
    pub load: Option<Expression>,
}

impl Section for MetricsSource {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.load.metrics",
        summary: "An engine's own metrics in the Prometheus text format: requests that run and wait, tokens, KV memory. What an engine does not \
                  expose is missing, never zero.",
        keys: &[
            polled::path("/metrics"),
            polled::URL,
            Key {
                name: "engine",
                kind: Kind::Choice(WORDS),
                absent: Absent::Default(AUTO),
                summary: "Whose names of metrics are looked for; auto finds it out by the page.",
                example: "vllm",
            },
            polled::INTERVAL,
            polled::TIMEOUT,
            Key {
                name: "load",
                kind: Kind::Expression,
                absent: Absent::Means("the page tells of no load in 0..1, and max_load has nothing to compare"),
                summary: "A metric of the page that is the endpoint's load, 0..1; rates and quantiles look back 30 s.",
                example: "'max(my_busy_ratio{queue=\"gpu\"})'",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let engine = Engine::named(r.choice("engine"));
        Self { page: Polled::read_beside(r), engine, load: r.value("load", expression) }
    }
}
