//! Keeping traffic away from what does not answer, and letting it back in.

mod ejection;

pub use ejection::{Change, Ejection, Phase};
