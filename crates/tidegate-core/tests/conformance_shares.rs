//! Every policy: how much each endpoint gets. Bounds are in standard errors of the number of picks, or of the mean over seeds.
mod driver;

use driver::{Case, FAILED, Rig, Service, cases, config, errors_from, params, secs, step};
use tidegate_core::breaker::Level;
use tidegate_core::descriptor::Value;
use tidegate_core::endpoint::Gate;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::pool::config::{EndpointConfig, PoolConfig};
use tidegate_core::time::Duration;

/// Services of four endpoints, no two alike, in the order of their names.
const MIXED: [Service; 4] = [Service::Delay(0.05), Service::Delay(0.1), Service::Delay(0.2), Service::Delay(0.4)];

/// Share of each of [`MIXED`] when they join in `order`.
fn shares(cfg: &PoolConfig, order: [usize; 4], seed: u64) -> [f64; 4] {
    let mut rig = Rig::new(cfg.clone(), seed);
    for k in order {
        rig.add_as(EndpointConfig::new(format!("e{k}")), MIXED[k]);
    }
    rig.run(50.0, 30.0);
    let total = f64::from(rig.sent.iter().sum::<u32>());
    let mut shares = [0.0; 4];
    order.iter().zip(&rig.sent).for_each(|(&k, &n)| shares[k] = f64::from(n) / total);
    shares
}

/// Mean and standard error of the mean.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

#[test]
fn the_order_of_endpoints_changes_no_distribution() {
    // Twelve seeds of 1,500 requests each; five standard errors of the difference of means, and half a point of share for rounding.
    for case in cases() {
        let runs =
            |order, from: u64| -> Vec<[f64; 4]> { (from..from + 12).map(|s| shares(&case.cfg, order, s)).collect() };
        let (forth, back) = (runs([0, 1, 2, 3], 100), runs([3, 1, 0, 2], 200));
        for k in 0..4 {
            let of = |runs: &[[f64; 4]]| mean_and_error(&runs.iter().map(|r| r[k]).collect::<Vec<_>>());
            let ((a, ea), (b, eb)) = (of(&forth), of(&back));
            let bound = 5.0 * (ea * ea + eb * eb).sqrt() + 0.005;
            assert!((a - b).abs() <= bound, "{} e{k}: {a:.3} and {b:.3}, bound {bound:.3}", case.label);
        }
    }
}

#[test]
fn ties_are_spread() {
    // The first pick of 1,200 fresh pools of six equal endpoints: every endpoint within five standard errors of a sixth.
    for case in cases() {
        let mut first = [0u32; 6];
        for seed in 0..1200 {
            let mut rig = Rig::of(&case.cfg, &[Service::Delay(0.1); 6], seed);
            let Some(id) = rig.offer() else { unreachable!("refused") };
            first[id.index()] += 1;
        }
        // 150 points on the ring leave a coefficient of variation of 7 % between endpoints: seven more points of a share's error.
        let slack = if case.label.starts_with("consistent_hash") { 10.0 } else { 5.0 };
        for n in first {
            assert!(errors_from(n, 1200, 1.0 / 6.0) < slack, "{}: {first:?}", case.label);
        }
    }
}

