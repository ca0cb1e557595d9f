//! Scenarios: one YAML file to runs.
//!
//! Read by the same machinery as a config file: one definition per key gives parser, messages and `docs/simulation-keys.md`. A scenario
//! is data until [`Scenario::cells`] resolves it: traces are read by a function the caller passes, so this crate opens no file.

pub mod elastic;
pub mod fleet;
pub mod governance;
pub(crate) mod key;
mod names;
pub mod outage;
pub mod pool;
mod recorded;
mod resolve;
mod services;
mod sized;
mod tenants;
pub mod workload;

use std::time::Duration;

use tidegate_config::{Absent, Key, Kind, Problem, Reader, Section, Table, docs_of, parse_as};

use crate::kernel::setup::{Goal, Probes};
use crate::study::Study;
use elastic::PlannedChange;
use governance::Governed;
use outage::Planned;
use pool::{Contender, PoolSettings};
use workload::{Pattern, Workload};

pub use fleet::Engines;
pub(crate) use fleet::sites;
pub(crate) use recorded::{Loaded, load};
pub use resolve::{Cell, ReadFile, Row, Unread};

/// A scenario as written.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it shows.
    pub about: Option<String>,
    /// How long requests of an open load come.
    pub duration: Duration,
    /// Seeds it is run with.
    pub seeds: u32,
    fleet: Vec<Engines>,
    workload: Option<Workload>,
    probes: Option<Probes>,
    check_every: Option<Duration>,
    network: Duration,
    replicas: u32,
    pool: PoolSettings,
    goal: Goal,
    faults: Vec<Planned>,
    changes: Vec<PlannedChange>,
    policies: Vec<Contender>,
    governance: Vec<Governed>,
    variants: Vec<Variant>,
    /// A study in place of engines.
    pub study: Option<Study>,
}

/// A variant: what it sets takes the place of the scenario's own.
#[derive(Clone, Debug)]
struct Variant {
    name: String,
    fleet: Vec<Engines>,
    workload: Option<Workload>,
}

const FLEET: Key = Key {
    name: "fleet",
    kind: Kind::List(Engines::TABLE),
    absent: Absent::Means("each variant has its own"),
    summary: "The engines.",
    example: "[{ fixed: { delay: 1s } }]",
};
const WORKLOAD: Key = Key {
    name: "workload",
    kind: Kind::Table(Workload::TABLE),
    absent: Absent::Means("each variant has its own"),
    summary: "What is asked of them.",
    example: "{ arrivals: { rate: 5 } }",
};

impl Section for Variant {
    const TABLE: &'static Table = &Table {
        place: "variants[]",
        summary: "A variant of the scenario: what it sets takes the place of the scenario's own.",
        keys: &[
            Key {
                name: "name",
                kind: Kind::Name,
                absent: Absent::Required,
                summary: "Its name in the report.",
                example: "queue-30",
            },
            Key { absent: Absent::Means("the scenario's"), ..FLEET },
            Key { absent: Absent::Means("the scenario's"), ..WORKLOAD },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { name: r.text("name").unwrap_or_default(), fleet: r.list("fleet"), workload: r.table("workload") }
    }
}

