//! `recovery`: how an endpoint that is well again gets its traffic back.
//!
//! One of eight endpoints was down and comes back while its breaker is open. *full* is the time from then until every gateway gives it its
//! whole share; *peak* is the busiest stretch of the mean arrivals there, over its fair share; *refused* are requests that found slots
//! taken, at the endpoint that returns and anywhere, per run, beside those of a control in which nothing was ever down.

use std::num::NonZeroUsize;

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};
use tidegate_core::id::EndpointId;
use tidegate_core::rng::Rng;
use tidegate_core::time::{Instant, duration_from_secs};

use super::jobs;
use super::lab::{Act, Condition, Failing, Lab, Setup, Shape, Watched};
use super::rows::pool;
use super::table::{Cell, Grid, quantile};
use crate::batch::Seeds;
use tidegate_core::pool::config::PoolConfig;

const ENDPOINTS: u32 = 8;
const VICTIM: u32 = 3;
/// Every so many-th seed has a control.
const CONTROL_EVERY: u64 = 8;
/// Stream of a seed for the moment of return.
const RETURN: u64 = 16;

/// One row of the study.
#[derive(Clone, Copy, Debug)]
struct Case {
    group: &'static str,
    policy: &'static str,
    gateways: u32,
    /// Capacity of the endpoints that are left, over the load; `None`: endpoints without a bound, at `rate`.
    headroom: Option<f64>,
    slots: u32,
    shape: Shape,
    /// Requests per second of the whole pool where there is no headroom to take it from.
    rate: f64,
    /// The returning engine is three times as slow at first, fading over so many seconds.
    cold_s: f64,
    /// Share of requests that fail everywhere.
    fail: f64,
    /// How long it is watched, seconds, and in stretches of which length.
    watch_s: f64,
    stretch_s: f64,
}

const CASE: Case = Case {
    group: "warm",
    policy: "random",
    gateways: 1,
    headroom: Some(1.5),
    slots: 40,
    shape: Shape::Fast,
    rate: 0.0,
    cold_s: 0.0,
    fail: 0.0,
    watch_s: 3.0,
    stretch_s: 0.05,
};

/// Followers of shares and chasers of load.
const POLICIES: [&str; 3] = ["random", "round_robin", "least_connections"];

/// Every row.
fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for headroom in [2.0, 1.5] {
        for gateways in [1, 8, 32] {
            all.extend(POLICIES.map(|policy| Case { policy, gateways, headroom: Some(headroom), ..CASE }));
        }
    }
    let background = Case { group: "1 % fail", fail: 0.01, ..CASE };
    all.extend([1, 32].map(|gateways| Case { gateways, ..background }));
    for headroom in [1.1, 1.05] {
        let tight = Case { group: "tight", headroom: Some(headroom), ..CASE };
        all.extend([1, 8].map(|gateways| Case { gateways, ..tight }));
        all.push(Case { policy: "least_connections", ..tight });
    }
    for cold_s in [0.3, 5.0, 30.0] {
        let cold = Case { group: "cold", cold_s, watch_s: 3.0 + 1.5 * cold_s, ..CASE };
        all.extend([cold, Case { policy: "least_connections", ..cold }]);
    }
    let quiet =
        Case { group: "2 rps", gateways: 32, headroom: None, rate: 2.0, watch_s: 1500.0, stretch_s: 20.0, ..CASE };
    all.extend(POLICIES.map(|policy| Case { policy, ..quiet }));
    let each = Case { group: "2 rps each", rate: 2.0 * f64::from(ENDPOINTS), watch_s: 300.0, ..quiet };
    all.extend(POLICIES.map(|policy| Case { policy, ..each }));
    let slow = Case { group: "5-30 s", shape: Shape::Slow, headroom: None, slots: u32::MAX, rate: 8.0, ..CASE };
    all.extend(POLICIES.map(|policy| Case { policy, watch_s: 300.0, stretch_s: 20.0, ..slow }));
    all
}

