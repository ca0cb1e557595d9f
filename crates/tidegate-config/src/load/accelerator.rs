//! What an exporter tells of the GPUs below an engine.

use super::polled::{self, Polled};
use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};

/// A page with the names of the DCGM exporter.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceleratorSource {
    /// Where it is and how often it is asked for.
    pub page: Polled,
    /// Degrees Celsius from which a GPU is too hot.
    pub max_temperature: f64,
    /// Used share of its memory (0..1) from which a GPU has none left.
    pub max_memory: f64,
    /// Whether an XID that wants a reset takes the endpoint out.
    pub gates_xid: bool,
}

impl Section for AcceleratorSource {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.load.accelerator",
        summary: "The page of an exporter with DCGM's names: use of the GPUs, and what takes an endpoint out: while a GPU is too hot, out of \
                  memory or broken, it gets nothing new under any policy (gate `unfit`).",
        keys: &[
            polled::path("/metrics"),
            polled::URL,
            polled::INTERVAL,
            polled::TIMEOUT,
            Key {
                name: "max_temperature",
                kind: Kind::Number { min: 20.0, max: 200.0 },
                absent: Absent::Default("90"),
                summary: "Degrees Celsius from which a GPU is too hot, until it is three degrees cooler.",
                example: "90",
            },
            Key {
                name: "max_memory",
                kind: Kind::Fraction { min: 0.01, max: 1.0, word: None },
                absent: Absent::Default("0.98"),
                summary: "Used share of its memory from which a GPU has none left; engines that take theirs at the start use 90 % always.",
                example: "0.98",
            },
            Key {
                name: "xid_errors",
                kind: Kind::Choice(&["gate", "ignore"]),
                absent: Absent::Default("gate"),
                summary: "Whether an XID that wants a reset of the GPU takes the endpoint out; those that a program caused never do.",
                example: "gate",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self {
            page: Polled::read_beside(r),
            max_temperature: r.number("max_temperature"),
            max_memory: r.number("max_memory"),
            gates_xid: r.choice("xid_errors") != "ignore",
        }
    }
}
