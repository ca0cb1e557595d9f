//! What the other endpoints of a pool say: the medians an endpoint is compared with.
//!
//! Every median is over the *others*: an endpoint must not excuse itself. Values are kept sorted with each endpoint's place in them, so
//! the lower median without one is a look-up. They are taken anew when they are older than a few milliseconds per hundred endpoints:
//! a decision stays `O(1)` however many there are (notes: breaker, section 3.1).

use crate::id::EndpointId;
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

/// What one endpoint contributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contribution {
    /// Share of failures lately, shrunk, 0..1.
    pub(crate) failed: f64,
    /// Share of late first bytes lately, shrunk, 0..1.
    pub(crate) late: f64,
    /// 95th percentile of the time to first byte, seconds.
    pub(crate) p95_s: Option<f64>,
    /// Time to first byte now, seconds: the mean of the last eight, the last one, or what somebody has waited for it, whichever is longest.
    pub(crate) now_s: Option<f64>,
}

/// What an endpoint is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peers {
    /// Lower median of the others' failures lately; 0.01 alone.
    pub(crate) failed: f64,
    /// Lower median of the others' late first bytes lately.
    pub(crate) late: f64,
    /// Lower median of the others' 95th percentiles of the time to first byte, seconds.
    pub(crate) p95_s: Option<f64>,
    /// Lower median of the others' times to first byte now, seconds.
    pub(crate) now_s: Option<f64>,
    /// When another last made progress.
    pub(crate) progressed: Instant,
    /// There is no other.
    pub(crate) alone: bool,
}

/// Values with the place of each endpoint.
#[derive(Clone, Debug, Default)]
struct Ranked {
    sorted: Vec<(f64, u32)>,
    places: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Ranked {
    fn fill(&mut self, count: usize, values: impl Iterator<Item = (u32, f64)>) {
        self.sorted.clear();
        self.sorted.extend(values.map(|(index, value)| (value, index)));
        self.sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.places.clear();
        self.places.resize(count, NOWHERE);
        for (place, &(_, index)) in self.sorted.iter().enumerate() {
            self.places[index as usize] = place as u32;
        }
    }

    fn lower_median_without(&self, index: usize) -> Option<f64> {
        let own = self.places.get(index).copied().unwrap_or(NOWHERE) as usize;
        let others = self.sorted.len() - usize::from(own < self.sorted.len());
        let middle = others.checked_sub(1)? / 2;
        self.sorted.get(middle + usize::from(own <= middle)).map(|v| v.0)
    }
}

/// The medians of one pool and route class.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerEvidence {
    taken: Option<Instant>,
    failed: Ranked,
    late: Ranked,
    p95: Ranked,
    now: Ranked,
    /// The two endpoints that last made progress, the newest first.
    progress: [(Option<EndpointId>, Instant); 2],
    scratch: Vec<(u32, Contribution)>,
}

impl PeerEvidence {
    /// An endpoint made progress.
    pub(crate) fn on_progress(&mut self, now: Instant, id: EndpointId) {
        if self.progress[0].0 != Some(id) {
            self.progress[1] = self.progress[0];
        }
        self.progress[0] = (Some(id), now);
    }

    /// Whether the medians are too old: 5 ms up to 64 endpoints, then as long as 100 to 1,600 of them take.
    pub(crate) fn is_stale(&self, now: Instant, count: usize) -> bool {
        let age = if count <= 64 { 5 } else { (count as u64 / 5).clamp(20, 2000) };
        self.taken.is_none_or(|taken| now < taken || now.since(taken) >= Duration::from_millis(age))
    }

    /// Takes the medians anew from endpoints that are not open.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        count: usize,
        contributions: impl Iterator<Item = (EndpointId, Contribution)>,
    ) {
        let mut all = core::mem::take(&mut self.scratch);
        all.clear();
        all.extend(contributions.map(|(id, c)| (id.0, c)));
        self.failed.fill(count, all.iter().map(|(i, c)| (*i, c.failed)));
        self.late.fill(count, all.iter().map(|(i, c)| (*i, c.late)));
        self.p95.fill(count, all.iter().filter_map(|(i, c)| Some((*i, c.p95_s?))));
        self.now.fill(count, all.iter().filter_map(|(i, c)| Some((*i, c.now_s?))));
        self.scratch = all;
        self.taken = Some(now);
    }

    /// What endpoint `id` is compared with.
    pub(crate) fn of(&self, id: EndpointId) -> Peers {
        let failed = self.failed.lower_median_without(id.index());
        let other = self.progress[usize::from(self.progress[0].0 == Some(id))];
        Peers {
            failed: failed.unwrap_or(0.01),
            late: self.late.lower_median_without(id.index()).unwrap_or(0.01),
            p95_s: self.p95.lower_median_without(id.index()),
            now_s: self.now.lower_median_without(id.index()),
            progressed: other.1,
            alone: failed.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_never_compared_with_itself() {
        let mut evidence = PeerEvidence::default();
        let of = |failed| Contribution { failed, late: 0.0, p95_s: None, now_s: Some(failed) };
        let rates = [0.9, 0.1, 0.3];
        let all = || rates.iter().enumerate().map(|(k, &p)| (EndpointId(k as u32), of(p)));
        evidence.take(Instant::ORIGIN, 3, all());
        let failed = |k| evidence.of(EndpointId(k)).failed;
        // The lower of two others.
        assert_eq!([failed(0), failed(1), failed(2)], [0.1, 0.3, 0.1]);
        assert_eq!(evidence.of(EndpointId(0)).now_s, Some(0.1));
        evidence.take(Instant::ORIGIN, 3, all().take(1));
        assert_eq!((evidence.of(EndpointId(0)).alone, evidence.of(EndpointId(0)).failed), (true, 0.01));
        assert_eq!((evidence.of(EndpointId(2)).alone, evidence.of(EndpointId(2)).failed), (false, 0.9));
    }

    #[test]
    fn progress_of_others_is_theirs() {
        let mut evidence = PeerEvidence::default();
        let at = Instant::from_secs_f64;
        for (k, s) in [(0, 1.0), (1, 2.0), (1, 3.0), (2, 4.0), (2, 5.0)] {
            evidence.on_progress(at(s), EndpointId(k));
        }
        let others = |k| evidence.of(EndpointId(k)).progressed;
        assert_eq!([others(0), others(1), others(2)], [at(5.0), at(5.0), at(3.0)]);
    }
}
