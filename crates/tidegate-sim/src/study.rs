//! Studies: questions that need no engines, asked of the same decisions in virtual time.
//!
//! A scenario with `study` is run by the study's own runner instead of the kernel; what comes back is a table, of numbers for programs
//! and people alike.

pub mod sheet;
pub mod tenants;

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};

pub use sheet::{Cell, Sheet};
use tenants::TenantsStudy;

use crate::batch::Seeds;

/// Which study, and its settings.
#[derive(Clone, Debug, Default)]
pub struct Study {
    tenants: Option<TenantsStudy>,
}

impl Section for Study {
    const TABLE: &'static Table = &Table {
        place: "study",
        summary: "A study takes the place of fleet, workload and policies.",
        keys: &[Key {
            name: "tenants",
            kind: Kind::Table(TenantsStudy::TABLE),
            absent: Absent::Means("no such study"),
            summary: "Shares of one rate between tenants, beside other ways to limit it.",
            example: "{ traces: [{ name: two, rate: 100, tenants: [{ name: a, demand: 200 }] }] }",
        }],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { tenants: r.table("tenants") }
    }
}

impl Study {
    /// Names that a run can be restricted to.
    pub fn variants(&self) -> Vec<&str> {
        self.tenants.iter().flat_map(|study| &study.traces).map(|t| t.name.as_str()).collect()
    }

    /// Runs it over `seeds`; `only` keeps the named variants (all for none).
    pub fn run(&self, seeds: Seeds, only: &[String]) -> Vec<Sheet> {
        self.tenants.iter().map(|study| tenants::run(study, seeds, only)).collect()
    }
}
