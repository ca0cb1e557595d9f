//! A scenario's fleet with more or fewer engines.

use super::fleet::{resized, sites, size, words};
use super::{Cell, Scenario};
use crate::kernel::setup::Setup;

impl Scenario {
    /// How many engines its fleet has; 0 where each variant has its own.
    pub fn engines(&self) -> u32 {
        size(&self.fleet)
    }

    /// What its fleet is made of with `engines` engines, kinds in proportion, in words such as `5 a100 + 3 half`.
    pub fn fleet_of(&self, engines: u32) -> String {
        words(&resized(&self.fleet, engines))
    }

    /// `cell` with `engines` engines, kinds in proportion: the same requests at the same times, and faults of those engines that are there.
    pub fn with_engines(&self, cell: &Cell, engines: u32) -> Cell {
        let sites = sites(&resized(&self.fleet, engines));
        let outages = self.faults.iter().filter_map(|f| f.outage(&sites).ok()).collect();
        Cell { setup: Setup { sites, outages, ..cell.setup.clone() }, ..cell.clone() }
    }
}
