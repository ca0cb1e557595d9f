//! `workload`: what is asked of a fleet.

use std::time::Duration;

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};

use crate::kernel::setup::Party;
use crate::workload::{Arrivals, Queries};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Workload {
    /// By what process.
    pub pattern: Pattern,
    /// Whether answers are streams.
    pub stream: bool,
    /// Prompt and answer, tokens, where no trace says.
    pub tokens: (u32, u32),
    /// What is searched for.
    pub queries: Option<Queries>,
    /// The longest answer that requests ask for.
    pub max_tokens: Option<u32>,
}

/// When requests come.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// By a process, for the scenario's duration.
    Open(Arrivals),
    /// Clients, requests of a round, rounds.
    Closed(u32, u32, u32),
    /// By tenants, for the scenario's duration.
    Tenants(Vec<Party>),
    /// As recorded.
    Trace(TraceUse),
}

/// A trace and how it is used.
#[derive(Clone, Debug)]
pub struct TraceUse {
    /// The file.
    pub file: String,
    /// What takes its place where it is absent: `conversation` or `code`.
    pub stand_in: Option<&'static str>,
    /// Share of the fleet's saturation that the trace is brought to, 0..; `None`: `speed` decides.
    pub load: Option<f64>,
    /// How many times as fast as recorded.
    pub speed: f64,
    /// Grain of the recorded times, over which requests are spread; zero: they stay where they are.
    pub spread: Duration,
    /// How much of the trace is used.
    pub length: Option<Duration>,
}

const KEYS: &[Key] = &[
    Key {
        name: "arrivals",
        kind: Kind::Table(Process::TABLE),
        absent: Absent::Means("another pattern"),
        summary: "Open load: requests come by a process, however the fleet does.",
        example: "{ rate: 5 }",
    },
    Key {
        name: "closed",
        kind: Kind::Table(Closed::TABLE),
        absent: Absent::Means("another pattern"),
        summary: "Closed loop: clients that ask again when answered.",
        example: "{ clients: 8, requests: 30 }",
    },
    Key {
        name: "tenants",
        kind: Kind::List(Party::TABLE),
        absent: Absent::Means("another pattern"),
        summary: "Open load by tenants, each with arrivals of its own.",
        example: "[{ name: quiet, count: 5, arrivals: { rate: 4 } }]",
    },
    Key {
        name: "trace",
        kind: Kind::Table(TraceUse::TABLE),
        absent: Absent::Means("another pattern"),
        summary: "Recorded requests.",
        example: "{ file: azure2023_conv.csv, load: 75% }",
    },
    Key {
        name: "stream",
        kind: Kind::Bool,
        absent: Absent::Default("false"),
        summary: "Whether answers are streams, so that TTFT and goodput mean something.",
        example: "true",
    },
    Key {
        name: "prompt_tokens",
        kind: Kind::Integer { min: 1, max: 10_000_000, word: None },
        absent: Absent::Default("1"),
        summary: "Length of a prompt where no trace says.",
        example: "1000",
    },
    Key {
        name: "output_tokens",
        kind: Kind::Integer { min: 1, max: 10_000_000, word: None },
        absent: Absent::Default("1"),
        summary: "Length of an answer where no trace says.",
        example: "200",
    },
    Key {
        name: "max_tokens",
        kind: Kind::Integer { min: 1, max: 10_000_000, word: None },
        absent: Absent::Means("requests do not say it, and it is learned how long answers are"),
        summary: "What every request says in `max_tokens`: limits on tokens reserve so much for its answer, however short it then is.",
        example: "4096",
    },
    Key {
        name: "queries",
        kind: Kind::Table(Queries::TABLE),
        absent: Absent::Means("nothing is said of what is searched for"),
        summary: "What requests search for: the key of `consistent_hash`, and what a `vector` engine's `cache` finds again.",
        example: "{ texts: 100_000, zipf: 0.9 }",
    },
];

impl Section for Workload {
    const TABLE: &'static Table = &Table {
        place: "workload",
        summary: "What is asked. Exactly one of `arrivals`, `closed`, `tenants` and `trace`.",
        keys: KEYS,
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let open = r.table::<Process>("arrivals").map(|p| Pattern::Open(p.0));
        let closed = r.table::<Closed>("closed").map(|c| Pattern::Closed(c.0, c.1, c.2));
        let trace = r.table::<TraceUse>("trace").map(Pattern::Trace);
        let stream = r.bool("stream");
        let tokens = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let tokens = (tokens(r.integer("prompt_tokens")), tokens(r.integer("output_tokens")));
        let tenants = Some(super::tenants::read(r, tokens)).filter(|t| !t.is_empty()).map(Pattern::Tenants);
        let mut patterns: Vec<Pattern> = [open, closed, tenants, trace].into_iter().flatten().collect();
        if patterns.len() != 1 {
            let found = if patterns.is_empty() { "no pattern" } else { "more than one pattern" };
            let allowed = "one of arrivals, closed, tenants, trace";
            r.contradiction("arrivals", found.to_owned(), allowed, "for example: `arrivals: { rate: 5 }`".to_owned());
        }
        let pattern = patterns.pop().unwrap_or(Pattern::Open(Arrivals::Poisson { rate: 1.0 }));
        let max_tokens = r.integer_or_none("max_tokens").and_then(|n| u32::try_from(n).ok());
        Self { pattern, stream, tokens, queries: r.table("queries"), max_tokens }
    }
}

