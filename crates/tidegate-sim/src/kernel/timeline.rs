//! Load of every engine over time, for plots.

use tidegate_core::time::Duration;

use super::Kernel;
use super::queue::Due;
use crate::engine::EngineModel as _;

/// Most samples kept; beyond, every other one goes and the interval doubles.
const MOST: usize = 600;
/// Interval at the start.
const FIRST: Duration = Duration::from_millis(250);

/// Loads at equal intervals.
#[derive(Clone, Debug)]
pub struct Timeline {
    every: Duration,
    /// Time in seconds, and the load of each endpoint, 0 up.
    pub samples: Vec<(f64, Vec<f64>)>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { every: FIRST, samples: Vec::new() }
    }
}

impl Kernel<'_> {
    /// Runs to the end and keeps the load of every engine. The decisions are those of [`Kernel::run`].
    pub fn run_with_timeline(mut self) -> Timeline {
        self.timeline = Some(Timeline::default());
        self.queue.push(self.now, Due::Sample);
        self.play();
        self.timeline.unwrap_or_default()
    }

    /// Takes a sample.
    pub(super) fn on_sample(&mut self) {
        let Some(mut timeline) = self.timeline.take() else { return };
        let now = self.now;
        let loads = (0..self.endpoints.len() as u32).map(|site| {
            self.advance(site);
            self.wake(site);
            self.endpoints[site as usize].engine.status_at(now).load
        });
        let loads = loads.collect();
        timeline.samples.push((now.as_secs_f64(), loads));
        if timeline.samples.len() > MOST {
            let mut n = 0;
            timeline.samples.retain(|_| {
                n += 1;
                n % 2 == 1
            });
            timeline.every *= 2;
        }
        self.queue.push(now + timeline.every, Due::Sample);
        self.timeline = Some(timeline);
    }
}
