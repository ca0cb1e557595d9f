//! The hard test: does this endpoint answer almost nobody?
//!
//! A cumulative sum over outcomes, `+max(0.05, ln(0.7 / p_h))` per failure and `ln(0.3 / (1 - p))` per success, so that at a background of
//! 2 % rates above about a quarter grow and those below fade. The sum alone is fast and wrong, as failures come in clumps; what makes it
//! right is what may be added (old news, clumps, stale requests) and what must hold besides before it trips (time, causes, peers).
//! notes: breaker, section 3.2.

use super::causes::{Causes, Mix};
use super::cusum::Cusum;
use crate::breaker::peers::Peers;
use crate::time::{Duration, Instant};

/// Threshold in nats, `ln 1e5`, when the newest probe failed as well.
pub(super) const H_PROBED: f64 = 11.5;
/// Threshold without a probe's word.
pub(super) const H: f64 = 18.0;
/// The sum goes no higher than a threshold and this.
const ABOVE: f64 = 4.0;
/// A stale failure counts at most this often.
const STALE_EVERY: Duration = Duration::from_millis(250);
/// Distance to the peers from which a rate of failures is this endpoint's own, 0..1.
const DISTANCE: f64 = 0.2;
/// Rate of the peers from which the pool fails and not an endpoint.
const POOL_FAILS: f64 = 0.4;

/// A failure as the tests see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) sent_at: Instant,
    pub(super) connection: u64,
    pub(super) tenant: u64,
    /// It is a probe and no request.
    pub(super) probe: bool,
}

/// What the test says at a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trip {
    /// Not now.
    No,
    /// Everything holds.
    Yes,
    /// Everything holds but that the others do better.
    PoolFails,
}

/// From the failure with which the sum leaves 0 until it is 0 again.
#[derive(Clone, Copy, Debug)]
struct Episode {
    began: Instant,
    /// Failures of requests and probes that were each sent after the one before had failed: what kills everything in flight, at once or
    /// one by one, makes one.
    rounds: u32,
    round_at: Instant,
    /// When a stale failure last counted.
    stale_at: Option<Instant>,
    /// When the last failure came, and since when there was never a pause between two of [`STALE_EVERY`].
    last: Instant,
    burst: Instant,
    /// Since when the sum is over half of either threshold, the lower first.
    hot: [Option<Instant>; 2],
    causes: Causes,
}

impl Episode {
    fn new(began: Instant, stale_at: Option<Instant>) -> Self {
        let (hot, causes) = ([None; 2], Causes::default());
        Self { began, rounds: 0, round_at: began, stale_at, last: began, burst: began, hot, causes }
    }

    /// A failure came: whether it is the first after a pause.
    fn starts_burst(&mut self, now: Instant) -> bool {
        let starts = now.since(core::mem::replace(&mut self.last, now)) >= STALE_EVERY;
        if starts {
            self.burst = now;
        }
        starts
    }
}

/// The test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hard {
    sum: Cusum,
    episode: Option<Episode>,
    mix: Mix,
}

impl Hard {
    /// The sum at `now`.
    pub(super) fn at(&self, now: Instant) -> f64 {
        self.sum.at(now)
    }

    /// Whether an episode is under way.
    pub(super) fn is_suspicious(&self) -> bool {
        self.episode.is_some()
    }

    /// Whether a request sent then tells something of the episode.
    fn is_fresh(&self, sent_at: Instant) -> bool {
        self.episode.is_none_or(|e| sent_at >= e.began)
    }

    /// A request was sent.
    pub(super) fn on_dispatch(&mut self, tenant: u64) {
        self.mix.on_dispatch(tenant);
        if let Some(episode) = &mut self.episode {
            episode.causes.on_dispatch(tenant);
        }
    }

    /// A failure that is no old news. Whether it counts, for the soft test as well.
    pub(super) fn on_failure(&mut self, now: Instant, failed: &Failed, expected: f64) -> Option<f64> {
        self.end_if_over(now);
        let first = self.episode.is_none();
        let fresh = !first && self.is_fresh(failed.sent_at);
        let episode = self.episode.get_or_insert(Episode::new(now, None));
        // A reset that kills everything in flight is one event also in the middle of an episode: only its first failure is fresh, and then
        // those of requests sent since.
        let fresh = fresh && (episode.starts_burst(now) || failed.sent_at >= episode.burst);
        if fresh && failed.sent_at >= episode.round_at {
            episode.rounds += 1;
            episode.round_at = now;
        }
        if !fresh {
            if episode.stale_at.is_some_and(|at| now.since(at) < STALE_EVERY) {
                return None;
            }
            episode.stale_at = Some(now);
        }
        // A stale one is no part of what was sent within the episode.
        let tenant = (fresh && !failed.probe).then_some(failed.tenant);
        episode.causes.on_failure(failed.connection, tenant);
        let step = libm::log(0.7 / expected).max(0.05);
        self.sum.add(now, step, H + ABOVE);
        self.watch_heat(now);
        Some(step)
    }

    /// A success. Whether it counts, for the soft test as well. `own`: the rate of failures ever.
    pub(super) fn on_success(&mut self, now: Instant, sent_at: Instant, own: f64) -> bool {
        if self.episode.is_none() {
            return true;
        }
        if !self.is_fresh(sent_at) {
            return false;
        }
        let p = (1.5 * own).clamp(0.02, 0.45);
        self.sum.add(now, libm::log(0.3 / (1.0 - p)), H + ABOVE);
        self.watch_heat(now);
        self.end_if_over(now);
        true
    }

