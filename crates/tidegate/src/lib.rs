//! The parts of the `tidegate` binary that tests and other subcommands use: live engines and the load generator.

pub mod engine;
pub mod load;
