//! The studies of breakers, which share the [`lab`](super::lab) and answer in grids.

use std::num::NonZeroUsize;

use super::table::Grid;
use super::{Detection, Pulse, Recovery};
use crate::batch::Seeds;

/// One study.
#[derive(Clone, Debug)]
pub enum BreakerStudy {
    /// False trips.
    Pulse(Pulse),
    /// Time until an endpoint that is down is seen.
    Detection(Detection),
    /// The way back of one that is well again.
    Recovery(Recovery),
}

impl BreakerStudy {
    /// Runs it. `tick` is told after each run how many are done of how many, and how many requests that one had.
    pub fn run(&self, seeds: Seeds, threads: NonZeroUsize, tick: &mut dyn FnMut(usize, usize, u64)) -> Vec<Grid> {
        match self {
            Self::Pulse(study) => study.run(seeds, threads, tick),
            Self::Detection(study) => study.run(seeds, threads, tick),
            Self::Recovery(study) => study.run(seeds, threads, tick),
        }
    }
}