impl Case {
    /// Requests per second and endpoint.
    fn rate(&self) -> f64 {
        match self.headroom {
            Some(headroom) => {
                let left = f64::from(ENDPOINTS - 1) / f64::from(ENDPOINTS);
                f64::from(self.slots) / self.shape.mean_s() / headroom * left
            }
            None => self.rate / f64::from(ENDPOINTS),
        }
    }
}

/// The study as written.
#[derive(Clone, Debug)]
pub struct Recovery {
    quick: bool,
}

impl Section for Recovery {
    const TABLE: &'static Table = &Table {
        place: "study.recovery",
        summary: "How an endpoint that is well again gets its traffic back.",
        keys: &[Key {
            name: "quick",
            kind: Kind::Bool,
            absent: Absent::Default("false"),
            summary: "Only the first six rows: enough for a look.",
            example: "true",
        }],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { quick: r.bool("quick") }
    }
}

/// What one run found.
#[derive(Clone, Debug, Default)]
struct Found {
    requests: u64,
    /// Seconds until every gateway gives the whole share.
    full_s: Option<f64>,
    /// Every gateway gives the whole share at the end.
    settled: bool,
    /// Requests that found slots taken, at the endpoint that returns and anywhere.
    refused: [u64; 2],
    /// The same where nothing was ever down; of some seeds.
    refused_control: Option<[u64; 2]>,
    /// Arrivals at the returning endpoint, by stretch.
    arrivals: Vec<u32>,
    /// The same of all endpoints in the last stretch but one.
    tail: (f64, f64),
}

impl Recovery {
    /// One grid.
    pub(super) fn run(
        &self,
        seeds: Seeds,
        threads: NonZeroUsize,
        tick: &mut dyn FnMut(usize, usize, u64),
    ) -> Vec<Grid> {
        let mut cases = cases();
        if self.quick {
            cases.truncate(6);
        }
        let n = seeds.count as usize;
        let found = jobs::over(
            cases.len() * n,
            threads,
            |job| one(&cases[job / n], seeds.first + (job % n) as u64),
            |done, all, found| tick(done, all, found.requests),
        );
        vec![grid(&cases, &found, n)]
    }
}

fn one(case: &Case, seed: u64) -> Found {
    let mut found = run(case, seed, true);
    if seed.is_multiple_of(CONTROL_EVERY) {
        let control = run(case, seed, false);
        found.refused_control = Some(control.refused);
        found.requests += control.requests;
    }
    found
}

fn run(case: &Case, seed: u64, fails: bool) -> Found {
    let setup = Setup {
        pool: PoolConfig { replicas: f64::from(case.gateways), ..pool(case.policy, 0, 3) },
        endpoints: ENDPOINTS,
        gateways: case.gateways,
        shape: case.shape,
        connections: 16,
        slots: case.slots,
        sticky: false,
    };
    let mut lab = Lab::new(&setup, seed);
    let rate = case.rate();
    let per_gateway = rate / f64::from(case.gateways);
    let usual = Condition::failing(case.fail, Failing::Status);
    lab.act(Act::Set(None, usual));
    lab.act(Act::Rate(rate));
    let history_s = (60.0 / per_gateway).clamp(1.0, 600.0).max(3.0 * case.shape.mean_s());
    lab.run(Instant::from_secs_f64(history_s));
    if fails {
        let down = Condition { refuse: 1.0, unwell: true, down: true, ..usual };
        lab.act(Act::Set(Some(VICTIM), down));
    }
    // Down until every gateway knows, then back at a moment of its own.
    let outage_s = (60.0 / per_gateway).clamp(3.0, 600.0) + Rng::stream(seed, RETURN).uniform(0.0, 0.5);
    lab.run(lab.now + duration_from_secs(outage_s));
    let back = lab.now;
    let slow = if case.cold_s > 0.0 { 3.0 } else { 1.0 };
    let well = Condition { slow, since: back, fades_s: case.cold_s, ..usual };
    if fails {
        lab.act(Act::Set(Some(VICTIM), well));
    }
    let refused = lab.counts.refused;
    lab.watched = Some(Watched::new(VICTIM));
    let mut found = Found::default();
    let end = back + duration_from_secs(case.watch_s);
    let step = duration_from_secs((case.watch_s / 2000.0).clamp(0.002, 0.1));
    let share = |lab: &Lab<'_>, g: usize| lab.pool(g).share_at(EndpointId(VICTIM), lab.now);
    let gateways = case.gateways as usize;
    while lab.now < end {
        lab.run(lab.now + step);
        if (0..gateways).all(|g| share(&lab, g) >= 1.0) {
            found.full_s.get_or_insert(lab.now.secs_since(back));
        } else {
            // Stepped back: it was not settled yet.
            found.full_s = None;
        }
    }
    found.settled = (0..gateways).all(|g| share(&lab, g) >= 1.0);
    let watched = lab.watched.take().unwrap_or(Watched::new(VICTIM));
    found.refused = [watched.refused, lab.counts.refused - refused];
    found.requests = lab.counts.requests;
    found.arrivals = vec![0; (case.watch_s / case.stretch_s) as usize];
    for at in &watched.times {
        if let Some(n) = found.arrivals.get_mut((at.secs_since(back) / case.stretch_s) as usize) {
            *n += 1;
        }
    }
    let half = found.arrivals.len() / 2;
    let late: u32 = found.arrivals[half..].iter().sum();
    found.tail = (f64::from(late), rate * case.stretch_s * (found.arrivals.len() - half) as f64);
    found
}

