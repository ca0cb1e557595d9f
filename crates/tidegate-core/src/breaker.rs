//! Keeping traffic away from what does not answer, and letting it back in.
//!
//! [`circuit`](circuit) is the breaker of one endpoint for one route class; [`adaptive`] and [`classic`] hold the tests that open it.

pub mod adaptive;
pub(crate) mod circuit;
pub mod classic;
mod level;
pub mod off;
mod params;
pub(crate) mod peers;
pub mod registry;
pub(crate) mod settings;
mod way_back;

pub use level::Level;
