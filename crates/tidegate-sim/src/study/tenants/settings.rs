//! The keys of the study.

use std::time::Duration;

use tidegate_config::{Key, Kind, Reader, Section, Table};

use crate::scenario::key::{count, flag, key, label, list, means, number, or, or_such_as, required, time};

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

const NAME: Key = label("returning");
const ASSURED: Key =
    number("assured", (0.0, 1e12), or_such_as("0", "300"), "Tokens per second it gets whenever it asks.");
const WEIGHT: Key = number("weight", (0.0, 1e12), means("what is assured", "3"), "Its part of what others leave.");
const CEILING: Key =
    number("ceiling", (0.001, 1e12), means("what there is", "200"), "Tokens per second it never exceeds.");

fn branch(r: &mut Reader<'_, '_>) -> Branch {
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
        keys: &[list(
            "traces",
            Trace::TABLE,
            required("[{ name: two, rate: 100, tenants: [{ name: a, demand: 200 }] }]"),
            "Who asks how much when.",
        )],
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
            number("rate", (0.001, 1e12), required("1000"), "Tokens per second, all together."),
            time("duration", (0.0, 1e6), or_such_as("4s", "60s"), "How long it is played."),
            time(
                "counted_from",
                (0.0, 1e6),
                or_such_as("0s", "1s"),
                "When counting begins; the excess counts from the start.",
            ),
            list(
                "branches",
                Branch::TABLE,
                means("tenants are directly below the root", "[{ name: team, assured: 600 }]"),
                "What tenants are grouped by.",
            ),
            list("tenants", Party::TABLE, required("[{ name: a, assured: 500, demand: 10_000 }]"), "Who asks."),
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
        branch(r)
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
            key("branch", Kind::Name, means("the root", "team"), "The branch it belongs to."),
            count(
                "count",
                100_000,
                or_such_as("1", "1000"),
                "How many there are; what is assured and asked is divided among them.",
            ),
            number("zipf", (0.0, 1e12), or_such_as("0", "1.1"), "Exponent by which demand falls among them."),
            number("demand", (0.0, 1e12), or_such_as("0", "10_000"), "Tokens per second asked."),
            time("from", (0.0, 1e6), or_such_as("0s", "2s"), "When it begins to ask."),
            time("on", (0.0, 1e6), means("always", "70ms"), "How long it asks at a time."),
            time("off", (0.0, 1e6), or_such_as("0s", "70ms"), "How long it then pauses."),
            number("cost_from", (0.0, 1e12), or("1"), "Smallest cost of a request in tokens; costs are log-uniform."),
            number("cost_to", (0.0, 1e12), or_such_as("1", "32_768"), "Largest cost of a request in tokens."),
            number(
                "used_from",
                (0.0, 1e12),
                or_such_as("1", "0.5"),
                "What is used, as a factor of what was reserved, at least.",
            ),
            number(
                "used_to",
                (0.0, 1e12),
                or_such_as("1", "2"),
                "What is used, as a factor of what was reserved, at most.",
            ),
            flag(
                "watched",
                or_such_as("false", "true"),
                "Whether the report says what it got of what it asked, in its first second and in all.",
            ),
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self {
            share: branch(r),
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
