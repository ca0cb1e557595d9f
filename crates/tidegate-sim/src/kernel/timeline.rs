//! Every engine over time, for plots: its load, what it has and what waits in it; and how many engines there are.

use tidegate_core::time::Duration;

use super::Kernel;
use super::queue::Due;
use crate::engine::EngineModel as _;

/// Most samples kept; beyond, every other one goes and the interval doubles.
const MOST: usize = 600;
/// Interval at the start.
const FIRST: Duration = Duration::from_millis(250);

/// An endpoint at one instant; all is 0 while no engine is there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Its load, 0 up.
    pub load: f64,
    /// Requests sent to it that have not ended.
    pub in_flight: u32,
    /// Of these, those that wait in the engine to be computed.
    pub waiting: u32,
}

/// The fleet at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds after the start.
    pub at_s: f64,
    /// Each endpoint, in their order.
    pub endpoints: Vec<Point>,
    /// Endpoints that serve.
    pub serving: u32,
    /// Endpoints that start.
    pub starting: u32,
}

/// Samples at equal intervals.
#[derive(Clone, Debug)]
pub struct Timeline {
    every: Duration,
    /// The samples, oldest first.
    pub samples: Vec<Sample>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { every: FIRST, samples: Vec::new() }
    }
}

impl Kernel<'_> {
    /// Runs to the end and keeps how every engine was over time. The decisions are those of [`Kernel::run`].
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
        let points = (0..self.endpoints.len() as u32).map(|site| {
            self.advance(site);
            self.wake(site);
            let in_flight = self.fleet.places[site as usize].outstanding;
            if !self.fleet.listens(site) {
                return Point { in_flight, ..Point::default() };
            }
            let status = self.endpoints[site as usize].engine.status_at(now);
            Point { load: status.load, in_flight, waiting: status.waiting }
        });
        let endpoints = points.collect();
        let (serving, starting) = self.fleet.count();
        timeline.samples.push(Sample { at_s: now.as_secs_f64(), endpoints, serving, starting });
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
