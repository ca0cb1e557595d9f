//! Pools that report a load in 0..1 and reject above a limit: gate, forecast, recover.
//!
//! notes: algorithms, section 3.2. Safe endpoints are those whose forecast headroom exceeds its own error. Among them the price is the
//! learned response time at the forecast load: one line `a + b L` for the pool, scaled by each endpoint's own ratio to it, so that
//! with equal endpoints the order is that of the forecast load. To it comes what the request costs others by the load it adds (notes:
//! adaptive, section 1). Near-ties are spread by a softmax over the price in units of load. When nobody is safe, the endpoint that will
//! have recovered most is taken.

use super::super::fastest_recovery::{forecast_config, mean_load, softmin};
use super::super::tie::PerEndpoint;
use super::super::{Cx, Pick, Usable};
use super::fit::Fit;
use crate::descriptor::Params;
use crate::endpoint::Endpoints;
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::load::{Forecast, ForecastConfig};
use crate::outcome::Verdict;
use crate::pool::Prediction;
use alloc::vec::Vec;

/// Answers of the pool before its line is believed; until then the price is the load itself.
const ENOUGH: u32 = 30;
/// Most of a response time that is believed to be our own doing; near 1 the cost to others would have no bound.
const MOST_FEEDBACK: f64 = 0.75;
/// Times the mean response time after which an answer is overdue.
const OVERDUE: f64 = 3.0;
/// Loads have to leave less than this part of what work leaves unexplained.
const CLEARLY: f64 = 0.8;
/// Part of what was learned that is kept per answer.
const KEPT: f64 = 0.998;

#[derive(Debug, Default)]
struct Seen {
    forecast: Forecast,
    /// Decayed sums of this endpoint's response times, and of what the pool's line says for the same loads.
    took: f64,
    expected: f64,
}

