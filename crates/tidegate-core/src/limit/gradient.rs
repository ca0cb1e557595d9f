//! An adaptive limit on requests in flight, from how much longer they take than they need to.
//!
//! After Envoy's adaptive concurrency and Netflix' Gradient2: once per window, `g = clamp(tolerance x base / rtt, 0.5, 1)`, `L' = L g +
//! sqrt(L g)`, smoothed by 0.2; `rtt` is the window's median, `base` the response time without a queue. What is different, and why:
//!
//! - `base` rises only on samples that started while at most `probe_limit` requests were in flight, so samples under load, or from before
//!   a change of the limit, can never ratchet it up (envoy#11579), and a degradation under load does not become the new normal.
//! - `probe_limit` and `min_limit` are two numbers: softer probes do not raise the floor in overload (envoy#46532).
//! - A window in which requests were dropped lowers the limit by a tenth, also when all were and no response time is known
//!   (go-concurrency-limits#141).
//! - It does not grow while less than half of it is used, and a cancelled request is no sample.
//!
//! Where the limit stays on its floor without a quiet sample, one window in six is limited to `probe_limit`. Pure numbers: it neither
//! counts nor holds anything, so nothing can leak. O(1) per sample, O(n log n) of at most 128 samples per window.

use crate::time::{Duration, Instant};
use alloc::vec::Vec;

/// Samples of a window that are kept for its median.
const MAX_SAMPLES: usize = 128;
/// Samples a window needs to be judged.
const MIN_SAMPLES: usize = 10;
/// Weight of a window's result.
const SMOOTHING: f64 = 0.2;
/// Factor of a window with drops.
const BACK_OFF: f64 = 0.9;
/// Weight of a quiet window that is slower than the base.
const BASE_RISE: f64 = 0.1;
/// Windows on the floor without a quiet sample before one is probed.
const PROBE_AFTER: u32 = 5;

/// What a [`Gradient`] is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientConfig {
    /// The limit at the start.
    pub initial: f64,
    /// The limit in overload, at least (at least 1).
    pub min_limit: f64,
    /// The limit at most.
    pub max_limit: f64,
    /// In flight up to which a sample shows the response time without a queue (at least 1).
    pub probe_limit: f64,
    /// Response times up to this factor over the base are no queue (at least 1).
    pub tolerance: f64,
    /// Length of a window.
    pub window: Duration,
}

