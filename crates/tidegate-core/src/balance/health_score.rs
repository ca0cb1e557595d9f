//! `health_score`: in flight (this request included) times the mean of the last 20 response times; lowest wins.
//!
//! The mean is the pool's statistic, in which a failure counts as a penalty, so an endpoint that fails fast never looks fast. One with
//! no answer yet takes the pool's mean: with 0 it would win every comparison until its first answer, and drown. This request is counted
//! because without it the product of every idle endpoint is 0, also of one that is idle because it fails at once. What was seen of an
//! endpoint that has been idle since counts for half a minute, else one bad answer would keep it out for ever. O(n).

use super::tie::Lowest;
use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::Descriptor;
use crate::endpoint::Endpoint;
use crate::request::Request;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "health_score",
    summary: "in flight times mean response time of the last 20 answers; lowest wins",
    source: "SPEC section 1",
    example: "policy: health_score",
    warms_up: false,
    chases_load: true,
    params: &[],
};

/// The picker.
#[derive(Debug, Default)]
pub struct HealthScore;

impl Picker for HealthScore {
    fn pick(&mut self, cx: &mut Cx<'_>, _req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        let now = cx.now;
        let mean = |e: &Endpoint| usable.endpoints.stats[e.id.index()].response_time_at(now, e.in_flight == 0);
        let (sum, known) = usable.iter().filter_map(mean).fold((0.0, 0u32), |(s, n), m| (s + m, n + 1));
        let prior = if known > 0 { sum / f64::from(known) } else { 1.0 };
        let mut lowest = Lowest::new();
        for e in usable.iter() {
            let mean = mean(e).unwrap_or(prior);
            lowest.offer(cx, e.id, f64::from(e.in_flight + 1) * mean, 0.0);
        }
        lowest.take().map(|id| Pick::of(id, ""))
    }
}
