//! The one place where the data plane reads time.

use tidegate_core::time::Instant;

/// Monotonic time since the process's gateway began, as core counts it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    /// A clock that starts now.
    #[allow(clippy::disallowed_methods, reason = "the shell's one clock")]
    pub fn start() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    /// The time.
    #[allow(clippy::disallowed_methods, reason = "the shell's one clock")]
    pub fn now(&self) -> Instant {
        let nanos = std::time::Instant::now().duration_since(self.origin).as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
