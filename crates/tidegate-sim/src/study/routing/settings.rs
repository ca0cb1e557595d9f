//! The keys of the study.

use std::time::Duration;

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};

use crate::kernel::setup::Lie;
use crate::scenario::Engines;

/// What is played, to whom.
#[derive(Clone, Debug, Default)]
pub struct RoutingStudy {
    pub(super) traces: Vec<TraceKind>,
    pub(super) fleets: Vec<Fleet>,
    pub(super) cells: Vec<Load>,
    /// Time between two readings of an engine's page.
    pub(super) every: Duration,
    pub(super) lie: Option<Lie>,
    pub(super) queued_tokens: bool,
    /// Whether requests tell their goal and Tidegate's policies refuse what cannot meet it.
    pub(super) refuse_late: bool,
    pub(super) policies: Option<String>,
}

/// A trace and its goal.
#[derive(Clone, Debug, Default)]
pub(super) struct TraceKind {
    pub(super) file: String,
    pub(super) ttft: Duration,
    pub(super) spread: Duration,
    pub(super) length: Option<Duration>,
}

/// Engines under a name.
#[derive(Clone, Debug, Default)]
pub(super) struct Fleet {
    pub(super) name: String,
    pub(super) engines: Vec<Engines>,
}

/// A load, from so many gateways.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    pub(super) load: f64,
    pub(super) replicas: u32,
}

impl Section for RoutingStudy {
    const TABLE: &'static Table = &Table {
        place: "study.routing",
        summary: "Which rule for language models, on recorded requests, beside rules of other gateways as published.",
        keys: &[
            Key {
                name: "traces",
                kind: Kind::List(TraceKind::TABLE),
                absent: Absent::Required,
                summary: "Recorded requests.",
                example: "[{ file: azure2023_conv.csv, ttft: 2s }]",
            },
            Key {
                name: "fleets",
                kind: Kind::List(Fleet::TABLE),
                absent: Absent::Required,
                summary: "Engines they are played to.",
                example: "[{ name: equal8, engines: [{ count: 8, llm: { preset: a100-8b } }] }]",
            },
            Key {
                name: "cells",
                kind: Kind::List(Load::TABLE),
                absent: Absent::Required,
                summary: "Loads, and from how many replicas of the gateway.",
                example: "[{ load: 75%, replicas: 8 }]",
            },
            Key {
                name: "every",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("1s"),
                summary: "Time between two readings of an engine's page.",
                example: "200ms",
            },
            Key {
                name: "lie",
                kind: Kind::Choice(&["none", "frozen", "zero", "missing"]),
                absent: Absent::Default("none"),
                summary: "What is wrong with the page of the last endpoint of every fleet.",
                example: "frozen",
            },
            Key {
                name: "queued_tokens",
                kind: Kind::Bool,
                absent: Absent::Default("true"),
                summary: "Whether engines tell how many prompt tokens wait; without, it is the number of requests times their mean.",
                example: "false",
            },
            Key {
                name: "refuse_late",
                kind: Kind::Bool,
                absent: Absent::Default("false"),
                summary: "Whether requests tell their goal and Tidegate's policies refuse those that cannot meet it.",
                example: "true",
            },
            Key {
                name: "only",
                kind: Kind::Text,
                absent: Absent::Means("all"),
                summary: "Only rows whose label contains one of these words, between bars.",
                example: "adaptive|least_connections",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self {
            traces: r.list("traces"),
            fleets: r.list("fleets"),
            cells: r.list("cells"),
            every: r.duration("every"),
            lie: match r.choice("lie") {
                "frozen" => Some(Lie::Frozen),
                "zero" => Some(Lie::Zero),
                "missing" => Some(Lie::Missing),
                _ => None,
            },
            queued_tokens: r.bool("queued_tokens"),
            refuse_late: r.bool("refuse_late"),
            policies: r.text("only"),
        }
    }
}

impl Section for TraceKind {
    const TABLE: &'static Table = &Table {
        place: "study.routing.traces[]",
        summary: "A trace, and the goal of its requests.",
        keys: &[
            Key {
                name: "file",
                kind: Kind::Text,
                absent: Absent::Required,
                summary: "The file, as for `workload.trace`.",
                example: "azure2023_conv.csv",
            },
            Key {
                name: "ttft",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("2s"),
                summary: "Longest time to the first token that counts as within the goal; the mean time between tokens is always 100 ms.",
                example: "5s",
            },
            Key {
                name: "spread",
                kind: Kind::Duration { min: 0.0, max: 60.0, word: None },
                absent: Absent::Default("0s"),
                summary: "Grain of the recorded times, over which requests are spread.",
                example: "3s",
            },
            Key {
                name: "length",
                kind: Kind::Duration { min: 0.001, max: 1e8, word: None },
                absent: Absent::Means("all of it"),
                summary: "How much of the trace is used, from its start.",
                example: "10m",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self {
            file: r.text("file").unwrap_or_default(),
            ttft: r.duration("ttft"),
            spread: r.duration("spread"),
            length: r.duration_or_none("length"),
        }
    }
}

impl Section for Fleet {
    const TABLE: &'static Table = &Table {
        place: "study.routing.fleets[]",
        summary: "Engines under a name.",
        keys: &[
            Key {
                name: "name",
                kind: Kind::Name,
                absent: Absent::Required,
                summary: "Its name in the report.",
                example: "mixed",
            },
            Key {
                name: "engines",
                kind: Kind::List(Engines::TABLE),
                absent: Absent::Required,
                summary: "As `fleet` of a scenario.",
                example: "[{ name: h100, count: 3, llm: { preset: h100-8b } }]",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let engines: Vec<Engines> = r.list("engines");
        if engines.iter().any(Engines::changes) {
            let hint = "leave out autoscale, cold_start and grace".to_owned();
            r.contradiction("engines", "engines that come and go".to_owned(), "a fleet that stays as it is", hint);
        }
        Self { name: r.text("name").unwrap_or_default(), engines }
    }
}

impl Section for Load {
    const TABLE: &'static Table = &Table {
        place: "study.routing.cells[]",
        summary: "A load, from so many gateways.",
        keys: &[
            Key {
                name: "load",
                kind: Kind::Fraction { min: 0.01, max: 5.0, word: None },
                absent: Absent::Required,
                summary: "Share of what the fleet saturates at on the trace; above 1 it is overloaded.",
                example: "75%",
            },
            Key {
                name: "replicas",
                kind: Kind::Integer { min: 1, max: 1000, word: None },
                absent: Absent::Default("1"),
                summary: "Replicas of the gateway; each request comes to one of them at random.",
                example: "8",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let load = r.number_or_none("load").unwrap_or(0.75);
        Self { load, replicas: u32::try_from(r.integer("replicas")).unwrap_or(1) }
    }
}
