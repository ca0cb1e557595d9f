//! `fastest_recovery`: the endpoint whose load is about to be lowest, not the one that is lowest now.
//!
//! | form | picks the largest | |
//! |---|---|---|
//! | `headroom` | (limit - L) / window | sampled every `sample_every` |
//! | `ema` | -slope, EMA of the slopes, newest weighing 60 % | sampled every `sample_every` |
//! | `peak` | (largest L in the window - L) / time since it | since it last stood there: a plateau is no recovery |
//! | `forecast` | limit - forecast(t + horizon), with own credit | [`crate::load::Forecast`] |
//!
//! The slope alone has no fixed point (every flat load ties) and follows endpoints that were just overloaded; `forecast` corrects the
//! level by the slope and spreads near-ties by a softmax, so it is the default. Needs a reported load; an endpoint without one counts
//! as the mean of the others, and when nobody reports, the rule is fewest in flight and says `degraded`. O(n).

use super::tie::{Lowest, PerEndpoint};
use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::{Descriptor, Param, ParamKind, Params, Value};
use crate::endpoint::Endpoints;
use crate::event::EndpointEvent;
use crate::id::EndpointId;
use crate::load::{Forecast, ForecastConfig};
use crate::request::Request;
use crate::time::Instant;
use alloc::collections::VecDeque;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "fastest_recovery",
    summary: "largest recovery rate of the reported load among endpoints under max_load",
    source: "notes: algorithms, section 3",
    example: "policy: { name: fastest_recovery, form: forecast }",
    warms_up: false,
    chases_load: true,
    params: &[
        Param {
            name: "form",
            summary: "which recovery rate",
            unit: "",
            kind: ParamKind::Choice(&["headroom", "ema", "peak", "forecast"]),
            default: Value::Choice("forecast"),
            example: "forecast",
        },
        Param {
            name: "window",
            summary: "time over which headroom and peak look back",
            unit: "s",
            kind: ParamKind::Duration { min: 0.1, max: 3600.0, can_be_off: false },
            default: Value::Duration(60.0),
            example: "60s",
        },
        Param {
            name: "sample_every",
            summary: "spacing of the samples that headroom and ema use",
            unit: "s",
            kind: ParamKind::Duration { min: 0.0, max: 600.0, can_be_off: false },
            default: Value::Duration(10.0),
            example: "10s",
        },
        SLOPE_WEIGHT,
        HORIZON,
        FADE,
        TEMPERATURE,
    ],
};

/// Weight of the newest slope; shared with `adaptive`.
pub(super) const SLOPE_WEIGHT: Param = Param {
    name: "slope_weight",
    summary: "weight of the newest slope of the load in its average",
    unit: "fraction",
    kind: ParamKind::Float { min: 0.01, max: 1.0 },
    default: Value::Float(0.6),
    example: "0.6",
};
/// How far ahead the slope is followed; shared with `adaptive`.
pub(super) const HORIZON: Param = Param {
    name: "horizon",
    summary: "how far ahead the slope of the load is followed; off: half the mean interval of reports, at most 2 s",
    unit: "s",
    kind: ParamKind::Duration { min: 0.0, max: 60.0, can_be_off: true },
    default: Value::Off,
    example: "500ms",
};
/// How a slope fades; shared with `adaptive`.
pub(super) const FADE: Param = Param {
    name: "fade",
    summary: "time constant with which a slope fades while no report comes",
    unit: "s",
    kind: ParamKind::Duration { min: 0.01, max: 600.0, can_be_off: false },
    default: Value::Duration(2.0),
    example: "2s",
};
/// How near-ties are spread; shared with `adaptive`.
pub(super) const TEMPERATURE: Param = Param {
    name: "temperature",
    summary: "difference of forecast load at which an endpoint is chosen 1/e as often as the best (softmax)",
    unit: "load",
    kind: ParamKind::Float { min: 0.0, max: 1.0 },
    default: Value::Float(0.02),
    example: "0.02",
};

/// Most samples kept for the peak of a window.
const MAX_SAMPLES: usize = 4096;

