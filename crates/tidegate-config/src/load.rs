//! Where an endpoint's load comes from.

mod accelerator;
mod engine;
mod metrics;
mod node;
pub(crate) mod polled;
mod status;

pub use accelerator::AcceleratorSource;
pub use engine::Engine;
pub use metrics::MetricsSource;
pub use node::NodeSource;
pub(crate) use polled::HOST;
pub use polled::{Beside, Polled};

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use crate::units::show_seconds;
use status::Status;
use std::time::Duration;
use tidegate_core::pool::config::LoadConfig;

/// The sources of reported loads of a pool, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// A page that answers `{"response_time": s, "current_load": 0..1}`, and `cpu`, `gpu` and `memory` (0..1) if it can.
    pub status: Option<Polled>,
    /// The engine's own metrics.
    pub metrics: Option<MetricsSource>,
    /// The GPUs below the engines.
    pub accelerator: Option<AcceleratorSource>,
    /// The machines below the engines.
    pub node: Option<NodeSource>,
    /// Whether answers tell their engine's load in a header.
    pub orca: bool,
    /// Age from which a report counts for nothing.
    pub max_age: Duration,
    /// Load (0..1) that one request adds, for own credit between reports; `None` learns it.
    pub per_request: Option<f64>,
}

impl Load {
    /// What core is told.
    pub fn core(&self) -> LoadConfig {
        LoadConfig { max_age: self.max_age, per_request: self.per_request, by_answers: self.orca && !self.is_polled() }
    }

    /// Whether a page is polled.
    pub fn is_polled(&self) -> bool {
        self.pages().next().is_some()
    }

    /// All pages that are polled.
    fn pages(&self) -> impl Iterator<Item = &Polled> {
        let metrics = self.metrics.as_ref().map(|m| &m.page);
        let accelerator = self.accelerator.as_ref().map(|a| &a.page);
        [self.status.as_ref(), metrics, accelerator, self.node.as_ref().map(|n| &n.page)].into_iter().flatten()
    }

    /// Whether a source tells a load in 0..1, which `max_load` and policies by load go by.
    pub fn tells_load(&self) -> bool {
        let metrics = self.metrics.as_ref().is_some_and(|m| m.load.is_some());
        self.status.is_some() || metrics || self.orca
    }

    /// Whether a source tells how much of CPU, GPU or memory is used.
    pub fn tells_utilisation(&self) -> bool {
        self.status.is_some() || self.accelerator.is_some() || self.node.is_some() || self.orca
    }

    /// The longest interval of its sources.
    fn interval(&self) -> Duration {
        self.pages().map(|p| p.interval).max().unwrap_or(BY_ANSWERS)
    }
}

/// What counts as the interval where nothing is polled: answers tell when there are some.
const BY_ANSWERS: Duration = Duration::from_secs(5);

impl Section for Load {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.load",
        summary: "Where an endpoint's load comes from: at least one of status, metrics, accelerator, node and orca.",
        keys: &[
            Key {
                name: "status",
                kind: Kind::Table(Status::TABLE),
                absent: Absent::Means("see above; one source must be given"),
                summary: "Poll a status page.",
                example: "{ path: /status, interval: 1s }",
            },
            Key {
                name: "metrics",
                kind: Kind::Table(MetricsSource::TABLE),
                absent: Absent::Means("see above; one source must be given"),
                summary: "Poll the engine's own metrics.",
                example: "{ path: /metrics, engine: auto, interval: 1s }",
            },
            Key {
                name: "accelerator",
                kind: Kind::Table(AcceleratorSource::TABLE),
                absent: Absent::Means("nothing is known of GPUs"),
                summary: "Poll an exporter of the GPUs below the engines.",
                example: "{ url: 'http://{host}:9400/metrics', max_temperature: 90 }",
            },
            Key {
                name: "node",
                kind: Kind::Table(NodeSource::TABLE),
                absent: Absent::Means("nothing is known of the machines"),
                summary: "Poll a node exporter on the machines below the engines.",
                example: "{ url: 'http://{host}:9100/metrics', max_memory: 95% }",
            },
            Key {
                name: "orca",
                kind: Kind::Bool,
                absent: Absent::Default("false"),
                summary: "Whether engines are asked to tell their load in the header `endpoint-load-metrics` of answers (ORCA); beside pages it is told with the next of them.",
                example: "true",
            },
            Key {
                name: "max_age",
                kind: Kind::Duration { min: 0.01, max: 86_400.0, word: None },
                absent: Absent::Means("three polling intervals; 15s where answers tell"),
                summary: "Age from which a report counts for nothing.",
                example: "3s",
            },
            Key {
                name: "per_request",
                kind: Kind::Fraction { min: 0.000_001, max: 1.0, word: None },
                absent: Absent::Means("learned from the reports, beginning at 1/max_in_flight, else 0.01"),
                summary: "Load that one request adds, counted until the next report.",
                example: "0.02",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let problems = r.walk.problems.len();
        let status = r.table::<Status>("status").map(|s| s.0);
        let (metrics, accelerator, node) = (r.table("metrics"), r.table("accelerator"), r.table("node"));
        let (orca, max_age) = (r.bool("orca"), Duration::ZERO);
        let mut load = Self { status, metrics, accelerator, node, orca, max_age, per_request: None };
        if r.walk.problems.len() == problems && !load.is_polled() && !orca {
            r.missing_any(&["status", "metrics", "accelerator", "node", "orca"]);
        }
        let is_whole = r.walk.problems.len() == problems;
        let interval = load.interval();
        load.max_age = r.duration_or_none("max_age").unwrap_or(interval * 3);
        load.per_request = r.number_or_none("per_request");
        if load.max_age < interval && is_whole && r.all_good(&["max_age"]) {
            r.contradiction(
                "max_age",
                format!(
                    "{}, shorter than the polling interval of {}",
                    show_seconds(load.max_age.as_secs_f64()),
                    show_seconds(interval.as_secs_f64())
                ),
                "at least the polling interval: otherwise no report ever counts",
                format!("for example: `max_age: {}`", show_seconds(interval.as_secs_f64() * 3.0)),
            );
        }
        load
    }
}