#[test]
fn an_endpoint_that_fails_fast_gets_at_most_its_share_and_then_only_trials() {
    for case in cases() {
        let mut cfg = case.cfg.clone();
        cfg.breaker = driver::breaker("off", &[]);
        let mut services = [Service::Delay(0.2); 5];
        services[2] = Service::Ends(FAILED, 0.002);
        // Without a breaker: the rules that count a failure keep it at its share or below. The others leave failures to the breaker.
        let blind = [
            "adaptive",
            "signal=reported",
            "form=plain",
            "least_connections",
            "least_work",
            "prefix_affinity",
            "form=headroom",
            "form=ema",
            "form=peak",
            "fastest_recovery",
        ];
        if !blind.iter().any(|b| case.label.contains(b)) && !case.label.contains("load") {
            let mut rig = Rig::of(&cfg, &services, 4);
            rig.run(50.0, 60.0);
            let (failing, total) = (rig.sent[2], rig.sent.iter().sum());
            let fair = if case.label.starts_with("consistent_hash") { 0.25 } else { 0.2 };
            let above = f64::from(failing) > f64::from(total) * fair;
            assert!(!above || errors_from(failing, total, fair) < 5.0, "{}: {failing} of {total}", case.label);
        }
        let mut rig = Rig::of(&case.cfg, &services, 4);
        rig.run(50.0, 60.0);
        // Refused connections and probes that fail open it within a second; no probe passes, so nobody pays for a trial.
        assert!(rig.is_out(EndpointId(2)), "{}", case.label);
        assert!(rig.sent[2] <= 40, "{}: {}", case.label, rig.sent[2]);
        cfg.breaker = driver::five_errors(1.0);
        let mut rig = Rig::of(&cfg, &services, 4);
        rig.run(50.0, 60.0);
        assert!(rig.pool.level(EndpointId(2), 0) != Level::Full, "{}", case.label);
        // Five errors open; then trials after about 1, 2, 4, 8, 16 and 30 s, each one request.
        assert!((5..=5 + 7).contains(&rig.sent[2]), "{}: {}", case.label, rig.sent[2]);
    }
}

#[test]
fn a_returning_endpoint_is_not_flooded() {
    for case in cases() {
        let mut services = [Service::Delay(0.02); 4];
        services[1] = Service::Ends(FAILED, 0.002);
        let mut rig = Rig::of(&case.cfg, &services, 9);
        let id = EndpointId(1);
        let mut waited = 0;
        while !rig.is_out(id) {
            rig.run(100.0, 0.1);
            waited += 1;
            assert!(waited < 3000, "{}: never opened", case.label);
        }
        rig.services[1] = Service::Delay(0.02);
        while rig.is_out(id) {
            rig.run(3000.0, 0.001);
        }
        assert!(rig.pool.share_at(id, rig.now) < 0.1, "{}", case.label);
        let admitted = assert_ramped(&mut rig, id, &case.label);
        assert!(admitted > 200, "{}: the windows must see traffic, saw {admitted}", case.label);
    }
}

/// Runs 3,000 requests per second until the ramp of an endpoint that just came back is over. Its shares are 1/16, 1/8, 1/4 and 1/2 of
/// its part for `max(20 ms, median time to first byte)` each; arrivals may be 1.05 of that and the tokens it can save up, or where the
/// draw decides, four standard errors more. How many requests the pool admitted meanwhile.
fn assert_ramped(rig: &mut Rig, id: EndpointId, label: &str) -> u32 {
    rig.take_sent();
    let chases = rig.pool.config().policy.descriptor().chases_load;
    let (mut allowed, mut admitted) = (2.0, 0);
    for _ in 0..500 {
        let before = rig.pool.count(Gate::Usable);
        rig.run(3000.0, 0.001);
        let usable = f64::from(before.min(rig.pool.count(Gate::Usable)).max(1));
        let total: u32 = rig.sent.iter().sum();
        let share = rig.pool.share_at(id, rig.now);
        let part = if chases { 1.05 * share / usable } else { share / (usable - 1.0 + share) };
        allowed += part * f64::from(total - admitted);
        admitted = total;
        if rig.pool.share_at(id, rig.now) >= 1.0 {
            return admitted;
        }
        let sent = f64::from(rig.sent[id.index()]);
        // Two choices meet it more often while it looks idle.
        let spread = if chases { 1.0 } else { allowed + 4.0 * allowed.sqrt() };
        assert!(sent <= allowed + spread, "{label}: {sent} > {allowed}");
    }
    unreachable!("{label}: the ramp never ended")
}

