//! The stall test: an engine that hangs with requests inside, whatever its health path says.
//!
//! `gap` is the time since anything came: a first byte, a token, any answer. `H` is how unlikely that gap is, in nats: the sum over the
//! oldest 64 requests that wait of what the histogram of first-byte times says they had to survive within the gap; streams that run and
//! send nothing add 50 nats per second. A pause of the whole pool excuses: a peer must have moved in the second half of the gap.
//! Evaluated when a request is sent, as nobody is hurt while nothing is sent (notes: breaker, section 3.4).

use super::histogram::Histogram;
use super::waiting::Waiting;
use crate::breaker::peers::Peers;
use crate::time::{Duration, Instant, duration_from_secs};

/// Requests looked at.
const MOST: usize = 64;
/// Tokens are told this often, so a stream's silence counts from here on only.
const TOLD_EVERY_S: f64 = 0.5;
/// The sums are taken at most this often.
const EVERY: Duration = Duration::from_millis(5);

/// What the test says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stalled {
    /// It moves, or it is too early to say.
    No,
    /// Enough to send it less.
    Soft,
    /// It hangs.
    Hard,
}

/// Progress of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stall {
    progressed: Instant,
    tokens_at: Option<Instant>,
    /// Streams that run.
    pub(super) streams: u32,
    taken_at: Option<Instant>,
}

impl Stall {
    /// Something came.
    pub(super) fn on_progress(&mut self, now: Instant) {
        self.progressed = self.progressed.max(now);
    }

    /// Tokens came since the last sample.
    pub(super) fn on_tokens(&mut self, now: Instant) {
        self.on_progress(now);
        self.tokens_at = Some(now);
    }

    /// A request is about to be sent to an endpoint that has none: the gap starts here.
    pub(super) fn on_idle_ends(&mut self, now: Instant) {
        self.progressed = now;
    }

    /// Judges at a dispatch. `stall_after`: shortest gap that opens, seconds.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        waiting: &Waiting,
        histogram: &Histogram,
        peers: &Peers,
        stall_after: f64,
    ) -> Stalled {
        let gap = now.secs_since(self.progressed);
        let Some(median) = histogram.median_s() else { return Stalled::No };
        if gap < (3.0 * median).max(0.25) || self.taken_at.is_some_and(|at| now.since(at) < EVERY) {
            return Stalled::No;
        }
        self.taken_at = Some(now);
        let half = now - duration_from_secs(gap / 2.0);
        if !peers.alone && peers.progressed < half {
            return Stalled::No;
        }
        let hazards = histogram.hazards();
        let survived = |sent: Instant| {
            let before = if self.progressed > sent { self.progressed.secs_since(sent) } else { 0.0 };
            hazards.at(now.secs_since(sent)) - hazards.at(before)
        };
        let mut h: f64 = waiting.times().take(MOST).map(survived).sum();
        let streams =
            self.streams > 0 && self.tokens_at.is_some_and(|at| at + Duration::from_secs(1) >= self.progressed);
        if streams {
            h += 50.0 * (gap - TOLD_EVERY_S).max(0.0);
        }
        let inside = waiting.count_since(self.progressed, 2) + if streams { 2 } else { 0 };
        let slow = median.max(peers.now_s.unwrap_or(0.0)).min(10.0);
        if h >= 15.0 && gap >= stall_after.max(4.0 * slow) && inside >= 2 {
            Stalled::Hard
        } else if h >= 10.0 {
            Stalled::Soft
        } else {
            Stalled::No
        }
    }
}
