//! The live shell's clock: the only place in `engine` and `load` where time is read.

use tidegate_core::time::{Duration, Instant};

/// Nanoseconds since this clock was made, monotonic.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }

    /// Time since the start.
    pub fn now(&self) -> Instant {
        self.at(tokio::time::Instant::now())
    }

    /// The runtime's instant as one of ours.
    pub fn at(&self, instant: tokio::time::Instant) -> Instant {
        let passed = instant.saturating_duration_since(self.origin);
        Instant::ORIGIN + passed
    }

    /// One of our instants as the runtime's, for sleeping.
    pub fn runtime(&self, instant: Instant) -> tokio::time::Instant {
        let far = Duration::from_secs(30 * 365 * 86_400);
        self.origin + instant.since(Instant::ORIGIN).min(far)
    }
}

/// Wall time, seconds since 1970: for `created` fields and for comparing records of two processes, never for a decision.
#[expect(clippy::disallowed_methods, reason = "wall time that is only shown")]
pub fn unix_s() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}
