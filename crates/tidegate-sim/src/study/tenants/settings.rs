//! The keys of the study.

use std::time::Duration;

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};

/// Traces, each played under every scheme.
#[derive(Clone, Debug, Default)]
pub struct TenantsStudy {
    /// In order of the report.
    pub traces: Vec<Trace>,
}

/// One rate, and who asks how much of it when.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Its name in the report.
    pub name: String,
    /// Tokens per second, all together.
    pub rate: f64,
    /// How long it is played.
    pub duration: Duration,
    /// When counting begins: what was in stock at the start is then used up.
    pub counted_from: Duration,
    /// Branches between the root and tenants.
    pub branches: Vec<Branch>,
    /// Tenants.
    pub tenants: Vec<Party>,
}

/// Tenants, models or routes that share what their branch gets.
#[derive(Clone, Debug, Default)]
pub struct Branch {
    /// Its name.
    pub name: String,
    /// Tokens/s it gets whenever it asks.
    pub assured: f64,
    /// Its part of what others leave.
    pub weight: Option<f64>,
    /// Tokens/s it never exceeds.
    pub ceiling: Option<f64>,
}

/// One tenant, or several alike.
#[derive(Clone, Debug, Default)]
pub struct Party {
    /// Its share, and its name.
    pub share: Branch,
    /// The branch it belongs to.
    pub branch: Option<String>,
    /// How many there are; `assured` and `demand` are divided among them.
    pub count: u32,
    /// Exponent by which demand falls among them: 0 is evenly.
    pub zipf: f64,
    /// Tokens/s asked.
    pub demand: f64,
    /// When it begins to ask.
    pub from: Duration,
    /// How long it asks at a time; absent: always.
    pub on: Option<Duration>,
    /// How long it then pauses.
    pub off: Duration,
    /// Smallest cost of a request, in tokens.
    pub cost_from: f64,
    /// Largest cost of a request, in tokens.
    pub cost_to: f64,
    /// What is used, as a factor of what was reserved, at least.
    pub used_from: f64,
    /// What is used, as a factor of what was reserved, at most.
    pub used_to: f64,
    /// Whether the report says what it got of what it asked.
    pub watched: bool,
}

const NAME: Key = Key {
    name: "name",
    kind: Kind::Name,
    absent: Absent::Required,
    summary: "Its name in the report.",
    example: "returning",
};
const ASSURED: Key = Key {
    name: "assured",
    kind: Kind::Number { min: 0.0, max: 1e12 },
    absent: Absent::Default("0"),
    summary: "Tokens per second it gets whenever it asks.",
    example: "300",
};
const WEIGHT: Key = Key {
    name: "weight",
    kind: Kind::Number { min: 0.0, max: 1e12 },
    absent: Absent::Means("what is assured"),
    summary: "Its part of what others leave.",
    example: "3",
};
const CEILING: Key = Key {
    name: "ceiling",
    kind: Kind::Number { min: 0.001, max: 1e12 },
    absent: Absent::Means("what there is"),
    summary: "Tokens per second it never exceeds.",
    example: "200",
};

const fn seconds(name: &'static str, absent: Absent, summary: &'static str, example: &'static str) -> Key {
    Key { name, kind: Kind::Duration { min: 0.0, max: 1e6, word: None }, absent, summary, example }
}

const fn number(name: &'static str, default: &'static str, summary: &'static str, example: &'static str) -> Key {
    Key { name, kind: Kind::Number { min: 0.0, max: 1e12 }, absent: Absent::Default(default), summary, example }
}

fn share(r: &mut Reader<'_, '_>) -> Branch {
    Branch {
        name: r.text("name").unwrap_or_default(),
        assured: r.number("assured"),
        weight: r.number_or_none("weight"),
        ceiling: r.number_or_none("ceiling"),
    }
}

impl Section for TenantsStudy {
    const TABLE: &'static Table = &Table {
        place: "study.tenants",
        summary: "Shares of one rate between tenants: what each got against what it should have got, under a shared bucket, fixed windows, and the hierarchical bucket refusing and queueing.",
        keys: &[Key {
            name: "traces",
            kind: Kind::List(Trace::TABLE),
            absent: Absent::Required,
            summary: "Who asks how much when.",
            example: "[{ name: two, rate: 100, tenants: [{ name: a, demand: 200 }] }]",
        }],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { traces: r.list("traces") }
    }
}