impl Default for GradientConfig {
    fn default() -> Self {
        Self {
            initial: 20.0,
            min_limit: 3.0,
            max_limit: 1000.0,
            probe_limit: 4.0,
            tolerance: 1.5,
            window: Duration::from_secs(1),
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Gradient {
    cfg: GradientConfig,
    limit: f64,
    base_s: Option<f64>,
    opened: Option<Instant>,
    samples: Vec<f64>,
    quiet: Vec<f64>,
    dropped: u32,
    most_in_flight: u32,
    on_floor: u32,
    probing: bool,
}

impl Gradient {
    /// Starts at `cfg.initial`, knowing nothing.
    pub fn new(cfg: GradientConfig) -> Self {
        let limit = cfg.initial.max(1.0);
        Self {
            cfg,
            limit,
            base_s: None,
            opened: None,
            samples: Vec::new(),
            quiet: Vec::new(),
            dropped: 0,
            most_in_flight: 0,
            on_floor: 0,
            probing: false,
        }
    }

    /// Requests that may be in flight at once, at least 1.
    pub fn limit(&self) -> u32 {
        let limit = if self.probing { self.limit.min(self.cfg.probe_limit) } else { self.limit };
        limit.max(1.0) as u32
    }

    /// The response time without a queue, as far as known.
    pub fn base(&self) -> Option<Duration> {
        self.base_s.map(crate::time::duration_from_secs)
    }

    /// A request ended. `in_flight`: how many were in flight when it started, itself included. `dropped`: it was refused by the engine or
    /// timed out; its `rtt` is then no response time. Cancelled requests are not told.
    pub fn on_sample(&mut self, now: Instant, rtt: Duration, in_flight: u32, dropped: bool) {
        let opened = *self.opened.get_or_insert(now);
        self.most_in_flight = self.most_in_flight.max(in_flight);
        if dropped {
            self.dropped = self.dropped.saturating_add(1);
        } else {
            let is_quiet = f64::from(in_flight) <= self.cfg.probe_limit.max(1.0);
            for kept in [Some(&mut self.samples), is_quiet.then_some(&mut self.quiet)].into_iter().flatten() {
                if kept.len() < MAX_SAMPLES {
                    kept.push(rtt.as_secs_f64());
                }
            }
        }
        let seen = self.samples.len() + self.dropped as usize;
        if now.since(opened) >= self.cfg.window && seen >= MIN_SAMPLES.min(self.limit.max(1.0) as usize) {
            self.judge();
            self.opened = Some(now);
        }
    }

    fn judge(&mut self) {
        let rtt = median(&mut self.samples);
        let quiet = median(&mut self.quiet);
        self.learn_base(rtt, quiet);
        if self.dropped > 0 {
            self.limit *= BACK_OFF;
        } else if let (Some(rtt), Some(base)) = (rtt, self.base_s) {
            let g = (self.cfg.tolerance.max(1.0) * base / rtt.max(1e-9)).clamp(0.5, 1.0);
            let wanted = self.limit * g + libm::sqrt(self.limit * g);
            let is_used = f64::from(self.most_in_flight) * 2.0 >= self.limit;
            if (wanted < self.limit || is_used) && !self.probing {
                self.limit += SMOOTHING * (wanted - self.limit);
            }
        }
        let floor = self.cfg.min_limit.max(1.0);
        self.limit = self.limit.clamp(floor, self.cfg.max_limit.max(floor));
        let needs_probe =
            quiet.is_none() && self.dropped == 0 && self.limit <= floor * 1.5 && floor > self.cfg.probe_limit;
        self.on_floor = if needs_probe { self.on_floor + 1 } else { 0 };
        self.probing = self.on_floor > PROBE_AFTER;
        self.dropped = 0;
        self.most_in_flight = 0;
        self.samples.clear();
        self.quiet.clear();
    }

    /// Down at once, whoever shows it; up slowly, and only by quiet samples.
    fn learn_base(&mut self, rtt: Option<f64>, quiet: Option<f64>) {
        let Some(fastest) = rtt.into_iter().chain(quiet).reduce(f64::min) else { return };
        let base = self.base_s.map_or(fastest, |base| base.min(fastest));
        let risen = quiet.filter(|q| *q > base).map_or(base, |q| base + BASE_RISE * (q - base));
        self.base_s = Some(risen);
    }
}

fn median(samples: &mut [f64]) -> Option<f64> {
    let middle = samples.len() / 2;
    (!samples.is_empty()).then(|| *samples.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine that serves `width` at once in `service_s`; beyond it response times grow in proportion.
    fn run(g: &mut Gradient, from_s: f64, secs: f64, width: f64, service_s: f64, offered: u32) -> f64 {
        let mut now_s = from_s;
        let mut sum = (0.0, 0u32);
        while now_s < from_s + secs {
            let in_flight = g.limit().min(offered);
            let rtt = service_s * (f64::from(in_flight) / width).max(1.0);
            for _ in 0..in_flight {
                now_s += rtt / f64::from(in_flight);
                g.on_sample(Instant::from_secs_f64(now_s), crate::time::duration_from_secs(rtt), in_flight, false);
            }
            sum = (sum.0 + f64::from(in_flight), sum.1 + 1);
        }
        sum.0 / f64::from(sum.1)
    }

    #[test]
    fn it_finds_what_an_engine_can_hold() {
        let mut g = Gradient::new(GradientConfig::default());
        run(&mut g, 0.0, 10.0, 50.0, 0.05, 2);
        run(&mut g, 10.0, 200.0, 50.0, 0.05, 1000);
        assert!((50..=130).contains(&g.limit()), "{}", g.limit());
    }

    #[test]
    fn load_never_ratchets_the_base_up() {
        let mut g = Gradient::new(GradientConfig::default());
        run(&mut g, 0.0, 10.0, 50.0, 0.05, 2);
        let base = g.base();
        run(&mut g, 10.0, 3600.0, 50.0, 0.05, 1000);
        assert_eq!(g.base(), base, "an hour of full load");
        run(&mut g, 4000.0, 60.0, 5.0, 0.5, 1000);
        assert!(g.base() < Some(Duration::from_millis(500)), "nor does an engine that has become slow under load");
    }

    #[test]
    fn a_softer_probe_does_not_raise_the_floor_in_overload() {
        let floor_with = |probe_limit: f64| {
            let mut g = Gradient::new(GradientConfig { probe_limit, ..GradientConfig::default() });
            for k in 0..2000 {
                g.on_sample(Instant::from_secs_f64(f64::from(k) * 0.1), Duration::from_secs(1), 20, true);
            }
            g.limit()
        };
        assert_eq!((floor_with(2.0), floor_with(20.0)), (3, 3));
    }

    #[test]
    fn when_every_call_is_dropped_the_limit_falls() {
        let mut g = Gradient::new(GradientConfig::default());
        for k in 0..600 {
            g.on_sample(Instant::from_secs_f64(f64::from(k) * 0.1), Duration::ZERO, 20, true);
        }
        assert_eq!(g.limit(), 3);
    }

    #[test]
    fn an_idle_gateway_does_not_grow_its_limit() {
        let mut g = Gradient::new(GradientConfig::default());
        run(&mut g, 0.0, 600.0, 50.0, 0.05, 3);
        assert_eq!(g.limit(), 20);
    }

    #[test]
    fn an_engine_that_became_slower_for_good_is_learned_by_probing() {
        let cfg = GradientConfig { min_limit: 10.0, ..GradientConfig::default() };
        let mut g = Gradient::new(cfg);
        run(&mut g, 0.0, 10.0, 50.0, 0.05, 2);
        run(&mut g, 10.0, 2000.0, 50.0, 0.5, 1000);
        assert!(g.base() > Some(Duration::from_millis(300)) && g.limit() > 20, "{:?} {}", g.base(), g.limit());
    }
}