impl Section for Queries {
    const TABLE: &'static Table = &Table {
        place: "workload.queries",
        summary: "Texts that are searched for: the one of rank k in proportion to 1/k^zipf. A gateway hashes their normalised form \
                  (`consistent_hash` with a `key` of a body's field); two spellings of one are one here.",
        keys: &[
            Key {
                name: "texts",
                kind: Kind::Integer { min: 1, max: 10_000_000, word: None },
                absent: Absent::Default("10_000"),
                summary: "How many different ones there are.",
                example: "100_000",
            },
            Key {
                name: "zipf",
                kind: Kind::Number { min: 0.0, max: 5.0 },
                absent: Absent::Default("1"),
                summary: "How uneven they are; 0: all alike.",
                example: "0.9",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self::new(u32::try_from(r.integer("texts")).unwrap_or(u32::MAX), r.number("zipf"))
    }
}

pub(super) struct Process(pub(super) Arrivals);

impl Section for Process {
    const TABLE: &'static Table = &Table {
        place: "workload.arrivals",
        summary: "An arrival process.",
        keys: &[
            Key {
                name: "rate",
                kind: Kind::Number { min: 0.001, max: 1e7 },
                absent: Absent::Required,
                summary: "Requests per second on average.",
                example: "5",
            },
            Key {
                name: "process",
                kind: Kind::Choice(&["poisson", "constant", "bursty"]),
                absent: Absent::Default("poisson"),
                summary: "How gaps are distributed.",
                example: "bursty",
            },
            Key {
                name: "cv",
                kind: Kind::Number { min: 0.01, max: 100.0 },
                absent: Absent::Default("2"),
                summary: "Coefficient of variation of `bursty` gaps.",
                example: "13",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let (rate, cv) = (r.number("rate"), r.number("cv"));
        Self(match r.choice("process") {
            "constant" => Arrivals::Constant { rate },
            "bursty" => Arrivals::Bursty { rate, cv },
            _ => Arrivals::Poisson { rate },
        })
    }
}

struct Closed(u32, u32, u32);

impl Section for Closed {
    const TABLE: &'static Table = &Table {
        place: "workload.closed",
        summary: "A closed loop in rounds; the total time of each round is the result.",
        keys: &[
            Key {
                name: "clients",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
                absent: Absent::Required,
                summary: "Clients that each have one request out.",
                example: "8",
            },
            Key {
                name: "requests",
                kind: Kind::Integer { min: 1, max: 100_000_000, word: None },
                absent: Absent::Required,
                summary: "Requests of a round, over all clients.",
                example: "30",
            },
            Key {
                name: "rounds",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
                absent: Absent::Default("1"),
                summary: "Rounds; what a policy learned stays.",
                example: "5",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let mut n = |name| u32::try_from(r.integer(name)).unwrap_or(u32::MAX);
        Self(n("clients"), n("requests"), n("rounds"))
    }
}

impl Section for TraceUse {
    const TABLE: &'static Table = &Table {
        place: "workload.trace",
        summary: "Recorded requests: CSV with `t_ms` or `t_s`, `input_tokens`, `output_tokens`, or Tidegate's journal or request log.",
        keys: &[
            Key {
                name: "file",
                kind: Kind::Text,
                absent: Absent::Required,
                summary: "The file, also looked for in ../shared/traces.",
                example: "azure2023_conv.csv",
            },
            Key {
                name: "stand_in",
                kind: Kind::Choice(&["conversation", "code"]),
                absent: Absent::Means("an absent file is an error"),
                summary: "Synthetic requests of like shape that take the file's place where it is absent; results say so.",
                example: "conversation",
            },
            Key {
                name: "load",
                kind: Kind::Fraction { min: 0.01, max: 4.0, word: None },
                absent: Absent::Means("`speed` decides"),
                summary: "Brings the trace to this share of the throughput the fleet saturates at, by scaling its times.",
                example: "75%",
            },
            Key {
                name: "speed",
                kind: Kind::Number { min: 0.001, max: 10_000.0 },
                absent: Absent::Default("1"),
                summary: "How many times as fast as recorded.",
                example: "10",
            },
            Key {
                name: "spread",
                kind: Kind::Duration { min: 0.0, max: 60.0, word: None },
                absent: Absent::Default("0s"),
                summary: "Grain of the recorded times, over which requests are spread, where times were rounded down.",
                example: "3s",
            },
            Key {
                name: "length",
                kind: Kind::Duration { min: 0.001, max: 1e7, word: None },
                absent: Absent::Means("all of it"),
                summary: "How much of the trace is used, in its own time.",
                example: "10m",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let stand_in = Some(r.choice("stand_in")).filter(|w| !w.is_empty());
        Self {
            file: r.text("file").unwrap_or_default(),
            stand_in,
            load: r.number_or_none("load"),
            speed: r.number("speed"),
            spread: r.duration("spread"),
            length: r.duration_or_none("length"),
        }
    }
}
