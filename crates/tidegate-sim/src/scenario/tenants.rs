//! `workload.tenants`: who asks, each with arrivals of its own.

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};

use super::workload::Process;
use crate::kernel::setup::Party;
use crate::workload::{Arrivals, Burst};

/// Most tenants of a workload.
const MAX_TENANTS: u32 = 10_000;

impl Section for Burst {
    const TABLE: &'static Table = &Table {
        place: "workload.tenants[].burst",
        summary: "A time in which requests come faster.",
        keys: &[
            Key {
                name: "at",
                kind: Kind::Duration { min: 0.0, max: 1e8, word: None },
                absent: Absent::Required,
                summary: "When it begins, after the start.",
                example: "20s",
            },
            Key {
                name: "for",
                kind: Kind::Duration { min: 0.001, max: 1e8, word: None },
                absent: Absent::Required,
                summary: "How long it lasts.",
                example: "20s",
            },
            Key {
                name: "factor",
                kind: Kind::Number { min: 0.001, max: 1e4 },
                absent: Absent::Required,
                summary: "How many times as many requests come.",
                example: "20",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { at: r.duration("at"), length: r.duration("for"), factor: r.number("factor").max(1e-3) }
    }
}

impl Section for Party {
    const TABLE: &'static Table = &Table {
        place: "workload.tenants[]",
        summary: "A tenant, or several alike that are counted together in the report.",
        keys: &[
            Key {
                name: "name",
                kind: Kind::Name,
                absent: Absent::Required,
                summary: "What limits and the report call it; with `count` limits call them NAME-1, NAME-2, ...",
                example: "quiet",
            },
            Key {
                name: "count",
                kind: Kind::Integer { min: 1, max: MAX_TENANTS as u64, word: None },
                absent: Absent::Default("1"),
                summary: "How many of them.",
                example: "5",
            },
            Key {
                name: "arrivals",
                kind: Kind::Table(Process::TABLE),
                absent: Absent::Required,
                summary: "When the requests of each come.",
                example: "{ rate: 4 }",
            },
            Key {
                name: "burst",
                kind: Kind::Table(Burst::TABLE),
                absent: Absent::Means("no burst"),
                summary: "A time in which they come faster.",
                example: "{ at: 20s, for: 20s, factor: 20 }",
            },
            Key {
                name: "prompt_tokens",
                kind: Kind::Integer { min: 1, max: 10_000_000, word: None },
                absent: Absent::Means("those of the workload"),
                summary: "Length of its prompts.",
                example: "1000",
            },
            Key {
                name: "output_tokens",
                kind: Kind::Integer { min: 1, max: 10_000_000, word: None },
                absent: Absent::Means("those of the workload"),
                summary: "Length of the answers.",
                example: "200",
            },
            Key {
                name: "weight",
                kind: Kind::Number { min: 0.001, max: 1e6 },
                absent: Absent::Default("1"),
                summary: "Share of each in the queue, against other tenants.",
                example: "2",
            },
            Key {
                name: "priority",
                kind: Kind::Name,
                absent: Absent::Means("the last class"),
                summary: "Class in the queue.",
                example: "interactive",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let mut tokens = |name| r.integer_or_none(name).map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX));
        // 0 stands for those of the workload, which is read around it.
        let tokens = (tokens("prompt_tokens"), tokens("output_tokens"));
        Self {
            name: r.text("name").unwrap_or_default(),
            count: u32::try_from(r.integer("count")).unwrap_or(1),
            arrivals: r.table::<Process>("arrivals").map_or(Arrivals::Poisson { rate: 1.0 }, |p| p.0),
            burst: r.table("burst"),
            tokens,
            weight: r.number("weight"),
            priority: r.text("priority"),
        }
    }
}

/// The tenants of a workload; `tokens` are those of who says nothing.
pub(super) fn read(r: &mut Reader<'_, '_>, tokens: (u32, u32)) -> Vec<Party> {
    let mut parties: Vec<Party> = r.list("tenants");
    let or = |own: u32, other: u32| if own == 0 { other } else { own };
    for party in &mut parties {
        party.tokens = (or(party.tokens.0, tokens.0), or(party.tokens.1, tokens.1));
    }
    let names: Vec<String> =
        parties.iter().flat_map(|p| p.names().chain([p.name.clone()]).skip(usize::from(p.count == 1))).collect();
    let sum: u32 = parties.iter().fold(0, |sum, p| sum.saturating_add(p.count));
    if sum > MAX_TENANTS {
        r.contradiction("tenants", format!("{sum} tenants"), &format!("at most {MAX_TENANTS} tenants"), String::new());
    } else if let Some(twice) = names.iter().enumerate().find(|(i, n)| names[..*i].contains(n)) {
        let found = format!("the tenant `{}` twice", twice.1);
        r.contradiction("tenants", found, "each name once", "rename one of the two".to_owned());
    }
    parties
}