fn grid(cases: &[Case], found: &[Found], seeds: usize) -> Grid {
    let title = format!("recovery of one of {ENDPOINTS} endpoints");
    let head = [
        "case",
        "policy",
        "gate-\nways",
        "head-\nroom",
        "full s\np50",
        "full s\np99",
        "peak",
        "share\nlater",
        "refused\nthere",
        "con-\ntrol",
        "refused\nin all",
        "con-\ntrol",
        "unset-\ntled %",
    ];
    let mut grid = Grid::new("recovery", &title, head.map(str::to_owned).to_vec());
    for (case, runs) in cases.iter().zip(found.chunks(seeds)) {
        let mut full: Vec<f64> = runs.iter().map(|f| f.full_s.unwrap_or(f64::INFINITY)).collect();
        let n = seeds as f64;
        let stretches = runs.iter().map(|f| f.arrivals.len()).min().unwrap_or(0);
        let mean = |k: usize| runs.iter().map(|f| f64::from(f.arrivals[k])).sum::<f64>() / n;
        let fair = case.rate() * case.stretch_s;
        let peak = (0..stretches).map(mean).fold(0.0, f64::max) / fair;
        let (late, expected) = runs.iter().fold((0.0, 0.0), |(a, b), f| (a + f.tail.0, b + f.tail.1));
        let refused = |k: usize| runs.iter().map(|f| f.refused[k]).sum::<u64>() as f64 / n;
        let controls = || runs.iter().filter_map(|f| f.refused_control);
        let control = |k: usize| controls().map(|c| c[k]).sum::<u64>() as f64 / controls().count() as f64;
        let unsettled = runs.iter().filter(|f| !f.settled).count() as f64 / n;
        let name = if case.cold_s > 0.0 { format!("{} {}s", case.group, case.cold_s) } else { case.group.to_owned() };
        grid.rows.push(vec![
            Cell::text(name),
            Cell::text(case.policy),
            Cell::number(f64::from(case.gateways), 0),
            Cell::maybe(case.headroom, 2),
            Cell::maybe(quantile(&mut full, 0.5), 2),
            Cell::maybe(quantile(&mut full, 0.99), 2),
            Cell::number(peak, 2),
            Cell::number(late / expected, 3),
            Cell::number(refused(0), 1),
            Cell::number(control(0), 1),
            Cell::number(refused(1), 1),
            Cell::number(control(1), 1),
            Cell::number(100.0 * unsettled, 1),
        ]);
    }
    grid.notes.push(
        "full: until every gateway gives the whole share for good; peak: busiest stretch (50 ms; 20 s for the last rows) of the mean"
            .to_owned(),
    );
    grid.notes.push(
        "arrivals over the fair share; share later: arrivals in the second half over the fair share; refused: slots taken, per run, there"
            .to_owned(),
    );
    grid.notes.push("and in all, the others' share of the outage included; control: nothing was ever down".to_owned());
    grid
}
