//! The stall test: an engine that hangs with requests inside, whatever its health path says.
//!
//! `gap` is the time since anything came: a first byte, a token, any answer. `H` is how unlikely that gap is, in nats: the sum over the
//! oldest 64 requests that wait of what the histogram of first-byte times says they had to survive within the gap; streams that run and
//! send nothing add 50 nats per second. A pause of the whole pool excuses: a peer must have moved in the second half of the gap.
//! Evaluated when a request is sent, as nobody is hurt while nothing is sent, and once it speaks softly, again when the gap is long enough:
//! with a lowered weight the next request may be long in coming, and those that wait are the damage (notes: breaker, section 3.4).

use super::histogram::Histogram;
use super::waiting::Waiting;
use crate::breaker::circuit::Look;
use crate::time::{Duration, Instant, duration_from_secs};

/// Requests looked at.
const MOST: usize = 64;
/// Tokens are told this often, so a stream's silence counts from here on only.
const TOLD_EVERY_S: f64 = 0.5;
/// The sums are taken at most this often.
const EVERY: Duration = Duration::from_millis(5);

/// Share of late requests from which being late is no news, and the one from which it still is some: an engine that is slow can hang, too.
const USUALLY_LATE: f64 = 0.05;
const MOSTLY_LATE: f64 = 0.37;

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
    /// Share of late requests when it last progressed.
    late: f64,
    tokens_at: Option<Instant>,
    /// Streams that run.
    pub(super) streams: u32,
    taken_at: Option<Instant>,
}

impl Stall {
    /// Something came. `late`: share of late requests lately.
    pub(super) fn on_progress(&mut self, now: Instant, late: f64) {
        self.progressed = self.progressed.max(now);
        self.late = late;
    }

    /// Tokens came since the last sample.
    pub(super) fn on_tokens(&mut self, now: Instant, late: f64) {
        self.on_progress(now, late);
        self.tokens_at = Some(now);
    }

    /// A request is about to be sent to an endpoint that has none: the gap starts here.
    pub(super) fn on_idle_ends(&mut self, now: Instant) {
        self.progressed = now;
    }

    /// Seconds since anything came.
    pub(super) fn gap_s(&self, now: Instant) -> f64 {
        now.secs_since(self.progressed)
    }

    /// When a gap that is under way may open, as far as is known now.
    pub(super) fn due_at(&self, now: Instant, stall_after: f64) -> Instant {
        (self.progressed + duration_from_secs(stall_after)).max(now + EVERY * 20)
    }

    /// What one request can say at most, nats: of an endpoint whose requests were late before, one more is no news.
    fn most_of_one(&self) -> f64 {
        if self.late > USUALLY_LATE { -libm::log(self.late.min(MOSTLY_LATE)) } else { f64::INFINITY }
    }

    /// Judges at a dispatch, or when [`Self::due_at`] said. `lately_s`: times to first byte lately.
    pub(super) fn judge(
        &mut self,
        look: &Look<'_>,
        waiting: &Waiting,
        histogram: &Histogram,
        lately_s: Option<f64>,
    ) -> Stalled {
        let (now, peers, stall_after) = (look.now, &look.peers, look.settings.stall_after_s);
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
        let most = self.most_of_one();
        let survived = |sent: Instant| {
            let before = if self.progressed > sent { self.progressed.secs_since(sent) } else { 0.0 };
            (hazards.at(now.secs_since(sent)) - hazards.at(before)).min(most)
        };
        let mut h: f64 = waiting.times().take(MOST).map(survived).sum();
        let streams =
            self.streams > 0 && self.tokens_at.is_some_and(|at| at + Duration::from_secs(1) >= self.progressed);
        if streams {
            h += 50.0 * (gap - TOLD_EVERY_S).max(0.0);
        }
        let inside = waiting.count_since(self.progressed, 2) + if streams { 2 } else { 0 };
        // Slow is not hung, be it the pool or this endpoint alone.
        let slow = median.max(peers.now_s.unwrap_or(0.0)).max(lately_s.unwrap_or(0.0)).min(10.0);
        // While it ramps up a third of the evidence re-opens, of one request as for the trial: the ramp, or a rule that sees it busy, bounds
        // how many can be inside to hang.
        let (enough, many) = if look.closed { (15.0, 2) } else { (5.0, 1) };
        if h >= enough && gap >= stall_after.max(4.0 * slow) && inside >= many {
            Stalled::Hard
        } else if h >= 10.0 {
            Stalled::Soft
        } else {
            Stalled::No
        }
    }
}