impl Section for Trace {
    const TABLE: &'static Table = &Table {
        place: "study.tenants.traces[]",
        summary: "One rate, and who asks for it.",
        keys: &[
            NAME,
            Key {
                name: "rate",
                kind: Kind::Number { min: 0.001, max: 1e12 },
                absent: Absent::Required,
                summary: "Tokens per second, all together.",
                example: "1000",
            },
            seconds("duration", Absent::Default("4s"), "How long it is played.", "60s"),
            seconds(
                "counted_from",
                Absent::Default("0s"),
                "When counting begins; the excess counts from the start.",
                "1s",
            ),
            Key {
                name: "branches",
                kind: Kind::List(Branch::TABLE),
                absent: Absent::Means("tenants are directly below the root"),
                summary: "What tenants are grouped by.",
                example: "[{ name: team, assured: 600 }]",
            },
            Key {
                name: "tenants",
                kind: Kind::List(Party::TABLE),
                absent: Absent::Required,
                summary: "Who asks.",
                example: "[{ name: a, assured: 500, demand: 10_000 }]",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let trace = Self {
            name: r.text("name").unwrap_or_default(),
            rate: r.number("rate"),
            duration: r.duration("duration"),
            counted_from: r.duration("counted_from"),
            branches: r.list("branches"),
            tenants: r.list("tenants"),
        };
        for party in &trace.tenants {
            if let Some(branch) = party.branch.as_ref().filter(|b| !trace.branches.iter().any(|x| x.name == **b)) {
                let names: Vec<&str> = trace.branches.iter().map(|b| b.name.as_str()).collect();
                r.contradiction("tenants", format!("branch {branch}"), &names.join(", "), "name it in branches".into());
            }
        }
        trace
    }
}

impl Section for Branch {
    const TABLE: &'static Table = &Table {
        place: "study.tenants.traces[].branches[]",
        summary: "A group that shares what it gets.",
        keys: &[NAME, ASSURED, WEIGHT, CEILING],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        share(r)
    }
}

impl Section for Party {
    const TABLE: &'static Table = &Table {
        place: "study.tenants.traces[].tenants[]",
        summary: "One tenant, or several alike.",
        keys: &[
            NAME,
            ASSURED,
            WEIGHT,
            CEILING,
            Key {
                name: "branch",
                kind: Kind::Name,
                absent: Absent::Means("the root"),
                summary: "The branch it belongs to.",
                example: "team",
            },
            Key {
                name: "count",
                kind: Kind::Integer { min: 1, max: 100_000, word: None },
                absent: Absent::Default("1"),
                summary: "How many there are; what is assured and asked is divided among them.",
                example: "1000",
            },
            number("zipf", "0", "Exponent by which demand falls among them.", "1.1"),
            number("demand", "0", "Tokens per second asked.", "10_000"),
            seconds("from", Absent::Default("0s"), "When it begins to ask.", "2s"),
            seconds("on", Absent::Means("always"), "How long it asks at a time.", "70ms"),
            seconds("off", Absent::Default("0s"), "How long it then pauses.", "70ms"),
            number("cost_from", "1", "Smallest cost of a request in tokens; costs are log-uniform.", "1"),
            number("cost_to", "1", "Largest cost of a request in tokens.", "32_768"),
            number("used_from", "1", "What is used, as a factor of what was reserved, at least.", "0.5"),
            number("used_to", "1", "What is used, as a factor of what was reserved, at most.", "2"),
            Key {
                name: "watched",
                kind: Kind::Bool,
                absent: Absent::Default("false"),
                summary: "Whether the report says what it got of what it asked, in its first second and in all.",
                example: "true",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self {
            share: share(r),
            branch: r.text("branch"),
            count: u32::try_from(r.integer("count")).unwrap_or(1),
            zipf: r.number("zipf"),
            demand: r.number("demand"),
            from: r.duration("from"),
            on: r.duration_or_none("on"),
            off: r.duration("off"),
            cost_from: r.number("cost_from").max(1e-6),
            cost_to: r.number("cost_to").max(1e-6),
            used_from: r.number("used_from"),
            used_to: r.number("used_to"),
            watched: r.bool("watched"),
        }
    }
}

/// One tenant of a trace, by itself.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) party: usize,
    /// Index of its branch.
    pub(super) branch: Option<usize>,
    pub(super) assured: f64,
    pub(super) weight: f64,
    pub(super) ceiling: Option<f64>,
    demand: f64,
}

impl Tenant {
    /// Tokens/s it asks at `at_s`.
    pub(super) fn demand_at(&self, trace: &Trace, at_s: f64) -> f64 {
        let party = &trace.tenants[self.party];
        let since = at_s - party.from.as_secs_f64();
        let is_on = party.on.is_none_or(|on| {
            let period = on.as_secs_f64() + party.off.as_secs_f64();
            since % period.max(1e-3) < on.as_secs_f64()
        });
        if since >= 0.0 && is_on { self.demand } else { 0.0 }
    }
}

impl Trace {
    /// Every tenant by itself.
    pub(super) fn tenants(&self) -> Vec<Tenant> {
        let mut all = Vec::new();
        for (at, party) in self.tenants.iter().enumerate() {
            let part = |k: u32| libm::pow(f64::from(k + 1), -party.zipf);
            let sum: f64 = (0..party.count).map(part).sum();
            let assured = party.share.assured / f64::from(party.count);
            all.extend((0..party.count).map(|k| Tenant {
                party: at,
                branch: party.branch.as_ref().and_then(|name| self.branches.iter().position(|b| b.name == *name)),
                assured,
                weight: party.share.weight.unwrap_or(assured),
                ceiling: party.share.ceiling,
                demand: party.demand * part(k) / sum,
            }));
        }
        all
    }

    /// The largest cost of a request, in tokens.
    pub(super) fn largest_cost(&self) -> f64 {
        self.tenants.iter().map(|t| t.cost_to.max(t.cost_from)).fold(1.0, f64::max)
    }
}
