//! How many engines a group is to have: the rule of the Kubernetes horizontal autoscaler, which KEDA drives as well.
//!
//! wanted = ceil(sum of the metric over the group / target), unless that is within the tolerance of what is there; at most twice as many, or
//! four more, at a time; fewer only when fewer have been enough for the whole time to settle: the largest number wanted since then counts.
//! Engines that still start count as there and add nothing to the metric, so that they are not asked for twice. Attainment of a goal is no sum
//! that engines share: while more requests miss it than may, half as many engines again are wanted, and one less while at most half as
//! many miss it.

use std::collections::VecDeque;

use tidegate_core::time::Instant;

use super::elastic::{Autoscale, Metric};

/// What was found of a group since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Engines that are there or start, none that leaves.
    pub(super) engines: u32,
    /// Requests in flight at them.
    pub(super) in_flight: u32,
    /// Requests waiting.
    pub(super) waiting: u32,
    /// Sum of their used shares of KV memory.
    pub(super) kv_usage: f64,
    /// Requests that ended since the last look, and those of them within the goal.
    pub(super) ended: u64,
    /// See `ended`.
    pub(super) good: u64,
}

/// The autoscaler of one group.
#[derive(Clone, Debug)]
pub(super) struct Autoscaler {
    cfg: Autoscale,
    /// What was wanted, while it counts; oldest first. As long as time to settle over interval.
    wanted: VecDeque<(Instant, u32)>,
}

impl Autoscaler {
    pub(super) fn new(cfg: Autoscale) -> Self {
        Self { cfg, wanted: VecDeque::new() }
    }

    /// How many engines the group is to have from now on.
    pub(super) fn look(&mut self, now: Instant, seen: &Seen) -> u32 {
        let wanted = self.wants(seen);
        if self.wanted.is_empty() {
            // What is there at the first look was wanted by somebody.
            self.wanted.push_back((now, seen.engines));
        }
        self.wanted.push_back((now, wanted));
        while self.wanted.front().is_some_and(|(at, _)| now.since(*at) > self.cfg.settle) {
            self.wanted.pop_front();
        }
        let settled = self.wanted.iter().map(|(_, n)| *n).fold(wanted, u32::max);
        let most = (seen.engines * 2).max(seen.engines + 4);
        // Fewer by whatever was enough all the time, more at once.
        let next = if wanted >= seen.engines { wanted.min(most) } else { settled.min(seen.engines) };
        next.clamp(self.cfg.min, self.cfg.max)
    }

    fn wants(&self, seen: &Seen) -> u32 {
        let (sum, target) = match self.cfg.metric {
            Metric::InFlight(target) => (f64::from(seen.in_flight), target),
            Metric::Queue(target) => (f64::from(seen.waiting), target),
            Metric::KvUsage(target) => (seen.kv_usage, target),
            Metric::Slo(target) => return wants_for_goal(seen, target),
        };
        let ratio = sum / (target * f64::from(seen.engines.max(1)));
        if libm::fabs(ratio - 1.0) <= self.cfg.tolerance {
            return seen.engines;
        }
        libm::ceil(sum / target).min(f64::from(u32::MAX)) as u32
    }
}

fn wants_for_goal(seen: &Seen, target: f64) -> u32 {
    let missed = (seen.ended - seen.good) as f64 / seen.ended.max(1) as f64;
    let may_miss = 1.0 - target;
    if missed > may_miss {
        return seen.engines + seen.engines.div_ceil(2).max(1);
    }
    if missed <= may_miss / 2.0 { seen.engines.saturating_sub(1) } else { seen.engines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::time::Duration;

    fn scaler(metric: Metric) -> Autoscaler {
        let settle = Duration::from_secs(60);
        let interval = Duration::from_secs(15);
        Autoscaler::new(Autoscale { metric, min: 1, max: 20, interval, settle, tolerance: 0.1 })
    }

    fn at(s: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(s)
    }

    #[test]
    fn more_at_once_and_at_most_twice_as_many() {
        let mut a = scaler(Metric::InFlight(10.0));
        let seen = |engines, in_flight| Seen { engines, in_flight, ..Seen::default() };
        assert_eq!(a.look(at(0), &seen(2, 45)), 5);
        assert_eq!(a.look(at(15), &seen(2, 200)), 6, "four more at most");
        assert_eq!(a.look(at(30), &seen(6, 200)), 12, "or twice as many");
        assert_eq!(a.look(at(45), &seen(12, 500)), 20, "never beyond the most");
        assert_eq!(scaler(Metric::InFlight(10.0)).look(at(0), &seen(2, 21)), 2, "within the tolerance");
    }

    #[test]
    fn fewer_only_when_fewer_were_enough_all_the_time() {
        let mut a = scaler(Metric::KvUsage(0.5));
        let seen = |engines, kv_usage| Seen { engines, kv_usage, ..Seen::default() };
        assert_eq!(a.look(at(0), &seen(8, 4.0)), 8);
        assert_eq!(a.look(at(15), &seen(8, 0.9)), 8, "eight were wanted a moment ago");
        assert_eq!(a.look(at(60), &seen(8, 1.4)), 8);
        assert_eq!(a.look(at(61), &seen(8, 0.4)), 3, "the most wanted within the last minute");
        assert_eq!(a.look(at(150), &seen(3, 0.0)), 1, "never below the fewest");
    }

    #[test]
    fn a_goal_that_is_missed_adds_half_and_one_that_is_met_takes_one_at_a_time() {
        let mut a = scaler(Metric::Slo(0.98));
        let seen = |engines, good| Seen { engines, ended: 100, good, ..Seen::default() };
        assert_eq!(a.look(at(0), &seen(4, 90)), 6);
        assert_eq!(a.look(at(15), &seen(6, 98)), 6, "as many miss it as may");
        assert_eq!(a.look(at(80), &seen(6, 100)), 5);
        let nobody = Seen { engines: 3, ..Seen::default() };
        let mut a = scaler(Metric::Slo(0.98));
        assert_eq!((a.look(at(0), &nobody), a.look(at(61), &nobody)), (3, 2), "nobody asks, nobody misses");
    }
}
