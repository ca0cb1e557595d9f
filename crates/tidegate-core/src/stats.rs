//! Small numeric cores: each takes `now`, and reads do not mutate.

mod ewma;
mod quantile;
mod rate;
mod recent;

pub use ewma::{DecayEwma, PeakEwma};
pub use quantile::Quantile;
pub use rate::Rate;
pub use recent::Recent;