/// Decayed sums of a linear regression.
#[derive(Debug, Default)]
struct Line {
    answers: u32,
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Line {
    fn on_sample(&mut self, x: f64, y: f64) {
        self.answers = self.answers.saturating_add(1);
        for sum in [&mut self.n, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy] {
            *sum *= KEPT;
        }
        self.n += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    /// Intercept and slope in seconds and seconds per load; the slope is positive, as more load is never better.
    fn fit(&self) -> Option<(f64, f64)> {
        let spread = self.n * self.xx - self.x * self.x;
        if self.answers < ENOUGH || spread <= 1e-9 {
            return None;
        }
        let b = ((self.n * self.xy - self.x * self.y) / spread).max(1e-6);
        Some(((self.y - b * self.x) / self.n, b))
    }
}

/// The rule.
#[derive(Debug)]
pub(super) struct ByLoad {
    cfg: ForecastConfig,
    temperature: f64,
    externality: f64,
    seen: PerEndpoint<Seen>,
    line: Line,
    /// How well the line explains response times.
    explained: Fit,
    prices: Vec<(EndpointId, f64)>,
    rest: Vec<(EndpointId, f64)>,
}

impl ByLoad {
    pub(super) fn new(params: &Params, limit: f64) -> Self {
        Self {
            cfg: forecast_config(params, limit),
            temperature: params.float("temperature"),
            externality: params.float("externality"),
            seen: PerEndpoint::default(),
            line: Line::default(),
            explained: Fit::default(),
            prices: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// Whether loads explain response times clearly better than `by_work` explains times to first byte; also while neither has
    /// been tried.
    pub(super) fn explains_more_than(&self, by_work: &Fit) -> bool {
        match (self.explained.unexplained(), by_work.unexplained()) {
            (Some(by_load), Some(by_work)) => by_load < CLEARLY * by_work,
            _ => true,
        }
    }

    /// Seconds after which an answer that has not begun says that its engine hangs; without end before enough answers.
    pub(super) fn patience_s(&self) -> f64 {
        if self.line.answers < ENOUGH { f64::INFINITY } else { 0.5 + OVERDUE * self.line.y / self.line.n }
    }

    /// The choice among `drawn`; `None` if no usable endpoint reports a load.
    pub(super) fn pick(&mut self, cx: &mut Cx<'_>, drawn: &[EndpointId], usable: &Usable<'_>) -> Option<Pick> {
        let mean = mean_load(cx.now, usable)?;
        let fit = self.line.fit();
        let (externality, temperature) = (self.externality, self.temperature);
        let others = |ours: f64, feedback: f64| Self::others(externality, temperature, ours, feedback);
        self.prices.clear();
        self.rest.clear();
        for &id in drawn {
            let current = usable.endpoints.load_at(id, cx.now).unwrap_or(mean);
            let seen = self.seen.at(id);
            let forecast = seen.forecast.load_at(&self.cfg, cx.now, current);
            // In units of load, so that one temperature fits every pool.
            let ours = usable.endpoints.loads[id.index()].load_of(usable.endpoints.get(id).in_flight);
            let price = match fit {
                Some((a, b)) => {
                    let took = a + b * forecast;
                    ratio(seen, a + b * mean) * (took / b + others(ours, b * ours / took))
                }
                None => forecast + others(ours, 0.0),
            };
            cx.note(id, price);
            let safe = self.cfg.limit - forecast > seen.forecast.error();
            if safe { self.prices.push((id, price)) } else { self.rest.push((id, forecast)) }
        }
        let (among, reason) =
            if self.prices.is_empty() { (&self.rest, "recovery") } else { (&self.prices, "headroom") };
        let temperature = if self.prices.is_empty() { 0.0 } else { self.temperature };
        softmin(cx, among.iter().copied(), temperature).map(|id| Pick::of(id, reason))
    }

    /// What one more request costs the others, in units of load. It slows down as many as are with it, those we sent: with n there,
    /// each of load c, that is c n; and who is slowed down stays longer and slows down others in turn. With n = lambda s and
    /// s = a + b (background + c n), d(lambda s)/d lambda - s = b c n / (1 - b c n / s). `feedback` is b c n / s. What is less than twice the
    /// temperature is a near-tie, which the softmax spreads already.
    fn others(externality: f64, temperature: f64, ours: f64, feedback: f64) -> f64 {
        externality * (ours / (1.0 - feedback.clamp(0.0, MOST_FEEDBACK)) - 2.0 * temperature).max(0.0)
    }

    /// Takes the parameters of `fresh` and keeps what was learned.
    pub(super) fn reconfigure(&mut self, fresh: &Self) {
        (self.cfg, self.temperature, self.externality) = (fresh.cfg, fresh.temperature, fresh.externality);
    }

    pub(super) fn on_event(&mut self, id: EndpointId, event: &EndpointEvent<'_>, endpoints: &Endpoints) {
        match event {
            EndpointEvent::Added { .. } | EndpointEvent::Removed => *self.seen.at(id) = Seen::default(),
            EndpointEvent::Reported(report) => {
                if let Some(load) = report.load {
                    let own = endpoints.loads[id.index()].own_load();
                    let cfg = self.cfg;
                    self.seen.at(id).forecast.on_report(&cfg, report.sampled_at, load, own);
                }
            }
            EndpointEvent::Ended(d, outcome, took_s) if outcome.verdict == Verdict::Success => {
                let Prediction::WorkAndLoad(_, load) = d.predicted else { return };
                let before = self.line.fit();
                self.line.on_sample(load, *took_s);
                if let Some((a, b)) = before {
                    let seen = self.seen.at(id);
                    let typical_s = a + b * load;
                    self.explained.on_answer(*took_s, ratio(seen, typical_s) * typical_s);
                    seen.took = seen.took * 0.98 + took_s;
                    seen.expected = seen.expected * 0.98 + (a + b * load).max(1e-9);
                }
            }
            _ => {}
        }
    }
}

/// How much slower than the pool's line an endpoint is, with two pseudo-answers at the line.
fn ratio(seen: &Seen, typical_s: f64) -> f64 {
    let prior = 2.0 * typical_s.max(1e-9);
    (seen.took + prior) / (seen.expected + prior)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_to_others_is_the_derivative_of_their_time() {
        // lambda s(lambda) with s = (a + b g) / (1 - b c lambda), in units of load (over b), less the own time s / b.
        let (a, b, g, c, lambda) = (0.1, 0.9, 0.3, 0.05, 8.0);
        let s = |lambda: f64| (a + b * g) / (1.0 - b * c * lambda);
        let slope = ((lambda + 1e-4) * s(lambda + 1e-4) - (lambda - 1e-4) * s(lambda - 1e-4)) / 2e-4;
        let ours = c * lambda * s(lambda);
        let cost = ByLoad::others(1.0, 0.0, ours, b * ours / s(lambda));
        assert!((cost - (slope - s(lambda)) / b).abs() < 1e-6, "{cost}");
        assert_eq!(ByLoad::others(1.0, 0.02, 0.01, 0.0), 0.0, "less than a near-tie");
        assert!(ByLoad::others(1.0, 0.0, 1.0, 5.0) <= 4.0, "bounded");
    }
}
