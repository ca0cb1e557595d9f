//! `faults`: what goes wrong during a run, with the words of the live engine's control address.

use std::time::Duration;

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};

use crate::fault::{Fault, FaultKind};
use crate::kernel::setup::{Outage, Site};

/// A fault as written.
#[derive(Clone, Debug)]
pub struct Planned {
    endpoint: String,
    at: Duration,
    fault: Fault,
}

/// The words of [`FaultKind`], in the order of the kinds below.
const WORDS: &[&str] = &["refuse", "reset", "hang", "slow", "status", "cut", "no_progress"];

fn kind(word: &str) -> FaultKind {
    match word {
        "refuse" => FaultKind::Refuse,
        "reset" => FaultKind::Reset,
        "hang" => FaultKind::Hang,
        "slow" => FaultKind::Slow,
        "status" => FaultKind::Status,
        "cut" => FaultKind::Cut,
        "no_progress" => FaultKind::NoProgress,
        _ => FaultKind::None,
    }
}

impl Section for Planned {
    const TABLE: &'static Table = &Table {
        place: "faults[]",
        summary: "A fault of one endpoint.",
        keys: &[
            Key {
                name: "endpoint",
                kind: Kind::Name,
                absent: Absent::Required,
                summary: "Name of the endpoint, with its number where its `count` is more than 1.",
                example: "a100-2",
            },
            Key {
                name: "at",
                kind: Kind::Duration { min: 0.0, max: 1e8, word: None },
                absent: Absent::Default("0s"),
                summary: "When it begins.",
                example: "60s",
            },
            Key {
                name: "for",
                kind: Kind::Duration { min: 0.001, max: 1e8, word: None },
                absent: Absent::Means("to the end"),
                summary: "How long it lasts.",
                example: "30s",
            },
            Key {
                name: "kind",
                kind: Kind::Choice(WORDS),
                absent: Absent::Required,
                summary: "What is wrong: connections refused or reset, nothing answered, all slow, error statuses, answers cut, no progress.",
                example: "slow",
            },
            Key {
                name: "factor",
                kind: Kind::Number { min: 0.001, max: 1e6 },
                absent: Absent::Default("4"),
                summary: "For `slow`: how many times as long everything takes.",
                example: "4",
            },
            Key {
                name: "status",
                kind: Kind::Integer { min: 400, max: 599, word: None },
                absent: Absent::Default("503"),
                summary: "For `status`: which.",
                example: "500",
            },
            Key {
                name: "rate",
                kind: Kind::Fraction { min: 0.0, max: 1.0, word: None },
                absent: Absent::Default("1"),
                summary: "For `status` and `cut`: share of the requests.",
                example: "35%",
            },
            Key {
                name: "retry_after",
                kind: Kind::Duration { min: 0.0, max: 1e6, word: None },
                absent: Absent::Means("none is sent"),
                summary: "For `status`: the Retry-After.",
                example: "2s",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let fault = Fault {
            kind: kind(r.choice("kind")),
            factor: r.number("factor"),
            status: u16::try_from(r.integer("status")).unwrap_or(503),
            rate: r.number("rate"),
            retry_after_s: r.duration_or_none("retry_after").map(|d| d.as_secs_f64()),
            for_s: r.duration_or_none("for").map(|d| d.as_secs_f64()),
        };
        Self { endpoint: r.text("endpoint").unwrap_or_default(), at: r.duration("at"), fault }
    }
}

impl Planned {
    /// The fault in a fleet of `sites`.
    ///
    /// # Errors
    /// No endpoint has its name.
    pub fn outage(&self, sites: &[Site]) -> Result<Outage, String> {
        let place = sites.iter().position(|s| s.name == self.endpoint).ok_or_else(|| {
            let names: Vec<&str> = sites.iter().take(20).map(|s| s.name.as_str()).collect();
            format!("faults: no endpoint {}; there are {}", self.endpoint, names.join(", "))
        })?;
        Ok(Outage { site: place as u32, at: self.at, fault: self.fault })
    }
}