    /// Takes a step back, already faded.
    pub(super) fn take_back(&mut self, now: Instant, step: f64) {
        self.sum.add(now, -step, H + ABOVE);
        if let Some(episode) = &mut self.episode {
            episode.rounds = episode.rounds.saturating_sub(1);
        }
        self.watch_heat(now);
        self.end_if_over(now);
    }

    fn watch_heat(&mut self, now: Instant) {
        let Some(episode) = &mut self.episode else { return };
        let s = self.sum.at(now);
        for (hot, h) in episode.hot.iter_mut().zip([H_PROBED, H]) {
            *hot = if s < h / 2.0 { None } else { hot.or(Some(now)) };
        }
        if episode.hot[0].is_none() {
            // Below half of the lower threshold is where causes begin to count: an episode may smoulder for minutes on background failures.
            episode.causes = Causes::default();
        }
    }

    /// Ends an episode whose sum faded away.
    pub(super) fn end_if_over(&mut self, now: Instant) {
        if self.episode.is_some() && self.sum.at(now) == 0.0 {
            self.episode = None;
        }
    }

    /// Whether to trip, asked at a failure. `probed`: the newest probe failed; `share`: own failures lately.
    pub(super) fn trips(&self, now: Instant, probed: bool, share: f64, peers: &Peers, median_s: f64) -> Trip {
        let Some(episode) = &self.episode else { return Trip::No };
        let (h, t, hot) = match probed {
            true => (H_PROBED, 0.25, episode.hot[0]),
            false => (H, (2.0 * median_s).clamp(0.5, 2.0), episode.hot[1]),
        };
        let s = self.sum.at(now);
        let holds = s >= h
            && hot.is_some_and(|since| now.secs_since(since) >= t)
            // What was in flight when a blip killed it says nothing of now, however many there were: only who was sent since does.
            && episode.rounds >= 3
            && episode.causes.are_many(&self.mix, probed);
        match holds {
            false => Trip::No,
            true if share > peers.failed + DISTANCE && peers.failed < POOL_FAILS => Trip::Yes,
            // Too few of its own lately says nothing of the others.
            true if peers.failed < DISTANCE => Trip::No,
            true => Trip::PoolFails,
        }
    }

    /// A probe passes after one that failed: whatever they see is over, and half of the evidence with it.
    pub(super) fn on_probes_pass_again(&mut self, now: Instant) {
        let s = self.sum.at(now).min(H / 2.0);
        self.sum.reset(now, s);
        self.watch_heat(now);
    }

    /// Closed again: half the evidence re-opens.
    pub(super) fn on_closed(&mut self, now: Instant) {
        self.sum.reset(now, H / 2.0);
        self.episode = Some(Episode::new(now, Some(now)));
    }

    /// Forgets.
    pub(super) fn clear(&mut self) {
        *self = Self { mix: self.mix, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> Instant {
        Instant::from_secs_f64(s)
    }

    const PEERS: Peers =
        Peers { failed: 0.01, late: 0.01, p95_s: None, now_s: None, progressed: Instant::ORIGIN, alone: false };

    /// Failures of one request after the other, each of a tenant and a connection of its own, from 0 s on every 0.1 s.
    fn failed(count: u32) -> Hard {
        let mut hard = Hard::default();
        for k in 0..count {
            let now = at(0.1 * f64::from(k));
            hard.on_dispatch(u64::from(k));
            let failed = Failed { sent_at: now, connection: u64::from(k), tenant: u64::from(k), probe: false };
            assert!(hard.on_failure(now, &failed, 0.02).is_some());
        }
        hard
    }

    fn one_more(hard: &mut Hard, sent_at: f64, now: f64) -> Trip {
        hard.on_dispatch(99);
        let failed = Failed { sent_at: at(sent_at), connection: 99, tenant: 99, probe: false };
        let _ = hard.on_failure(at(now), &failed, 0.02);
        hard.trips(at(now), false, 0.5, &PEERS, 0.02)
    }

    #[test]
    fn a_restart_that_is_over_is_not_completed_by_the_next_background_failure() {
        let mut hard = failed(12);
        assert_eq!(one_more(&mut hard.clone(), 1.3, 1.3), Trip::Yes);
        hard.on_probes_pass_again(at(1.2));
        assert_eq!(one_more(&mut hard, 1.3, 1.3), Trip::No);
    }

    #[test]
    fn what_dies_one_by_one_of_one_blip_is_one_round() {
        // Sixty requests of a minute each, sent within an episode that smoulders, die over half a minute.
        let mut hard = failed(1);
        for k in 0..60 {
            hard.on_dispatch(k % 7);
        }
        for k in 0..60 {
            let now = 10.0 + 0.5 * f64::from(k);
            let failed = Failed { sent_at: at(1.0 + 0.1 * f64::from(k)), connection: 7, tenant: 1, probe: false };
            let _ = hard.on_failure(at(now), &failed, 0.02);
            assert_eq!(hard.trips(at(now), false, 0.9, &PEERS, 30.0), Trip::No, "{k}");
        }
        assert_eq!(hard.episode.map(|e| e.rounds), Some(1));
    }
}
