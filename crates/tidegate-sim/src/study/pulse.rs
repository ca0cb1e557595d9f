//! `pulse`: how often a breaker opens an endpoint that is not down.

use std::num::NonZeroUsize;

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};
use tidegate_core::pool::config::AffinityConfig;
use tidegate_core::time::Instant;

use super::incident::{Model, plan};
use super::jobs;
use super::lab::{Counts, Lab, Setup};
use super::rows::{BREAKERS, pool};
use super::table::{Cell, Grid};
use crate::batch::Seeds;

/// The study as written.
#[derive(Clone, Debug)]
pub struct Pulse {
    /// Length of each run, hours.
    hours: f64,
    /// Sizes of fleets.
    fleets: Vec<u32>,
    /// Breakers that are run, the first ones of the list.
    breakers: usize,
}

impl Section for Pulse {
    const TABLE: &'static Table = &Table {
        place: "study.pulse",
        summary: "False trips per endpoint and day, for every model of incidents and breaker.",
        keys: &[
            Key {
                name: "duration",
                kind: Kind::Duration { min: 60.0, max: 8_640_000.0, word: None },
                absent: Absent::Default("24h"),
                summary: "Length of each run.",
                example: "24h",
            },
            Key {
                name: "small",
                kind: Kind::Integer { min: 0, max: 1000, word: None },
                absent: Absent::Default("3"),
                summary: "Endpoints of the small fleet; 0 leaves it out.",
                example: "3",
            },
            Key {
                name: "middle",
                kind: Kind::Integer { min: 0, max: 1000, word: None },
                absent: Absent::Default("8"),
                summary: "Endpoints of the middle fleet; 0 leaves it out.",
                example: "8",
            },
            Key {
                name: "large",
                kind: Kind::Integer { min: 0, max: 1000, word: None },
                absent: Absent::Default("50"),
                summary: "Endpoints of the large fleet; 0 leaves it out.",
                example: "50",
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
        let fleets = ["small", "middle", "large"].map(|name| u32::try_from(r.integer(name)).unwrap_or(0));
        Self {
            hours: r.duration("duration").as_secs_f64() / 3600.0,
            fleets: fleets.into_iter().filter(|&n| n > 0).collect(),
            breakers: if r.bool("classic") { BREAKERS.len() } else { 1 },
        }
    }
}

impl Pulse {
    /// One grid per fleet.
    pub(super) fn run(
        &self,
        seeds: Seeds,
        threads: NonZeroUsize,
        tick: &mut dyn FnMut(usize, usize, u64),
    ) -> Vec<Grid> {
        let per_fleet = Model::ALL.len() * self.breakers * seeds.count as usize;
        let of = |job: usize| {
            let (fleet, rest) = (job / per_fleet, job % per_fleet);
            let (row, seed) = (rest / seeds.count as usize, rest % seeds.count as usize);
            (self.fleets[fleet], row / self.breakers, row % self.breakers, seeds.first + seed as u64)
        };
        let counts = jobs::over(
            per_fleet * self.fleets.len(),
            threads,
            |job| {
                let (n, model, breaker, seed) = of(job);
                self.one(Model::ALL[model], n, breaker, seed)
            },
            |done, all, counts| tick(done, all, counts.requests),
        );
        let days = self.hours / 24.0 * f64::from(seeds.count);
        let fleets = self.fleets.iter().enumerate();
        let of = |f: usize| &counts[f * per_fleet..(f + 1) * per_fleet];
        fleets.map(|(f, &n)| grid(n, days, of(f), (self.breakers, seeds.count as usize))).collect()
    }

    fn one(&self, model: Model, n: u32, breaker: usize, seed: u64) -> Counts {
        let day_s = self.hours * 3600.0;
        let plan = plan(model, n, day_s, seed);
        let mut pool = pool("random", breaker, 1);
        pool.affinity = plan.sticky.then(AffinityConfig::default);
        let setup = Setup {
            pool,
            endpoints: n,
            gateways: 1,
            shape: plan.shape,
            connections: plan.connections,
            slots: u32::MAX,
            sticky: plan.sticky,
        };
        let mut lab = Lab::new(&setup, seed);
        for (at, act) in plan.acts {
            lab.run(at);
            lab.act(act);
        }
        lab.run(Instant::from_secs_f64(day_s));
        lab.counts
    }
}

/// False trips per endpoint and day.
fn grid(n: u32, days: f64, counts: &[Counts], (breakers, seeds): (usize, usize)) -> Grid {
    let endpoint_days = f64::from(n) * days;
    let title = format!("false trips per endpoint-day, {n} endpoints, {endpoint_days:.1} endpoint-days a cell");
    let mut head: Vec<String> = vec!["model".to_owned()];
    head.extend(BREAKERS[..breakers].iter().map(|b| b.name.to_owned()));
    head.extend(["adaptive: cuts".to_owned(), "right trips".to_owned()]);
    let mut grid = Grid::new("false_trips", &title, head);
    let mut worst = (0.0_f64, 0.0_f64);
    for (m, model) in Model::ALL.iter().enumerate() {
        let sum = |breaker: usize, of: fn(&Counts) -> u64| -> f64 {
            let from = (m * breakers + breaker) * seeds;
            counts[from..from + seeds].iter().map(of).sum::<u64>() as f64 / endpoint_days
        };
        let mut row = vec![Cell::text(model.name())];
        row.extend((0..breakers).map(|b| Cell::number(sum(b, |c| c.false_trips), 3)));
        row.extend([Cell::number(sum(0, |c| c.false_cuts), 2), Cell::number(sum(0, |c| c.true_trips), 2)]);
        grid.rows.push(row);
        let adaptive = sum(0, |c| c.false_trips);
        if *model == Model::Mixed { worst.1 = adaptive } else { worst.0 = worst.0.max(adaptive) }
    }
    grid.notes.push(format!(
        "adaptive: at most {:.3} on a calm model (goal 0.1), {:.3} on the mixed one (goal 0.3); * written after it",
        worst.0, worst.1
    ));
    grid
}