#[derive(Debug, Default)]
struct Seen {
    forecast: Forecast,
    sampled: Option<(Instant, f64)>,
    slope: f64,
    /// Samples that may still become the largest of the window: strictly falling loads, oldest first, each at its last time.
    peaks: VecDeque<(Instant, f64)>,
}

/// The picker.
#[derive(Debug)]
pub struct FastestRecovery {
    form: &'static str,
    window_s: f64,
    sample_every_s: f64,
    temperature: f64,
    cfg: ForecastConfig,
    seen: PerEndpoint<Seen>,
}

impl FastestRecovery {
    /// A picker with these parameters for a pool whose endpoints reject above `limit`.
    pub fn new(params: &Params, limit: f64) -> Self {
        Self {
            form: params.choice("form"),
            window_s: params.float("window"),
            sample_every_s: params.float("sample_every"),
            temperature: params.float("temperature"),
            cfg: forecast_config(params, limit),
            seen: PerEndpoint::default(),
        }
    }

    /// The recovery rate in load per second; for `forecast` the headroom one horizon ahead.
    fn recovery(&self, now: Instant, id: EndpointId, load: f64, reported: bool) -> f64 {
        let Some(seen) = self.seen.get(id).filter(|_| reported) else { return self.cfg.limit - load };
        match self.form {
            "headroom" => (self.cfg.limit - seen.sampled.map_or(load, |(_, l)| l)) / self.window_s,
            "ema" => -seen.slope,
            "peak" => seen.peaks.front().map_or(0.0, |&(at, peak)| {
                let newest = seen.peaks.back().map_or(peak, |&(_, l)| l);
                (peak - newest) / now.secs_since(at).max(1e-3)
            }),
            _ => seen.forecast.headroom_at(&self.cfg, now, load),
        }
    }

    fn on_report(&mut self, id: EndpointId, at: Instant, load: f64, own: f64) {
        let (cfg, window_s, every_s) = (self.cfg, self.window_s, self.sample_every_s);
        let seen = self.seen.at(id);
        seen.forecast.on_report(&cfg, at, load, own);
        while seen.peaks.back().is_some_and(|&(_, l)| l <= load) {
            seen.peaks.pop_back();
        }
        seen.peaks.push_back((at, load));
        while seen.peaks.len() > MAX_SAMPLES || seen.peaks.front().is_some_and(|&(t, _)| at.secs_since(t) > window_s) {
            seen.peaks.pop_front();
        }
        match seen.sampled {
            Some((then, _)) if at.secs_since(then) < every_s => {}
            Some((then, was)) => {
                let slope = (load - was) / at.secs_since(then).max(1e-3);
                seen.slope = cfg.slope_weight * slope + (1.0 - cfg.slope_weight) * seen.slope;
                seen.sampled = Some((at, load));
            }
            None => seen.sampled = Some((at, load)),
        }
    }
}

/// The forecast settings in `params`.
pub(super) fn forecast_config(params: &Params, limit: f64) -> ForecastConfig {
    ForecastConfig {
        limit,
        slope_weight: params.float("slope_weight"),
        horizon_s: params.seconds("horizon"),
        fade_s: params.float("fade"),
    }
}

