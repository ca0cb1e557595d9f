//! Limits on requests in flight, over all pools.

use crate::key::{Absent, Key, Kind, Table};
use crate::rate_limits::scope;
use crate::reader::{Reader, Section, Switch};
use tidegate_core::limit::Scope;
use tidegate_core::limit::concurrency::{ConcurrencyConfig, SeatShare};
use tidegate_core::limit::gradient::GradientConfig;
use tidegate_core::limit::limits::config::ConcurrencyRuleConfig;

/// One of `concurrency_limits`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConcurrencyLimit {
    pub(crate) rule: ConcurrencyRuleConfig,
}

impl ConcurrencyLimit {
    /// What core is told.
    pub fn core(&self) -> &ConcurrencyRuleConfig {
        &self.rule
    }
}

/// An adaptive limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive(pub(crate) GradientConfig);

impl Adaptive {
    /// What core is told.
    pub fn core(&self) -> GradientConfig {
        self.0
    }
}

impl Section for Adaptive {
    const TABLE: &'static Table = &Table {
        place: "concurrency.adaptive",
        summary: "A limit that falls when response times show a queue, and rises while they do not (gradient).",
        keys: &[
            Key {
                name: "min",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
                absent: Absent::Default("3"),
                summary: "The limit in overload, at least.",
                example: "3",
            },
            Key {
                name: "max",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
                absent: Absent::Default("1000"),
                summary: "The limit at most.",
                example: "1000",
            },
            Key {
                name: "initial",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
                absent: Absent::Default("20"),
                summary: "The limit at the start.",
                example: "20",
            },
            Key {
                name: "tolerance",
                kind: Kind::Number { min: 1.0, max: 100.0 },
                absent: Absent::Default("1.5"),
                summary: "Response times up to this factor over those without a queue are no queue.",
                example: "1.5",
            },
            Key {
                name: "window",
                kind: Kind::Duration { min: 0.05, max: 3600.0, word: None },
                absent: Absent::Default("1s"),
                summary: "How long response times are gathered for one step.",
                example: "1s",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let (min, max, initial) = (r.integer("min") as f64, r.integer("max") as f64, r.integer("initial") as f64);
        if min > max && r.all_good(&["min", "max"]) {
            r.contradiction(
                "min",
                format!("min {min} over max {max}"),
                "min at most max",
                "lower min or raise max".to_owned(),
            );
        }
        Self(GradientConfig {
            initial: initial.clamp(min, max.max(min)),
            min_limit: min,
            max_limit: max,
            tolerance: r.number("tolerance"),
            window: r.duration("window"),
            ..GradientConfig::default()
        })
    }
}

struct Seats(SeatShare);

const SEAT_KEYS: &[Key] = &[
    Key {
        name: "nominal",
        kind: Kind::Number { min: 0.0, max: 1e9 },
        absent: Absent::Default("30"),
        summary: "Its part of the total, against the others': places that are its own.",
        example: "30",
    },
    Key {
        name: "lendable",
        kind: Kind::Fraction { min: 0.0, max: 1.0, word: None },
        absent: Absent::Default("0"),
        summary: "Part of its own places that others may use while it does not.",
        example: "50%",
    },
    Key {
        name: "borrowing",
        kind: Kind::Number { min: 0.0, max: 1e6 },
        absent: Absent::Means("whatever others lend"),
        summary: "Places it may have beyond its own, as a part of these; 0 never borrows.",
        example: "1",
    },
];

impl Section for Seats {
    const TABLE: &'static Table =
        &Table { place: "concurrency_limits[].shares.NAME", summary: "The places of one name.", keys: SEAT_KEYS };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let (shares, lendable) = (r.number("nominal"), r.number("lendable"));
        Self(SeatShare { shares, lendable, borrowing: r.number_or_none("borrowing") })
    }
}

impl Section for ConcurrencyLimit {
    const TABLE: &'static Table = &Table {
        place: "concurrency_limits[]",
        summary: "A limit on requests in flight, over all pools. Every one must admit a request.",
        keys: &[
            Key {
                name: "name",
                kind: Kind::Name,
                absent: Absent::Required,
                summary: "What refusals, metrics and rules call it.",
                example: "streams",
            },
            Key {
                name: "max_in_flight",
                kind: Kind::Integer { min: 1, max: 10_000_000, word: None },
                absent: Absent::Required,
                summary: "Requests in flight at once, all together.",
                example: "200",
            },
            Key {
                name: "per",
                kind: Kind::Choice(&["tenant", "model", "route"]),
                absent: Absent::Default("tenant"),
                summary: "Whose names `shares` are, and who is counted by itself for `each`.",
                example: "tenant",
            },
            Key {
                name: "each",
                kind: Kind::Integer { min: 1, max: 10_000_000, word: None },
                absent: Absent::Means("what its share allows"),
                summary: "Requests in flight at once of each name.",
                example: "16",
            },
            Key {
                name: "shares",
                kind: Kind::Named(Seats::TABLE),
                absent: Absent::Means("all names share all places"),
                summary: "Names with places of their own.",
                example: "{ acme: { nominal: 60, lendable: 50% } }",
            },
            Key {
                name: "others",
                kind: Kind::Table(Seats::TABLE),
                absent: Absent::Default("{}"),
                summary: "The places of all other names together.",
                example: "{ nominal: 30 }",
            },
            Key {
                name: "adaptive",
                kind: Kind::TableOr(Adaptive::TABLE, "off"),
                absent: Absent::Means("max_in_flight stands still"),
                summary: "Lets the total follow response times, up to max_in_flight.",
                example: "{ min: 10 }",
            },
            Key {
                name: "max_names",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
                absent: Absent::Default("10_000"),
                summary: "Names that are counted by themselves; beyond them they count as one.",
                example: "10_000",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let name = r.text("name").unwrap_or_default();
        r.mark("concurrency limit", "name", name.clone());
        let total = u32::try_from(r.integer("max_in_flight")).unwrap_or(u32::MAX);
        let each = r.integer_or_none("each").map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let groups = r.named::<Seats>("shares").into_iter().map(|(name, Seats(share))| (name, share)).collect();
        let others = r.table::<Seats>("others").map_or_else(SeatShare::default, |Seats(share)| share);
        let adaptive = match r.switch::<Adaptive>("adaptive") {
            Switch::On(Adaptive(cfg)) => Some(GradientConfig { max_limit: cfg.max_limit.min(f64::from(total)), ..cfg }),
            Switch::Off | Switch::Absent => None,
        };
        let seats = ConcurrencyConfig { total, each, groups, others, max_names: r.count("max_names") };
        let per = scope(r.choice("per"));
        if let (Scope::Tenant, Some(by_name)) = (per, ["each", "shares"].into_iter().find(|k| r.is_set(k))) {
            r.mark("per tenant", by_name, String::new());
        }
        Self { rule: ConcurrencyRuleConfig { name, scope: per, seats, adaptive } }
    }
}