impl Section for Goal {
    const TABLE: &'static Table = &Table {
        place: "goal",
        summary: "What counts as goodput: streams that meet both.",
        keys: &[
            Key {
                name: "ttft",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("2s"),
                summary: "Longest time to the first token.",
                example: "2s",
            },
            Key {
                name: "interval",
                kind: Kind::Duration { min: 0.000_001, max: 3600.0, word: None },
                absent: Absent::Default("100ms"),
                summary: "Longest mean time between tokens.",
                example: "100ms",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { ttft_s: r.duration("ttft").as_secs_f64(), interval_s: r.duration("interval").as_secs_f64() }
    }
}

/// Keys a scenario with a study may have.
const WITH_STUDY: [&str; 3] = ["about", "seeds", "study"];

const KEYS: &[Key] = &[
    Key {
        name: "about",
        kind: Kind::Text,
        absent: Absent::Means("nothing is said"),
        summary: "What the scenario shows, in a sentence.",
        example: "\"two engines, one slow\"",
    },
    Key {
        name: "duration",
        kind: Kind::Duration { min: 0.001, max: 1e8, word: None },
        absent: Absent::Default("60s"),
        summary: "How long requests of an arrival process come; the run ends when all have ended.",
        example: "400s",
    },
    Key {
        name: "seeds",
        kind: Kind::Integer { min: 1, max: 100_000, word: None },
        absent: Absent::Default("8"),
        summary: "How many seeds are run where the command line does not say.",
        example: "8",
    },
    FLEET,
    WORKLOAD,
    Key {
        name: "probes",
        kind: Kind::Table(Probes::TABLE),
        absent: Absent::Means("no endpoint reports a load"),
        summary: "Status pages that gateways read.",
        example: "{ interval: 100ms, delay: 200ms }",
    },
    Key {
        name: "checks",
        kind: Kind::Duration { min: 0.01, max: 3600.0, word: None },
        absent: Absent::Means("no active checks"),
        summary: "Time between two health checks of an endpoint.",
        example: "5s",
    },
    Key {
        name: "network",
        kind: Kind::Duration { min: 0.0, max: 60.0, word: None },
        absent: Absent::Default("0s"),
        summary: "One-way time between gateway and endpoint.",
        example: "1ms",
    },
    Key {
        name: "replicas",
        kind: Kind::Integer { min: 1, max: 1000, word: None },
        absent: Absent::Default("1"),
        summary: "Gateways in front of the fleet, each with its own pool; a request goes to one at random.",
        example: "8",
    },
    Key {
        name: "pool",
        kind: Kind::Table(PoolSettings::TABLE),
        absent: Absent::Default("{}"),
        summary: "Settings of the pool besides its policy.",
        example: "{ max_attempts: 1 }",
    },
    Key {
        name: "goal",
        kind: Kind::Table(Goal::TABLE),
        absent: Absent::Default("{}"),
        summary: "What counts as goodput.",
        example: "{ ttft: 5s }",
    },
    Key {
        name: "faults",
        kind: Kind::List(Planned::TABLE),
        absent: Absent::Means("nothing goes wrong"),
        summary: "What goes wrong.",
        example: "[{ endpoint: a, at: 20s, kind: refuse }]",
    },
    Key {
        name: "changes",
        kind: Kind::List(PlannedChange::TABLE),
        absent: Absent::Means("nobody joins or leaves by plan"),
        summary: "Endpoints that join or leave during the run.",
        example: "[{ endpoint: a, at: 60s, change: leave }]",
    },
    Key {
        name: "policies",
        kind: Kind::List(Contender::TABLE),
        absent: Absent::Means("every policy with its defaults"),
        summary: "The policies that are compared.",
        example: "[{ policy: adaptive }]",
    },
    Key {
        name: "governance",
        kind: Kind::List(Governed::TABLE),
        absent: Absent::Means("no limits, no queue"),
        summary: "Ways to govern that are compared, under every policy; without `policies`, under the default one.",
        example: "[{ name: ours, max_in_flight: 32, queue: {} }]",
    },
    Key {
        name: "variants",
        kind: Kind::List(Variant::TABLE),
        absent: Absent::Means("one run"),
        summary: "Variants, each a table of its own.",
        example: "[{ name: slow, fleet: [{ fixed: { delay: 7s } }] }]",
    },
    Key {
        name: "study",
        kind: Kind::Table(Study::TABLE),
        absent: Absent::Means("policies are compared on the fleet"),
        summary: "A question that needs no engines.",
        example: "{ tenants: { traces: [{ name: two, rate: 100, tenants: [{ name: a, demand: 200 }] }] } }",
    },
];

impl Section for Scenario {
    const TABLE: &'static Table = &Table { place: "", summary: "The whole scenario.", keys: KEYS };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let scenario = Self {
            about: r.text("about"),
            duration: r.duration("duration"),
            seeds: u32::try_from(r.integer("seeds")).unwrap_or(1),
            fleet: r.list("fleet"),
            workload: r.table("workload"),
            probes: r.table("probes"),
            check_every: r.duration_or_none("checks"),
            network: r.duration("network"),
            replicas: u32::try_from(r.integer("replicas")).unwrap_or(1),
            pool: r.table_or_default("pool"),
            goal: r.table_or_default("goal"),
            faults: r.list("faults"),
            changes: r.list("changes"),
            policies: r.list("policies"),
            governance: r.list("governance"),
            variants: r.list("variants"),
            study: r.table("study"),
        };
        if scenario.study.is_some() {
            for key in KEYS.iter().filter(|k| !WITH_STUDY.contains(&k.name)) {
                if r.is_set(key.name) {
                    let (found, hint) = (format!("{} beside study", key.name), "leave it out".to_owned());
                    r.contradiction(key.name, found, &WITH_STUDY.join(", "), hint);
                }
            }
            return scenario;
        }
        let lacks = |own: bool, in_variant: fn(&Variant) -> bool| {
            !own && (scenario.variants.is_empty() || !scenario.variants.iter().all(in_variant))
        };
        if lacks(!scenario.fleet.is_empty(), |v| !v.fleet.is_empty()) {
            r.missing("fleet");
        }
        if lacks(scenario.workload.is_some(), |v| v.workload.is_some()) {
            r.missing("workload");
        }
        scenario.warn_of_idle_settings(r);
        scenario
    }
}