/// Mean of the loads that usable endpoints report, or `None` if nobody does.
pub(super) fn mean_load(now: Instant, usable: &Usable<'_>) -> Option<f64> {
    let loads = usable.ids().iter().filter_map(|&id| usable.endpoints.load_at(id, now));
    let (sum, n) = loads.fold((0.0, 0u32), |(s, n), l| (s + l, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

/// Fewest in flight per weight: what is left of a load-based rule when nobody reports a load.
pub(super) fn by_in_flight(cx: &mut Cx<'_>, usable: &Usable<'_>) -> Option<Pick> {
    let mut lowest = Lowest::new();
    for e in usable.iter() {
        lowest.offer(cx, e.id, f64::from(e.in_flight) / e.weight, 0.0);
    }
    lowest.take().map(|id| Pick::of(id, "degraded"))
}

/// One of the candidates with probability proportional to `exp(-(score - lowest) / temperature)`.
pub(super) fn softmin(
    cx: &mut Cx<'_>,
    scores: impl Iterator<Item = (EndpointId, f64)> + Clone,
    temperature: f64,
) -> Option<EndpointId> {
    let best = scores.clone().map(|(_, s)| s).fold(f64::INFINITY, f64::min);
    let weight =
        |s: f64| if temperature > 0.0 { libm::exp((best - s) / temperature) } else { f64::from(u8::from(s <= best)) };
    let total: f64 = scores.clone().map(|(_, s)| weight(s)).sum();
    let mut left = cx.rng.unit() * total;
    let mut last = None;
    for (id, s) in scores {
        left -= weight(s);
        last = Some(id);
        if left < 0.0 {
            break;
        }
    }
    last
}

impl Picker for FastestRecovery {
    fn pick(&mut self, cx: &mut Cx<'_>, _req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        let Some(mean) = mean_load(cx.now, usable) else { return by_in_flight(cx, usable) };
        let now = cx.now;
        let rate = |id: EndpointId| {
            let load = usable.endpoints.load_at(id, now);
            self.recovery(now, id, load.unwrap_or(mean), load.is_some())
        };
        if self.form == "forecast" {
            usable.ids().iter().for_each(|&id| cx.note(id, -rate(id)));
            let id = softmin(cx, usable.ids().iter().map(|&id| (id, -rate(id))), self.temperature)?;
            return Some(Pick::of(id, self.form));
        }
        let mut lowest = Lowest::new();
        for &id in usable.ids() {
            lowest.offer(cx, id, -rate(id), 0.0);
        }
        lowest.take().map(|id| Pick::of(id, self.form))
    }

    fn on_event(&mut self, _now: Instant, id: EndpointId, event: &EndpointEvent<'_>, endpoints: &Endpoints) {
        match event {
            EndpointEvent::Added { .. } | EndpointEvent::Removed => *self.seen.at(id) = Seen::default(),
            EndpointEvent::Reported(report) => {
                let signal = &endpoints.loads[id.index()];
                if let Some(load) = report.load {
                    self.on_report(id, report.sampled_at, load, signal.own_load());
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> Instant {
        Instant::from_secs_f64(s)
    }
    fn picker(form: &'static str) -> FastestRecovery {
        let mut params = Params::defaults(&DESCRIPTOR);
        params.set("form", Value::Choice(form)).unwrap();
        FastestRecovery::new(&params, 0.9)
    }

    #[test]
    fn headroom_is_distance_to_the_limit_per_window() {
        let mut p = picker("headroom");
        p.on_report(EndpointId(0), at(0.0), 0.3, 0.0);
        assert!((p.recovery(at(1.0), EndpointId(0), 0.3, true) - 0.6 / 60.0).abs() < 1e-12);
    }

    #[test]
    fn ema_weighs_the_newest_slope_by_60_percent() {
        let mut p = picker("ema");
        for (t, load) in [(0.0, 0.5), (10.0, 0.6), (15.0, 0.1), (20.0, 0.4)] {
            p.on_report(EndpointId(0), at(t), load, 0.0);
        }
        // Samples at 0, 10 and 20 s: slopes 0.01 and -0.02 per second; the one at 15 s is between samples.
        let expected = 0.6 * -0.02 + 0.4 * (0.6 * 0.01);
        assert!((p.recovery(at(20.0), EndpointId(0), 0.4, true) + expected).abs() < 1e-12);
    }

    #[test]
    fn peak_measures_from_the_largest_load_in_the_window() {
        let mut p = picker("peak");
        for (t, load) in [(0.0, 0.95), (50.0, 0.8), (55.0, 0.5), (61.0, 0.4)] {
            p.on_report(EndpointId(0), at(t), load, 0.0);
        }
        let expected = (0.8 - 0.4) / 11.0;
        assert!((p.recovery(at(61.0), EndpointId(0), 0.4, true) - expected).abs() < 1e-12);
    }
}
