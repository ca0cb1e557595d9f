//! What an exporter tells of the machine below an engine.

use super::polled::{self, Polled};
use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};

/// A page with the names of Prometheus' node exporter.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSource {
    /// Where it is and how often it is asked for.
    pub page: Polled,
    /// Busy share of all processors (0..1] from which the endpoint gets nothing new; `None`: any.
    pub max_cpu: Option<f64>,
    /// Used share of the memory (0..1] from which it gets nothing new; `None`: any.
    pub max_memory: Option<f64>,
}

impl Section for NodeSource {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.load.node",
        summary: "The page of a node exporter: use of processors and memory, which `weights: auto` of weighted_round_robin goes by, and what keeps \
                  new requests away.",
        keys: &[
            polled::path("/metrics"),
            polled::URL,
            polled::INTERVAL,
            polled::TIMEOUT,
            Key {
                name: "max_cpu",
                kind: Kind::Fraction { min: 0.01, max: 1.0, word: Some("off") },
                absent: Absent::Default("off"),
                summary: "Busy share of all processors from which the endpoint gets nothing new, until it is five points lower.",
                example: "95%",
            },
            Key {
                name: "max_memory",
                kind: Kind::Fraction { min: 0.01, max: 1.0, word: Some("off") },
                absent: Absent::Default("off"),
                summary: "Used share of the memory (what is not available) from which it gets nothing new.",
                example: "95%",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self {
            page: Polled::read_beside(r),
            max_cpu: r.number_or_none("max_cpu"),
            max_memory: r.number_or_none("max_memory"),
        }
    }
}
