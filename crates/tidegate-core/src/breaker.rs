//! Keeping traffic away from what does not answer, and letting it back in.

pub mod adaptive;
pub mod classic;
mod ejection;
mod level;
pub mod off;
mod params;
pub mod registry;

pub(crate) use ejection::{Change, Ejection, EjectionConfig};
pub use level::Level;
