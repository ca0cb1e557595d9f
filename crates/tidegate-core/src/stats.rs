//! Small numeric cores: each takes `now`, and reads do not mutate.

mod ewma;
mod rate;
mod recent;

pub use ewma::{DecayEwma, PeakEwma};
pub use rate::Rate;
pub use recent::Recent;
