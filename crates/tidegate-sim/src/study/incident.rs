//! A day of incidents in which nobody is really down: the models behind the figures for false trips.
//!
//! `grey` and `churn` were written after the last change of the breaker; the others it was tuned on, or changed after a look at. Everything that is random is drawn per seed. In
//! `deploy` an endpoint is down for two seconds, and opening is right within them.

use tidegate_core::rng::Rng;
use tidegate_core::time::Instant;

use super::lab::{Act, Condition, Failing, Shape};

/// Stream of a seed for scripts.
const SCRIPT: u64 = 14;

/// A model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Model {
    Pulse,
    MuxReset,
    Background,
    Deploy,
    ClientWaves,
    LongPool,
    SlowStart,
    Pause,
    GcStorm,
    Network,
    Uneven,
    Mixed,
    Grey,
    Churn,
}

impl Model {
    pub(super) const ALL: [Self; 14] = [
        Self::Pulse,
        Self::MuxReset,
        Self::Background,
        Self::Deploy,
        Self::ClientWaves,
        Self::LongPool,
        Self::SlowStart,
        Self::Pause,
        Self::GcStorm,
        Self::Network,
        Self::Uneven,
        Self::Grey,
        Self::Churn,
        Self::Mixed,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pulse => "pulse",
            Self::MuxReset => "mux_reset",
            Self::Background => "background",
            Self::Deploy => "deploy",
            Self::ClientWaves => "client_waves",
            Self::LongPool => "long_pool",
            Self::SlowStart => "slow_start",
            Self::Pause => "pause",
            Self::GcStorm => "gc_storm",
            Self::Network => "network",
            Self::Uneven => "uneven",
            Self::Grey => "grey *",
            Self::Churn => "churn *",
            Self::Mixed => "mixed",
        }
    }
}

/// What a model makes of one seed.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) shape: Shape,
    pub(super) connections: u32,
    pub(super) sticky: bool,
    /// In order of time.
    pub(super) acts: Vec<(Instant, Act)>,
}

/// A plan in the making.
struct Draft {
    rng: Rng,
    n: u32,
    day_s: f64,
    rate: f64,
    base: f64,
    acts: Vec<(f64, Act)>,
}

/// The plan of `model` for `n` endpoints over `day_s` seconds.
pub(super) fn plan(model: Model, n: u32, day_s: f64, seed: u64) -> Plan {
    let mut rng = Rng::stream(seed.wrapping_mul(64) + model as u64, SCRIPT);
    let rate = 0.5 * libm::exp2(4.0 * rng.unit());
    let mut d = Draft { rng, n, day_s, rate, base: 0.01, acts: Vec::new() };
    let (mut shape, mut connections, mut sticky) = (Shape::Fast, 16, false);
    match model {
        Model::Pulse => (d.rate, shape) = (0.2, Shape::Fast),
        Model::MuxReset => (connections, shape) = (4, if d.rng.below(2) == 0 { Shape::Stream } else { Shape::Mid }),
        Model::Background => d.base = d.rng.uniform(0.01, 0.1),
        Model::Deploy | Model::Network => {}
        Model::ClientWaves => sticky = d.rng.below(2) == 0,
        Model::LongPool => (d.rate, shape) = (if d.rng.below(2) == 0 { 2.0 } else { 0.2 }, Shape::Long),
        Model::SlowStart => d.rate = 0.2,
        Model::Pause | Model::GcStorm => shape = if d.rng.below(2) == 0 { Shape::Fast } else { Shape::Mid },
        Model::Uneven => shape = Shape::Mid,
        Model::Grey => shape = if d.rng.below(2) == 0 { Shape::Mid } else { Shape::Stream },
        Model::Churn => connections = 8,
        Model::Mixed => {
            shape = [Shape::Fast, Shape::Mid, Shape::Stream, Shape::Long][d.rng.below(4)];
            if shape == Shape::Long {
                d.rate = d.rate.min(2.0);
            }
            d.base = d.rng.uniform(0.005, 0.05);
        }
    }
    d.at(0.0, Act::Rate(d.rate));
    d.at(0.0, Act::Set(None, d.well()));
    d.fill(model);
    d.acts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let acts = d.acts.into_iter().map(|(s, act)| (Instant::from_secs_f64(s), act)).collect();
    Plan { shape, connections, sticky, acts }
}

