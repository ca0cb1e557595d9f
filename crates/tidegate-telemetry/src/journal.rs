//! The journal of a pool: a file from which every decision can be taken again.
//!
//! JSON lines. The first holds the pool's settings and seed, each further one an input with its time in nanoseconds, and for an admission
//! the decision. Numbers are written so that they read back bit for bit. Nothing of a request's content is in it: keys are hashes.

mod changes;
mod line;
mod replay;
mod settings;
mod writer;

pub use changes::{Change, What};
pub use replay::{Mismatch, Replay, ReplayError, replay};
pub use settings::Settings;
pub use writer::{JournalError, JournalWriter};
