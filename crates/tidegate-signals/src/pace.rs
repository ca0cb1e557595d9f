//! When the next question is asked.

use std::time::Duration;
use tidegate_core::rng::Rng;
use tokio::time::Instant;

/// Waits between questions, measured from start to start so that a slow answer does not lower their rate.
#[derive(Debug)]
pub(crate) struct Pace {
    rng: Rng,
    jitter: f64,
    asked: Instant,
    is_first: bool,
}

impl Pace {
    /// `jitter`: share (0..1) of a wait by which it is shortened or lengthened at random.
    pub(crate) fn new(rng: Rng, jitter: f64) -> Self {
        Self { rng, jitter, asked: Instant::now(), is_first: true }
    }

    /// A question is asked now.
    pub(crate) fn on_ask(&mut self) {
        self.asked = Instant::now();
    }

    /// Waits until `interval` after the last question, give or take. All first questions are asked at once; where there is jitter the
    /// second wait is a random part of the interval, so that ten thousand endpoints do not stay in step.
    pub(crate) async fn wait(&mut self, interval: Duration) {
        let mut wait = self.rng.jitter(interval, self.jitter);
        if std::mem::take(&mut self.is_first) && self.jitter > 0.0 {
            wait = wait.mul_f64(self.rng.unit());
        }
        tokio::time::sleep_until(self.asked + wait).await;
    }
}