impl Draft {
    fn fill(&mut self, model: Model) {
        match model {
            Model::Pulse => self.times(24, |d, t| d.pulse(t, true)),
            Model::MuxReset => self.times(24 * self.n.min(16), Self::mux_reset),
            Model::Background => self.times(24, Self::spell),
            Model::Deploy => self.times(12, |d, t| (0..d.n).for_each(|k| d.restart(t + 10.0 * f64::from(k), k))),
            Model::ClientWaves => {
                self.times(24, Self::wave);
                self.times(24, Self::poison);
            }
            Model::LongPool => self.times(24, Self::blip),
            Model::SlowStart => self.times(24, |d, t| {
                d.pulse(t, false);
                d.slow_start(t);
            }),
            Model::Pause => self.times(480, Self::pause),
            Model::GcStorm => self.times(96, Self::gc_storm),
            Model::Network => self.times(48, Self::network),
            Model::Uneven => {
                for k in 0..self.n {
                    let (slow, fail) = (self.rng.uniform(1.0, 4.0), self.rng.uniform(0.002, 0.05));
                    self.at(0.001, Act::Set(Some(k), Condition { slow, ..Condition::failing(fail, Failing::Mixed) }));
                }
                self.times(24, |d, t| {
                    let k = d.one();
                    d.at(t, Act::Reset(k, true));
                });
            }
            Model::Grey => self.times(12, Self::grey),
            Model::Churn => {
                self.times(1440, |d, t| {
                    let k = d.one();
                    d.at(t, Act::Reset(k, false));
                });
                self.times(24, Self::surge);
            }
            Model::Mixed => self.times(290, Self::any),
        }
    }

    fn at(&mut self, s: f64, act: Act) {
        self.acts.push((s, act));
    }

    /// About `a_day` times a day, at any time but the first minute.
    fn times(&mut self, a_day: u32, f: impl Fn(&mut Self, f64)) {
        let count = (f64::from(a_day) * self.day_s / 86_400.0).ceil() as u32;
        for _ in 0..count {
            let t = self.rng.uniform(60.0, self.day_s.max(120.0));
            f(self, t);
        }
    }

    fn well(&self) -> Condition {
        Condition::failing(self.base, Failing::Status)
    }

    fn one(&mut self) -> u32 {
        self.rng.below(self.n as usize) as u32
    }

    /// Everybody, or one.
    fn all_or_one(&mut self, all: f64) -> Option<u32> {
        let k = self.one();
        (self.rng.unit() >= all).then_some(k)
    }

    /// `what` from `t` for `s` seconds.
    fn spell_of(&mut self, t: f64, s: f64, who: Option<u32>, what: Condition) {
        self.at(t, Act::Set(who, what));
        self.at(t + s, Act::Set(who, self.well()));
    }

    fn pulse(&mut self, t: f64, fails: bool) {
        self.at(t, Act::Rate(300.0));
        self.at(t + 10.0, Act::Rate(self.rate));
        if !fails {
            return;
        }
        let (share, s) = (self.rng.uniform(0.2, 0.6), self.rng.uniform(0.05, 0.3));
        let bad = Condition::failing(share, Failing::Mixed);
        if self.rng.unit() < 0.7 {
            self.spell_of(t, s, None, bad);
        } else {
            for _ in 0..=self.rng.below(2) {
                let k = self.one();
                self.spell_of(t, s, Some(k), bad);
            }
        }
        if self.rng.unit() < 0.3 {
            let (k, when) = (self.one(), t + self.rng.uniform(0.5, 9.5));
            self.at(when, Act::Reset(k, false));
        }
        self.spell_of(t - 30.0, 8.0, None, Condition::failing(0.5, Failing::Stale));
    }

    fn mux_reset(&mut self, t: f64) {
        let (k, all, s) = (self.one(), self.rng.unit() < 0.3, self.rng.uniform(0.02, 0.15));
        self.spell_of(t, s, Some(k), Condition { refuse: 0.5, ..self.well() });
        self.at(t + 0.000_001, Act::Reset(k, all));
    }

    fn spell(&mut self, t: f64) {
        let (more, s, who) = (self.rng.uniform(0.05, 0.15), self.rng.uniform(2.0, 20.0), self.all_or_one(0.5));
        self.spell_of(t, s, who, Condition::failing(self.base + more, Failing::Mixed));
    }

    fn restart(&mut self, t: f64, k: u32) {
        self.spell_of(t, 2.0, Some(k), Condition { refuse: 1.0, unwell: true, down: true, ..self.well() });
    }

    fn wave(&mut self, t: f64) {
        let failing = if self.rng.below(2) == 0 { Failing::Client } else { Failing::Throttled };
        let (share, s) = (self.rng.uniform(0.5, 0.95), self.rng.uniform(5.0, 60.0));
        self.spell_of(t, s, None, Condition::failing(share, failing));
    }