#[test]
fn however_an_endpoint_comes_back_it_is_ramped() {
    for case in cases() {
        for way in ["checks", "drain", "weight"] {
            let mut rig = Rig::checked(case.cfg.clone(), way == "checks", 2);
            for _ in 0..4 {
                let id = rig.add(Service::Delay(0.02));
                rig.check(id, true);
            }
            let endpoint = EndpointId(2);
            rig.run(100.0, 5.0);
            match way {
                "checks" => (0..3).for_each(|_| rig.check(endpoint, false)),
                "drain" => rig.event(Event::Drain { endpoint, draining: true }),
                _ => rig.event(Event::Weight { endpoint, weight: 0.0 }),
            }
            rig.take_sent();
            rig.run(100.0, 5.0);
            assert_eq!(rig.sent[2], 0, "{} {way}", case.label);
            match way {
                "checks" => (0..2).for_each(|_| rig.check(endpoint, true)),
                "drain" => rig.event(Event::Drain { endpoint, draining: false }),
                _ => rig.event(Event::Weight { endpoint, weight: 1.0 }),
            }
            assert!(rig.pool.share_at(endpoint, rig.now) < 0.1, "{} {way}", case.label);
            assert_ramped(&mut rig, endpoint, &format!("{} {way}", case.label));
        }
    }
}

#[test]
fn a_new_endpoint_warms_up_by_its_steps_under_every_policy() {
    for mut case in cases() {
        case.cfg.warm_up = Some(step(0.25, 20.0));
        let mut rig = Rig::of(&case.cfg, &[Service::Delay(0.1); 3], 6);
        assert_eq!(rig.pool.share_at(EndpointId(0), rig.now), 1.0, "those a pool starts with hold nobody back");
        rig.run(100.0, 5.0);
        let id = rig.add(Service::Delay(0.1));
        rig.take_sent();
        rig.run(100.0, 19.9);
        let total: u32 = rig.sent.iter().sum();
        // A quarter of a quarter, 1.05 of it at most and two tokens saved up; or where the draw decides, a quarter of the weight of one
        // of four, five standard errors more, and twice as often where two choices meet it idle.
        let part = if case.cfg.policy.descriptor().chases_load { 1.05 * 0.25 * 0.25 } else { 0.25 / 3.25 };
        let spread = if case.label.contains("peak_ewma") || case.label.contains("prequal") { 2.0 } else { 1.0 };
        let most = spread * part * f64::from(total) + 5.0 * (part * f64::from(total)).sqrt() + 3.0;
        assert!(f64::from(rig.sent[3]) <= most, "{}: {} of {total}", case.label, rig.sent[3]);
        let chases_slope = case.label.contains("form=");
        assert!(chases_slope || f64::from(rig.sent[3]) >= 0.3 * most, "{}: {} of {most}", case.label, rig.sent[3]);
        rig.run(100.0, 0.2);
        assert_eq!(rig.pool.share_at(id, rig.now), 1.0, "{}", case.label);
    }
}

#[test]
fn an_engine_that_was_still_loading_warms_up_from_its_first_healthy_check() {
    // governance.md 39: slow start counted from membership, so it was over before the endpoint was ready.
    for mut case in cases() {
        case.cfg.warm_up = Some(step(0.25, 20.0));
        let mut rig = Rig::checked(case.cfg, true, 6);
        for _ in 0..3 {
            let id = rig.add(Service::Delay(0.1));
            rig.check(id, true);
        }
        rig.run(100.0, 5.0);
        let id = rig.add(Service::Delay(0.1));
        (0..10).for_each(|_| rig.check(id, false));
        rig.run(100.0, 60.0);
        (0..2).for_each(|_| rig.check(id, true));
        rig.run(100.0, 10.0);
        assert_eq!(rig.pool.share_at(id, rig.now), 0.25, "{}", case.label);
        // An outage is no short cut.
        (0..3).for_each(|_| rig.check(id, false));
        (0..2).for_each(|_| rig.check(id, true));
        rig.run(100.0, 19.0);
        assert_eq!(rig.pool.share_at(id, rig.now), 0.25, "{}", case.label);
        rig.run(100.0, 1.1);
        assert_eq!(rig.pool.share_at(id, rig.now), 1.0, "{}", case.label);
    }
}

#[test]
fn adaptive_gives_a_new_endpoint_one_request_until_its_first_answer() {
    let mut rig = Rig::of(&PoolConfig::new(params("adaptive", &[])), &[Service::Queue(0.02); 3], 6);
    rig.run(100.0, 5.0);
    let id = rig.add(Service::Hangs);
    let mut most = 0;
    for _ in 0..1000 {
        rig.run(100.0, 0.01);
        most = most.max(rig.in_flight(id));
    }
    assert_eq!((most, rig.sent[3]), (1, 1), "a dead engine looks idle");
}

