//! The article's setting (notes: algorithms, section 4.2): three servers whose load drifts and surges, which take 0.1 + 0.9 u seconds
//! and reject above u = 0.9; their load is polled and arrives late. Plain least response time learns only from answers; `adaptive`
//! gates, forecasts and recovers.
mod driver;

use driver::{at, config, secs};
use std::collections::{BTreeMap, VecDeque};
use tidegate_core::descriptor::Value;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::load::LoadReport;
use tidegate_core::outcome::{Outcome, Verdict};
use tidegate_core::pool::config::{EndpointConfig, LoadConfig, PoolConfig};
use tidegate_core::pool::{Decision, Pool, Ticket};
use tidegate_core::request::Request;
use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant};

const STEP: f64 = 0.05;

#[derive(Clone, Copy)]
struct Setting {
    rate: f64,
    load_per_request: f64,
    poll_every: f64,
    delay: f64,
    velocity_sd: f64,
    velocity_time: f64,
    background: (f64, f64),
    surges: f64,
    seconds: f64,
}

/// Row A2 of the notes: fresh probes, surges that jump to 1.5 and drain.
const SURGES: Setting = Setting {
    rate: 5.0,
    load_per_request: 0.01,
    poll_every: 0.1,
    delay: 0.2,
    velocity_sd: 0.03,
    velocity_time: 1.0,
    background: (0.05, 0.45),
    surges: 0.04,
    seconds: 400.0,
};
/// Row B: stale probes and drift with momentum, no surges.
const DRIFT: Setting = Setting {
    rate: 8.0,
    load_per_request: 0.01,
    poll_every: 0.5,
    delay: 0.5,
    velocity_sd: 0.25,
    velocity_time: 3.0,
    background: (0.0, 1.1),
    surges: 0.0,
    seconds: 400.0,
};

/// Background load of one server: a reflected walk with momentum, and surges that drain by 0.2 per second.
fn background(s: &Setting, rng: &mut Rng) -> Vec<f64> {
    let (low, high) = s.background;
    let keep = libm::exp(-STEP / s.velocity_time);
    let kick = s.velocity_sd * (1.0 - keep * keep).sqrt();
    let (mut level, mut velocity, mut surge) = (rng.uniform(low, high), 0.0, 0.0f64);
    let step = |_| {
        velocity = velocity * keep + rng.normal(0.0, kick);
        level += velocity * STEP;
        if level < low || level > high {
            level = if level < low { 2.0 * low - level } else { 2.0 * high - level };
            velocity = -velocity;
        }
        level = level.clamp(low, high);
        if rng.unit() < s.surges * STEP {
            surge = surge.max(rng.uniform(1.5, 1.6));
        }
        surge = (surge - 0.2 * STEP).max(0.0);
        level + surge
    };
    (0..(s.seconds / STEP) as usize).map(step).collect()
}

/// Mean seconds of an answer, and the fraction of requests that got one.
fn run(s: &Setting, cfg: &PoolConfig, seed: u64) -> (f64, f64) {
    let mut drift = Rng::stream(seed, 1);
    let [a, b, c] = [(); 3].map(|()| background(s, &mut drift));
    let servers = a.into_iter().zip(b).zip(c).map(|((a, b), c)| [a, b, c]);
    let mut arrivals = Rng::stream(seed, 2);
    let mut pool = Pool::new(cfg.clone(), false, seed);
    for k in 0..3 {
        pool.add(at(0.0), EndpointConfig::new(format!("e{k}")));
    }
    let mut due: BTreeMap<(Instant, u32), Ticket> = BTreeMap::new();
    let mut reports: VecDeque<(f64, EndpointId, LoadReport)> = VecDeque::new();
    let (mut next_poll, mut next_arrival, mut total, mut answered, mut took) = (0.0, 0.0, 0u32, 0u32, 0.0);
    for (step, others) in servers.enumerate() {
        let (t, now) = (step as f64 * STEP, at(step as f64 * STEP));
        let load = |pool: &Pool, k: usize| {
            let own = s.load_per_request * f64::from(pool.endpoints().hot[k].in_flight);
            (others[k] + own).clamp(0.0, 1.0)
        };
        while let Some(end) = due.first_entry().filter(|e| e.key().0 <= now) {
            let ((at, _), ticket) = end.remove_entry();
            pool.settle(at, ticket, Outcome::new(Verdict::Success));
        }
        if t >= next_poll {
            next_poll += s.poll_every;
            for k in 0..3 {
                let report = LoadReport { sampled_at: now, load: Some(load(&pool, k)), ..LoadReport::default() };
                reports.push_back((t + s.delay, EndpointId(k as u32), report));
            }
        }
        while reports.front().is_some_and(|&(at, ..)| at <= t + 1e-9) {
            if let Some((_, endpoint, report)) = reports.pop_front() {
                pool.on_event(now, Event::LoadReported { endpoint, report });
            }
        }
        while next_arrival <= t {
            next_arrival += arrivals.exponential(1.0 / s.rate);
            total += 1;
            let Decision::Send { ticket, .. } = pool.admit(now, &Request::default(), None) else { continue };
            let u = load(&pool, ticket.endpoint().index()) - s.load_per_request;
            if u > 0.9 {
                pool.settle(now, ticket, Outcome::new(Verdict::Throttled { retry_after: None }));
                continue;
            }
            let seconds = 0.1 + 0.9 * u.max(0.0);
            (answered, took) = (answered + 1, took + seconds);
            due.insert((now + secs(seconds), total), ticket);
        }
    }
    (took / f64::from(answered), f64::from(answered) / f64::from(total))
}

