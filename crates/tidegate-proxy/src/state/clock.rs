//! The one place where the data plane reads time.

use tidegate_core::time::Instant;

/// Monotonic time since the process's gateway began, as core counts it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: std::time::Instant,
    /// What it showed then.
    began_at: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self::at(Instant::ORIGIN)
    }

    /// A clock that shows `now` now: the one of another process that goes on.
    #[allow(clippy::disallowed_methods, reason = "the shell's one clock")]
    pub fn at(now: Instant) -> Self {
        Self { origin: std::time::Instant::now(), began_at: now }
    }

    /// The time.
    #[allow(clippy::disallowed_methods, reason = "the shell's one clock")]
    pub fn now(&self) -> Instant {
        self.began_at + std::time::Instant::now().duration_since(self.origin)
    }
}
