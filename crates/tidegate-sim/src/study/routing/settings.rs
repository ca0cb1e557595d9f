//! The keys of the study.

use std::time::Duration;

use tidegate_config::{Kind, Reader, Section, Table};

use crate::kernel::setup::Lie;
use crate::scenario::Engines;
use crate::scenario::key::{count, flag, key, label, list, means, or_such_as, required, share, time};

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
            list(
                "traces",
                TraceKind::TABLE,
                required("[{ file: azure2023_conv.csv, ttft: 2s }]"),
                "Recorded requests.",
            ),
            list(
                "fleets",
                Fleet::TABLE,
                required("[{ name: equal8, engines: [{ count: 8, llm: { preset: a100-8b } }] }]"),
                "Engines they are played to.",
            ),
            list(
                "cells",
                Load::TABLE,
                required("[{ load: 75%, replicas: 8 }]"),
                "Loads, and from how many replicas of the gateway.",
            ),
            time("every", (0.001, 3600.0), or_such_as("1s", "200ms"), "Time between two readings of an engine's page."),
            key(
                "lie",
                Kind::Choice(&["none", "frozen", "zero", "missing"]),
                or_such_as("none", "frozen"),
                "What is wrong with the page of the last endpoint of every fleet.",
            ),
            flag(
                "queued_tokens",
                or_such_as("true", "false"),
                "Whether engines tell how many prompt tokens wait; without, it is the number of requests times their mean.",
            ),
            flag(
                "refuse_late",
                or_such_as("false", "true"),
                "Whether requests tell their goal and Tidegate's policies refuse those that cannot meet it.",
            ),
            key(
                "only",
                Kind::Text,
                means("all", "adaptive|least_connections"),
                "Only rows whose label contains one of these words, between bars.",
            ),
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
            key("file", Kind::Text, required("azure2023_conv.csv"), "The file, as for `workload.trace`."),
            time(
                "ttft",
                (0.001, 3600.0),
                or_such_as("2s", "5s"),
                "Longest time to the first token that counts as within the goal; the mean time between tokens is always 100 ms.",
            ),
            time(
                "spread",
                (0.0, 60.0),
                or_such_as("0s", "3s"),
                "Grain of the recorded times, over which requests are spread.",
            ),
            time("length", (0.001, 1e8), means("all of it", "10m"), "How much of the trace is used, from its start."),
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
            label("mixed"),
            list(
                "engines",
                Engines::TABLE,
                required("[{ name: h100, count: 3, llm: { preset: h100-8b } }]"),
                "As `fleet` of a scenario.",
            ),
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
            share(
                "load",
                (0.01, 5.0),
                required("75%"),
                "Share of what the fleet saturates at on the trace; above 1 it is overloaded.",
            ),
            count(
                "replicas",
                1000,
                or_such_as("1", "8"),
                "Replicas of the gateway; each request comes to one of them at random.",
            ),
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let load = r.number_or_none("load").unwrap_or(0.75);
        Self { load, replicas: u32::try_from(r.integer("replicas")).unwrap_or(1) }
    }
}