#[test]
fn a_phantom_count_fades_in_a_quiet_pool() {
    // Nobody has five requests in flight here, so a count that faded only by answers would keep the new endpoint out for ever.
    let mut rig = Rig::of(&config("least_connections", &[]), &[Service::Delay(0.01); 3], 6);
    rig.run(20.0, 5.0);
    rig.add(Service::Delay(0.01));
    rig.take_sent();
    rig.run(20.0, 1.0);
    assert!(rig.sent[3] <= 2, "it starts as if five were there: {:?}", rig.sent);
    rig.run(20.0, 60.0);
    let total = rig.sent.iter().sum();
    assert!(errors_from(rig.sent[3], total, 0.25) < 5.0, "{:?}", rig.sent);
}

#[test]
fn weighted_policies_respect_weights_fractions_included() {
    // gateways.md 21: weight 0.005 got nothing. 40,000 requests, five standard errors; smooth round robin is exact to one.
    for (policy, exact) in [("weighted_round_robin", true), ("least_connections", false)] {
        let mut rig = Rig::new(config(policy, &[]), 3);
        let weights = [1.0, 2.0, 0.5, 0.005];
        for (k, &weight) in weights.iter().enumerate() {
            rig.add_as(EndpointConfig { weight, ..EndpointConfig::new(format!("e{k}")) }, Service::Delay(0.001));
        }
        for _ in 0..40_000 {
            let next = rig.now + Duration::from_millis(2);
            rig.advance(next);
            rig.offer();
        }
        for (k, &n) in rig.sent.iter().enumerate() {
            let expected = weights[k] / 3.505 * 40_000.0;
            let error = (f64::from(n) - expected).abs();
            // Ties are broken by the weighted rate of about the last second: within a tenth, and up to twice where the share is less
            // than one request per second.
            let bound = if exact { 1.5 } else { (0.1 * expected).max(60.0) };
            assert!(error <= bound, "{policy} e{k}: {n}, expected {expected:.0}");
        }
        assert!(rig.sent[3] > 30, "{policy}: {:?}", rig.sent);
    }
}

#[test]
fn consistent_hash_respects_weights() {
    for algorithm in ["ring", "maglev"] {
        let mut rig = Rig::new(config("consistent_hash", &[("algorithm", Value::Choice(algorithm))]), 3);
        for (k, weight) in [4.0, 2.0, 1.0, 1.0].into_iter().enumerate() {
            rig.add_as(EndpointConfig { weight, ..EndpointConfig::new(format!("e{k}")) }, Service::Delay(0.001));
        }
        rig.run(1000.0, 20.0);
        let total = f64::from(rig.sent.iter().sum::<u32>());
        for (&n, share) in rig.sent.iter().zip([0.5, 0.25, 0.125, 0.125]) {
            // A share w of the ring with 150 points per unit of weight has an error of sqrt((1 - w) / (150 * 8 w)) of itself.
            let ring = (share * (1.0 - share) / 1200.0_f64).sqrt();
            let bound = 5.0 * (ring * ring + share * (1.0 - share) / total).sqrt();
            assert!((f64::from(n) / total - share).abs() < bound, "{algorithm}: {:?}", rig.sent);
        }
    }
}

#[test]
fn a_speed_is_worth_its_share_under_policies_that_look() {
    // Endpoints that take 1, 4 and 7 units: the rules that watch answers or queues give the fast one most and the slow one least.
    let services = [Service::Queue(0.04), Service::Queue(0.16), Service::Queue(0.28)];
    for Case { label, cfg } in cases() {
        let blind = ["random", "round_robin", "consistent_hash", "form=", "signal=reported", "hybrid", "+load"];
        if blind.iter().any(|b| label.contains(b)) {
            continue;
        }
        let mut rig = Rig::of(&cfg, &services, 8);
        rig.run(20.0, 120.0);
        assert!(rig.sent[0] > rig.sent[1] && rig.sent[1] > rig.sent[2], "{label}: {:?}", rig.sent);
        assert!(rig.mean_s() < 0.5, "{label}: mean {:.3} s", rig.mean_s());
        rig.advance(rig.now + secs(1.0));
    }
}