fn least_response_time() -> PoolConfig {
    let cfg = config("least_response_time", &[("form", Value::Choice("plain"))]);
    PoolConfig { cool_down: Duration::ZERO, max_load: None, ..cfg }
}

fn adaptive(s: &Setting, horizon: f64) -> PoolConfig {
    let set = [
        ("horizon", Value::Duration(horizon)),
        ("temperature", Value::Float(0.02)),
        ("slope_weight", Value::Float(if s.surges > 0.0 { 0.4 } else { 0.6 })),
    ];
    let load = LoadConfig { max_age: secs(3.0), per_request: Some(s.load_per_request), by_answers: false };
    PoolConfig { load: Some(load), cool_down: Duration::from_millis(500), ..config("adaptive", &set) }
}

/// What each of two policies reached, and the mean over seeds of their paired difference in seconds and in points of success, each with
/// its standard error.
#[derive(Debug)]
struct Compared {
    a: (f64, f64),
    b: (f64, f64),
    seconds: (f64, f64),
    points: (f64, f64),
}

fn compare(s: &Setting, a: &PoolConfig, b: &PoolConfig, seeds: std::ops::Range<u64>) -> Compared {
    let a: Vec<_> = seeds.clone().map(|seed| run(s, a, seed)).collect();
    let b: Vec<_> = seeds.map(|seed| run(s, b, seed)).collect();
    let n = a.len() as f64;
    let mean =
        |runs: &[(f64, f64)]| (runs.iter().map(|r| r.0).sum::<f64>() / n, runs.iter().map(|r| r.1).sum::<f64>() / n);
    let with_error = |differences: Vec<f64>| {
        let mean = differences.iter().sum::<f64>() / n;
        let variance = differences.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>() / (n - 1.0);
        (mean, (variance / n).sqrt())
    };
    Compared {
        a: mean(&a),
        b: mean(&b),
        seconds: with_error(a.iter().zip(&b).map(|(a, b)| a.0 - b.0).collect()),
        points: with_error(a.iter().zip(&b).map(|(a, b)| 100.0 * (a.1 - b.1)).collect()),
    }
}

#[test]
fn adaptive_beats_plain_least_response_time_on_success_and_on_time() {
    // The notes: -0.096 s (s.e. 0.009) and +15.2 points (0.6) over eight seeds.
    let figures = compare(&SURGES, &adaptive(&SURGES, 0.3), &least_response_time(), 301..309);
    let (seconds, points) = (figures.seconds, figures.points);
    println!("{figures:?}");
    assert!((0.80..0.88).contains(&figures.b.1) && figures.a.1 > 0.98, "the notes: 83.5 and 99.3 %");
    assert!(points.0 - 2.0 * points.1 > 5.0, "success {points:?}");
    assert!(seconds.0 + 2.0 * seconds.1 < 0.0, "time {seconds:?}");
}

#[test]
fn a_slope_helps_where_probes_are_stale_and_drift_has_momentum() {
    // The notes, row B: -0.005 s and +1.2 points against the same rule without a slope, ten seeds.
    let figures = compare(&DRIFT, &adaptive(&DRIFT, 0.75), &adaptive(&DRIFT, 0.0), 401..411);
    let (seconds, points) = (figures.seconds, figures.points);
    println!("{figures:?}");
    assert!(points.0 > 2.0 * points.1 || seconds.0 < -2.0 * seconds.1, "{seconds:?} {points:?}");
}