impl Scenario {
    /// How an engine comes and goes means nothing where none does, nor does a cache of answers where nobody says what is searched for.
    fn warn_of_idle_settings(&self, r: &mut Reader<'_, '_>) {
        let key = if self.fleet.is_empty() { "variants" } else { "fleet" };
        let scaled = |fleet: &[Engines]| fleet.iter().any(|e| e.autoscale().is_some());
        let fleets = || std::iter::once(&self.fleet).chain(self.variants.iter().map(|v| &v.fleet));
        let said = fleets().flatten().any(Engines::changes);
        if said && self.changes.is_empty() && !fleets().any(|f| scaled(f)) {
            let found = "cold_start or grace, and no engine starts or leaves".to_owned();
            r.warning(key, found, "with autoscale or changes", "for example: `changes: [...]`".to_owned());
        }
        let workloads = self.variants.iter().map(|v| &v.workload).chain([&self.workload]);
        let asks = workloads.flatten().any(|w| w.queries.is_some() || matches!(w.pattern, Pattern::Trace(_)));
        if !asks && fleets().flatten().any(Engines::keeps_answers) {
            let found = "vector.cache, and no workload says what is searched for".to_owned();
            let hint = "for example: `queries: { texts: 10_000 }` in the workload".to_owned();
            r.warning(key, found, "with workload.queries", hint);
        }
    }

    /// Reads a scenario; `source_name` stands in messages, `env` answers for `${NAME}`. With it come the warnings.
    ///
    /// # Errors
    /// All problems, if at least one is an error.
    pub fn parse(
        text: &str,
        source_name: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        let found = parse_as(text, source_name, env);
        let names = names::problems(text, source_name, env);
        if names.is_empty() {
            return found;
        }
        let mut problems = found.map_or_else(|problems| problems, |(_, warnings)| warnings);
        problems.extend(names);
        problems.sort_by_key(|p| (p.line, p.column));
        Err(problems)
    }

    /// The reference page of scenario files, in Markdown.
    pub fn docs() -> String {
        docs_of(include_str!("scenario/keys.md"), Self::TABLE)
    }

    /// The definition of every key, from the top.
    pub fn table() -> &'static Table {
        Self::TABLE
    }
}