    fn poison(&mut self, t: f64) {
        let (tenant, s) = (1 + self.rng.below(8) as u64, self.rng.uniform(10.0, 60.0));
        self.at(t, Act::Poison(Some(tenant)));
        self.at(t + s, Act::Poison(None));
    }

    fn blip(&mut self, t: f64) {
        // What is in flight dies within the blip, or the failures surface later.
        let (k, s) = (self.one(), self.rng.uniform(0.5, 3.0));
        let within_s = if self.rng.below(2) == 0 { s } else { 30.0 };
        self.at(t, Act::Doom(k, within_s));
    }

    fn slow_start(&mut self, t: f64) {
        let (slow, share) = (self.rng.uniform(3.0, 10.0), self.rng.uniform(0.0, 0.1));
        let (s, who) = (self.rng.uniform(2.0, 20.0), self.all_or_one(0.5));
        self.spell_of(t, s, who, Condition { slow, ..Condition::failing(share, Failing::TimeOut) });
    }

    fn pause(&mut self, t: f64) {
        let (k, s) = (self.one(), self.rng.uniform(0.3, 1.5));
        self.spell_of(t, s, Some(k), Condition { paused_until: at(t + s), unwell: true, ..self.well() });
    }

    /// Collectors run on one endpoint after the other, each followed by a second of refusals.
    fn gc_storm(&mut self, t: f64) {
        for k in 0..self.n {
            let (start, s) = (t + self.rng.uniform(0.0, 2.0), self.rng.uniform(0.1, 0.6));
            self.at(start, Act::Set(Some(k), Condition { paused_until: at(start + s), ..self.well() }));
            let share = self.rng.uniform(0.02, 0.2);
            self.spell_of(start + s, 1.0, Some(k), Condition::failing(share, Failing::Status));
        }
    }

    /// Our own network: nobody can be reached, or few can.
    fn network(&mut self, t: f64) {
        let (refuse, s) = (self.rng.uniform(0.3, 0.95), self.rng.uniform(0.05, 0.8));
        self.spell_of(t, s, None, Condition { refuse, ..self.well() });
        for k in 0..self.n {
            self.at(t + 0.000_001, Act::Reset(k, true));
        }
    }

    /// One endpoint after the other is short of memory: it is slower, some requests fail, and it answers still.
    fn grey(&mut self, t: f64) {
        let mut start = t;
        for k in 0..self.n {
            let (s, slow) = (self.rng.uniform(30.0, 120.0), self.rng.uniform(1.2, 2.5));
            let share = self.rng.uniform(0.03, 0.12);
            self.spell_of(start, s, Some(k), Condition { slow, ..Condition::failing(share, Failing::Mixed) });
            start += s;
        }
    }

    /// Traffic comes back at five times the rate after a quiet half minute, on connections the engines have closed, and some requests find no place.
    fn surge(&mut self, t: f64) {
        self.at(t - 30.0, Act::Rate(0.05));
        self.at(t, Act::Rate((5.0 * self.rate).min(100.0)));
        self.at(t + 20.0, Act::Rate(self.rate));
        self.spell_of(t, 1.0, None, Condition::failing(0.4, Failing::Stale));
        let share = self.rng.uniform(0.1, 0.5);
        self.spell_of(t + 1.0, 10.0, None, Condition::failing(share, Failing::Throttled));
    }

    fn any(&mut self, t: f64) {
        match self.rng.below(10) {
            0 => self.pulse_of(t),
            1 | 2 => self.mux_reset(t),
            3 | 4 => self.spell(t),
            5 => {
                let k = self.one();
                self.restart(t, k);
            }
            6 => self.wave(t),
            7 => self.poison(t),
            8 => self.slow_start(t),
            _ => self.pause(t),
        }
    }

    /// A pulse of ten times the rate, with its failures.
    fn pulse_of(&mut self, t: f64) {
        let rate = (10.0 * self.rate).min(100.0);
        self.at(t, Act::Rate(rate));
        self.at(t + 10.0, Act::Rate(self.rate));
        let (share, s) = (self.rng.uniform(0.2, 0.6), self.rng.uniform(0.05, 0.3));
        let who = self.all_or_one(0.7);
        self.spell_of(t, s, who, Condition::failing(share, Failing::Mixed));
    }
}

fn at(s: f64) -> Instant {
    Instant::from_secs_f64(s)
}
