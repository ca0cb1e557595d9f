//! Studies: questions that need no engines, asked of the same decisions in virtual time.
//!
//! A scenario with `study` is run by the study's own runner instead of the kernel; what comes back is a table, of numbers for programs
//! and people alike.

mod breaker;
mod detection;
mod incident;
mod jobs;
mod lab;
mod pulse;
mod recovery;
mod routing;
mod rows;
pub mod table;
pub mod tenants;

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};

pub use breaker::BreakerStudy;
use detection::Detection;
use pulse::Pulse;
use recovery::Recovery;
pub use routing::RoutingStudy;
pub use table::{Answer, Cell, Column, Grid};
pub use tenants::TenantsStudy;

/// Which study, and its settings.
#[derive(Clone, Debug, Default)]
pub struct Study {
    tenants: Option<TenantsStudy>,
    breaker: Option<BreakerStudy>,
    routing: Option<RoutingStudy>,
}

impl Section for Study {
    const TABLE: &'static Table = &Table {
        place: "study",
        summary: "A study takes the place of fleet, workload and policies.",
        keys: &[
            Key {
                name: "tenants",
                kind: Kind::Table(TenantsStudy::TABLE),
                absent: Absent::Means("no such study"),
                summary: "Shares of one rate between tenants, beside other ways to limit it.",
                example: "{ traces: [{ name: two, rate: 100, tenants: [{ name: a, demand: 200 }] }] }",
            },
            Key {
                name: "pulse",
                kind: Kind::Table(Pulse::TABLE),
                absent: Absent::Means("no such study"),
                summary: "How often a breaker opens an endpoint that is not down.",
                example: "{ duration: 24h }",
            },
            Key {
                name: "detection",
                kind: Kind::Table(Detection::TABLE),
                absent: Absent::Means("no such study"),
                summary: "How long until a breaker sees that an endpoint is down.",
                example: "{ max_rate: 20 }",
            },
            Key {
                name: "recovery",
                kind: Kind::Table(Recovery::TABLE),
                absent: Absent::Means("no such study"),
                summary: "How an endpoint that is well again gets its traffic back.",
                example: "{ quick: true }",
            },
            Key {
                name: "routing",
                kind: Kind::Table(RoutingStudy::TABLE),
                absent: Absent::Means("no such study"),
                summary: "Which rule for language models, on recorded requests, beside rules of other gateways as published.",
                example: "{ traces: [{ file: azure2023_conv.csv }], fleets: [{ name: one, engines: [{ llm: { preset: a100-8b } }] }], cells: [{ load: 75% }] }",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let pulse = r.table("pulse").map(BreakerStudy::Pulse);
        let detection = r.table("detection").map(BreakerStudy::Detection);
        let recovery = r.table("recovery").map(BreakerStudy::Recovery);
        let study = Self {
            tenants: r.table("tenants"),
            breaker: pulse.or(detection).or(recovery),
            routing: r.table("routing"),
        };
        let set =
            ["tenants", "pulse", "detection", "recovery", "routing"].into_iter().filter(|name| r.is_set(name)).count();
        if set != 1 {
            r.missing("tenants");
        }
        study
    }
}

impl Study {
    /// The study of breakers, if it is one.
    pub fn breaker(&self) -> Option<&BreakerStudy> {
        self.breaker.as_ref()
    }

    /// The study of routing, if it is one.
    pub fn routing(&self) -> Option<&RoutingStudy> {
        self.routing.as_ref()
    }

    /// The study of shares between tenants, if it is one.
    pub fn tenants(&self) -> Option<&TenantsStudy> {
        self.tenants.as_ref()
    }
}
