//! `detection`: how long until a breaker sees that an endpoint is down, and what clients see until then.
//!
//! One of eight endpoints fails from a moment on, after a history at the same rate. *cut*: its weight is lowered, or it opens; *open*: it
//! opens. Failures that clients see are counted from the onset until it opens, once without and once with retries.

use std::num::NonZeroUsize;

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};
use tidegate_core::breaker::Level;
use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant, duration_from_secs};

use super::jobs;
use super::lab::{Act, Condition, Failing, Lab, Setup, Shape};
use super::rows::{BREAKERS, pool};
use super::table::{Cell, Grid, quantile};
use crate::batch::Seeds;

/// Endpoints of the pool, and the one that fails.
const ENDPOINTS: u32 = 8;
const VICTIM: u32 = 3;
/// Stream of a seed for the moment of onset.
const ONSET: u64 = 15;
/// Requests per second and endpoint, and how long to wait for an opening, seconds.
const RATES: [(f64, f64); 4] = [(300.0, 12.0), (20.0, 60.0), (2.0, 300.0), (0.2, 1800.0)];

/// A way to be down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Refuse,
    HalfDead,
    Sixty,
    ThirtyFive,
    Hang,
    Slow,
    Flapping,
}

impl Fault {
    const ALL: [Self; 7] =
        [Self::Refuse, Self::HalfDead, Self::Sixty, Self::ThirtyFive, Self::Hang, Self::Slow, Self::Flapping];

    const fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::HalfDead => "half-dead",
            Self::Sixty => "60 % fail",
            Self::ThirtyFive => "35 % fail",
            Self::Hang => "hang",
            Self::Slow => "10x slow",
            Self::Flapping => "flapping 5 s",
        }
    }

    fn condition(self) -> Condition {
        let base = Condition { down: true, ..Condition::default() };
        let failing = |fail| Condition { down: true, ..Condition::failing(fail, Failing::Status) };
        match self {
            Self::Refuse | Self::Flapping => Condition { refuse: 1.0, unwell: true, ..base },
            Self::HalfDead => failing(1.0),
            Self::Sixty => failing(0.6),
            Self::ThirtyFive => failing(0.35),
            Self::Hang => Condition { paused_until: Instant::FAR_FUTURE, ..base },
            Self::Slow => Condition { slow: 10.0, ..base },
        }
    }
}

/// The study as written.
#[derive(Clone, Debug)]
pub struct Detection {
    /// Requests per second and endpoint from which on rates are run.
    max_rate: f64,
    classic: bool,
}

impl Section for Detection {
    const TABLE: &'static Table = &Table {
        place: "study.detection",
        summary: "Time until an endpoint that is down gets less, and nothing.",
        keys: &[
            Key {
                name: "max_rate",
                kind: Kind::Number { min: 0.2, max: 300.0 },
                absent: Absent::Default("300"),
                summary: "Highest rate per endpoint that is run, of 300, 20, 2 and 0.2 per second.",
                example: "20",
            },
            Key {
                name: "classic",
                kind: Kind::Bool,
                absent: Absent::Default("true"),
                summary: "Whether the classic breakers are run beside the adaptive one.",
                example: "false",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { max_rate: r.number("max_rate"), classic: r.bool("classic") }
    }
}

/// What one run found; seconds from the onset.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    requests: u64,
    cut_s: Option<f64>,
    open_s: Option<f64>,
    failed: u64,
    failed_with_retry: u64,
}

impl Detection {
    /// One grid per rate.
    pub(super) fn run(
        &self,
        seeds: Seeds,
        threads: NonZeroUsize,
        tick: &mut dyn FnMut(usize, usize, u64),
    ) -> Vec<Grid> {
        let rates: Vec<(f64, f64)> = RATES.into_iter().filter(|(rate, _)| *rate <= self.max_rate).collect();
        let breakers = if self.classic { BREAKERS.len() } else { 1 };
        let (per_row, per_fault) = (seeds.count as usize, breakers * seeds.count as usize);
        let per_rate = Fault::ALL.len() * per_fault;
        let found = jobs::over(
            rates.len() * per_rate,
            threads,
            |job| {
                let (rate, fault) = (rates[job / per_rate], Fault::ALL[job % per_rate / per_fault]);
                let (breaker, seed) = (job % per_fault / per_row, seeds.first + (job % per_row) as u64);
                let mut found = one(fault, rate, breaker, 1, seed);
                let again = one(fault, rate, breaker, 3, seed);
                found.failed_with_retry = again.failed;
                found.requests += again.requests;
                found
            },
            |done, all, found| tick(done, all, found.requests),
        );
        rates.iter().zip(found.chunks(per_rate)).map(|((rate, _), all)| grid(*rate, breakers, all, per_row)).collect()
    }
}

