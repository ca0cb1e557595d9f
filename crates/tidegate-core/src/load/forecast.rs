//! Where a load is going: level, own credit, and a slope that fades with age.
//!
//! notes: algorithms, section 3.1. The slope is taken of the load that is *not* ours, else our own dispatches would look like the
//! endpoint getting worse and the loop would ring. `headroom_at` is `L_max - forecast(t + H)`: with a flat history it is plainly
//! `L_max - L`; with H = 0 picking the largest is least load, with H large it is pure slope.

use crate::time::Instant;

/// How a forecast is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForecastConfig {
    /// Load at which an endpoint rejects, 0..1.
    pub limit: f64,
    /// Weight of the newest slope in its EMA, 0..1.
    pub slope_weight: f64,
    /// Horizon in seconds: how far ahead the slope is followed. `None`: mean age of information, at most 2 s.
    pub horizon_s: Option<f64>,
    /// Time in seconds with which a slope fades when no report comes.
    pub fade_s: f64,
}

/// The forecast of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forecast {
    seen: bool,
    sampled_at: Instant,
    level: f64,
    own: f64,
    slope: f64,
    error: f64,
    interval_s: f64,
}

impl Forecast {
    /// A report of `load` with `own` load of ours in it (requests in flight then, times load per request).
    pub fn on_report(&mut self, cfg: &ForecastConfig, sampled_at: Instant, load: f64, own: f64) {
        if !self.seen {
            (self.seen, self.sampled_at, self.level, self.own) = (true, sampled_at, load, own);
            self.error = 0.05;
            return;
        }
        let dt = sampled_at.secs_since(self.sampled_at);
        if dt <= 0.0 {
            return;
        }
        let expected = self.level + self.slope * dt + (own - self.own);
        self.error = 0.8 * self.error + 0.2 * libm::fabs(load - expected);
        let slope = ((load - own) - (self.level - self.own)) / dt;
        self.slope = cfg.slope_weight * slope + (1.0 - cfg.slope_weight) * self.slope;
        self.interval_s = if self.interval_s > 0.0 { 0.8 * self.interval_s + 0.2 * dt } else { dt };
        (self.sampled_at, self.level, self.own) = (sampled_at, load, own);
    }

    /// Slope of the load that is not ours, per second, as of the last report.
    pub fn slope(&self) -> f64 {
        self.slope
    }

    /// Smoothed error of the one-step forecast, in load.
    pub fn error(&self) -> f64 {
        self.error
    }

    /// The horizon in seconds that is in force.
    pub fn horizon_s(&self, cfg: &ForecastConfig) -> f64 {
        cfg.horizon_s.unwrap_or_else(|| (0.5 * self.interval_s).clamp(0.0, 2.0))
    }

    /// Load expected one horizon after `now`, given the current load with own credit: in 0..1.2.
    pub fn load_at(&self, cfg: &ForecastConfig, now: Instant, current: f64) -> f64 {
        let horizon = self.horizon_s(cfg);
        let slope = self.slope * libm::exp(-now.secs_since(self.sampled_at) / cfg.fade_s);
        (current + slope * horizon).clamp(0.0, 1.2)
    }

    /// Headroom in load expected one horizon after `now`: the limit less the forecast.
    pub fn headroom_at(&self, cfg: &ForecastConfig, now: Instant, current: f64) -> f64 {
        cfg.limit - self.load_at(cfg, now, current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CFG: ForecastConfig = ForecastConfig { limit: 0.9, slope_weight: 0.6, horizon_s: Some(1.0), fade_s: 2.0 };
    fn at(s: f64) -> Instant {
        Instant::from_secs_f64(s)
    }

    #[test]
    fn a_flat_history_gives_plain_headroom() {
        let mut f = Forecast::default();
        for k in 0..10 {
            f.on_report(&CFG, at(f64::from(k)), 0.4, 0.0);
        }
        assert!(libm::fabs(f.headroom_at(&CFG, at(9.0), 0.4) - 0.5) < 1e-12);
    }

    #[test]
    fn a_falling_load_has_more_headroom_than_a_rising_one() {
        let (mut up, mut down) = (Forecast::default(), Forecast::default());
        for k in 0..10 {
            up.on_report(&CFG, at(f64::from(k)), 0.3 + 0.02 * f64::from(k), 0.0);
            down.on_report(&CFG, at(f64::from(k)), 0.66 - 0.02 * f64::from(k), 0.0);
        }
        assert!(down.headroom_at(&CFG, at(9.0), 0.48) > up.headroom_at(&CFG, at(9.0), 0.48) + 0.03);
        let (soon, late) = (up.headroom_at(&CFG, at(9.0), 0.48), up.headroom_at(&CFG, at(19.0), 0.48));
        assert!(late > soon, "a slope nobody confirms fades");
    }

    #[test]
    fn own_requests_are_no_slope() {
        let mut f = Forecast::default();
        for k in 0..10 {
            f.on_report(&CFG, at(f64::from(k)), 0.3 + 0.05 * f64::from(k), 0.05 * f64::from(k));
        }
        assert!(libm::fabs(f.slope()) < 1e-9);
    }
}
