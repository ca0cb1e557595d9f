//! `faults`: what goes wrong during a run, with the words of the live engine's control address.

use std::time::Duration;

use tidegate_config::{Kind, Reader, Section, Table};

use super::key::{key, means, number, or, or_such_as, required, share, time};
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
            key(
                "endpoint",
                Kind::Name,
                required("a100-2"),
                "Name of the endpoint, with its number where its `count` is more than 1.",
            ),
            time("at", (0.0, 1e8), or_such_as("0s", "60s"), "When it begins."),
            time("for", (0.001, 1e8), means("to the end", "30s"), "How long it lasts."),
            key(
                "kind",
                Kind::Choice(WORDS),
                required("slow"),
                "What is wrong: connections refused or reset, nothing answered, all slow, error statuses, answers cut, no progress.",
            ),
            number("factor", (0.001, 1e6), or("4"), "For `slow`: how many times as long everything takes."),
            key(
                "status",
                Kind::Integer { min: 400, max: 599, word: None },
                or_such_as("503", "500"),
                "For `status`: which.",
            ),
            share("rate", (0.0, 1.0), or_such_as("1", "35%"), "For `status` and `cut`: share of the requests."),
            time("retry_after", (0.0, 1e6), means("none is sent", "2s"), "For `status`: the Retry-After."),
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