fn one(fault: Fault, (rate, patience_s): (f64, f64), breaker: usize, attempts: u32, seed: u64) -> Found {
    let setup = Setup {
        pool: pool("random", breaker, attempts),
        endpoints: ENDPOINTS,
        gateways: 1,
        shape: Shape::Fast,
        connections: 16,
        slots: u32::MAX,
        sticky: false,
    };
    let mut lab = Lab::new(&setup, seed);
    lab.act(Act::Rate(rate));
    let mut rng = Rng::stream(seed, ONSET);
    let history_s = (60.0 / rate).max(10.0) + rng.uniform(0.0, 1.0 / rate.min(1.0));
    let onset = Instant::from_secs_f64(history_s);
    lab.run(onset);
    lab.turned.clear();
    let before = lab.counts.clone();
    lab.act(Act::Set(Some(VICTIM), fault.condition()));
    let end = onset + duration_from_secs(patience_s);
    let step = duration_from_secs((0.5 / rate).clamp(0.01, 0.25));
    let (mut down, mut flap_at) = (true, onset + FLAP);
    let opened = |lab: &Lab<'_>| lab.turned.iter().any(|t| t.endpoint == VICTIM && t.to == Level::Open);
    while lab.now < end && !opened(&lab) {
        lab.run(lab.now + step);
        if fault == Fault::Flapping && lab.now >= flap_at {
            down = !down;
            flap_at = flap_at + FLAP;
            let condition = if down { fault.condition() } else { Condition::default() };
            lab.act(Act::Set(Some(VICTIM), condition));
        }
    }
    let first = |levels: &[Level]| {
        let turned = lab.turned.iter().find(|t| t.endpoint == VICTIM && levels.contains(&t.to));
        turned.map(|t| t.at.secs_since(onset))
    };
    Found {
        requests: lab.counts.requests,
        cut_s: first(&[Level::Reduced, Level::Open]),
        open_s: first(&[Level::Open]),
        failed: lab.counts.failed - before.failed,
        failed_with_retry: 0,
    }
}

/// Half a period of flapping.
const FLAP: Duration = Duration::from_millis(2500);

fn grid(rate: f64, breakers: usize, found: &[Found], seeds: usize) -> Grid {
    let title = format!("detection at {rate} requests/s per endpoint, {ENDPOINTS} endpoints, seconds from the onset");
    let head = ["fault", "breaker", "cut p50", "cut p95", "open p50", "open p95", "never %", "failed", "with retry"];
    let mut grid = Grid::new("detection", &title, head.map(str::to_owned).to_vec());
    for (place, runs) in found.chunks(seeds).enumerate() {
        let (fault, breaker) = (Fault::ALL[place / breakers], &BREAKERS[place % breakers]);
        let times = |of: fn(&Found) -> Option<f64>| -> Vec<f64> {
            runs.iter().map(|f| of(f).unwrap_or(f64::INFINITY)).collect()
        };
        let (mut cut, mut open) = (times(|f| f.cut_s), times(|f| f.open_s));
        let never = open.iter().filter(|t| t.is_infinite()).count() as f64 / seeds as f64;
        let mean = |of: fn(&Found) -> u64| runs.iter().map(of).sum::<u64>() as f64 / seeds as f64;
        grid.rows.push(vec![
            Cell::text(if place % breakers == 0 { fault.name() } else { "" }),
            Cell::text(breaker.name),
            Cell::maybe(quantile(&mut cut, 0.5), 2),
            Cell::maybe(quantile(&mut cut, 0.95), 2),
            Cell::maybe(quantile(&mut open, 0.5), 2),
            Cell::maybe(quantile(&mut open, 0.95), 2),
            Cell::number(100.0 * never, 0),
            Cell::number(mean(|f| f.failed), 1),
            Cell::number(mean(|f| f.failed_with_retry), 1),
        ]);
    }
    grid.notes.push(
        "failed: requests whose client saw a failure until it opened, or until nobody waited any longer; mean"
            .to_owned(),
    );
    grid
}
