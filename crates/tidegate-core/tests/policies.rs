//! Single policies: what each promises beyond the conformance suite.
mod driver;

use driver::{Case, FAILED, Rig, Service, config, secs, with_load};
use tidegate_core::balance::registry;
use tidegate_core::descriptor::Value;
use tidegate_core::event::{Effect, Event};
use tidegate_core::id::EndpointId;
use tidegate_core::load::{Degraded, LoadReport};
use tidegate_core::pool::Shed;
use tidegate_core::pool::config::{EndpointConfig, PoolConfig};
use tidegate_core::request::Request;

fn loaded(policy: &str, set: &[(&str, Value)]) -> PoolConfig {
    with_load(Case { label: String::new(), cfg: config(policy, set) }).cfg
}

/// A pool whose loads are those the test reports.
fn told(cfg: &PoolConfig, n: usize) -> Rig {
    let mut rig = Rig::of(cfg, &vec![Service::Delay(0.01); n], 1);
    rig.stop_reports();
    rig
}

fn reports(rig: &mut Rig, loads: &[f64]) {
    rig.advance(rig.now + secs(0.2));
    for (k, &load) in loads.iter().enumerate() {
        rig.report(EndpointId(k as u32), load);
    }
}

/// What the policy says of one more request.
fn reason(rig: &mut Rig) -> &'static str {
    rig.offer();
    rig.advance(rig.now + secs(0.05));
    rig.last_detail
}

#[test]
fn hybrid_switches_at_its_thresholds_and_keeps_its_mode_between() {
    let mut rig = told(&loaded("hybrid", &[]), 3);
    let script = [
        ([0.2, 0.3, 0.69], "least_response_time"),
        ([0.2, 0.3, 0.8], "least_response_time"),
        ([0.2, 0.3, 0.89], "least_response_time"),
        ([0.2, 0.3, 0.91], "fastest_recovery"),
        ([0.2, 0.3, 0.8], "fastest_recovery"),
        ([0.2, 0.3, 0.7], "fastest_recovery"),
        ([0.2, 0.3, 0.6], "least_response_time"),
        ([0.2, 0.3, 0.8], "least_response_time"),
    ];
    for (loads, mode) in script {
        reports(&mut rig, &loads);
        assert_eq!(reason(&mut rig), mode, "{loads:?}");
    }
}

#[test]
fn hybrid_leaves_a_slow_endpoint_out_until_a_trial_is_faster() {
    let mut rig = Rig::of(&config("hybrid", &[]), &[Service::Delay(0.1), Service::Delay(2.5), Service::Delay(0.1)], 2);
    rig.run(20.0, 10.0);
    assert!(rig.sent[1] > 0);
    rig.take_sent();
    rig.run(20.0, 60.0);
    // One trial per five seconds after the 2.5 that each takes to say no.
    assert!((7..=9).contains(&rig.sent[1]), "{:?}", rig.sent);
    assert!(rig.pool.config().policy.get("unavailable_above") == Value::Duration(2.0));
    rig.services[1] = Service::Delay(0.05);
    rig.run(20.0, 8.0);
    rig.take_sent();
    rig.run(20.0, 30.0);
    assert!(rig.sent[1] > 100, "one fast answer brings it back: {:?}", rig.sent);
}

#[test]
fn hybrid_never_leaves_out_more_than_half() {
    let mut rig = Rig::of(&config("hybrid", &[]), &[Service::Delay(3.0); 4], 2);
    rig.run(20.0, 60.0);
    assert!(rig.sent.iter().all(|&n| n > 100) && rig.shed == 0, "{:?}", rig.sent);
}

#[test]
fn without_a_load_the_rule_is_fewest_in_flight_and_says_degraded() {
    // gateways.md 3: the load endpoint answered 404, and the choice became silently random.
    for cfg in [loaded("fastest_recovery", &[]), loaded("adaptive", &[]), loaded("least_response_time", &[REPORTED])] {
        let mut rig = told(&cfg, 3);
        rig.services.fill(Service::Hangs);
        (0..3).for_each(|k| rig.event(Event::LoadMissed(EndpointId(k))));
        let missing = |e: &Effect| matches!(e, Effect::Degraded { why: Some(Degraded::Missing), .. });
        let said = rig.effects();
        assert!(said.len() == 3 && said.iter().all(missing), "{said:?}");
        for n in 1..=10 {
            rig.burst(3, &Request::default());
            assert_eq!(rig.last_detail, "degraded");
            assert_eq!(rig.sent, [n, n, n], "not random");
        }
        reports(&mut rig, &[0.5, 0.5, 0.5]);
        assert_eq!(rig.effects().len(), 3, "good again, and it says so");
        rig.offer();
        assert_ne!(rig.last_detail, "degraded");
        rig.advance(rig.now + secs(3.0));
        rig.offer();
        assert_eq!(rig.last_detail, "degraded", "three seconds without a report");
        assert!(rig.effects().contains(&Effect::Degraded { endpoint: EndpointId(0), why: Some(Degraded::Old) }));
    }
}

const REPORTED: (&str, Value) = ("signal", Value::Choice("reported"));

#[test]
fn nonsense_and_frozen_reports_degrade_and_never_look_idle() {
    let mut rig = told(&loaded("fastest_recovery", &[]), 2);
    for bad in [f64::NAN, f64::INFINITY, -0.5, 7.0] {
        reports(&mut rig, &[0.5, 0.5]);
        rig.effects();
        rig.report(EndpointId(0), bad);
        assert_eq!(rig.effects(), [Effect::Degraded { endpoint: EndpointId(0), why: Some(Degraded::Impossible) }]);
        assert_eq!(rig.pool.endpoints().load_at(EndpointId(0), rig.now), None, "{bad}");
    }
    for _ in 0..30 {
        reports(&mut rig, &[0.4, 0.4]);
        rig.burst(2, &Request::default());
    }
    let frozen = Effect::Degraded { endpoint: EndpointId(0), why: Some(Degraded::Frozen) };
    assert!(rig.effects().contains(&frozen));
    // A sample from the future would keep every later one out.
    let sampled_at = rig.now + secs(1e6);
    let report = LoadReport { sampled_at, load: Some(0.1), ..LoadReport::default() };
    rig.event(Event::LoadReported { endpoint: EndpointId(0), report });
    reports(&mut rig, &[0.7, 0.7]);
    assert!(rig.pool.endpoints().load_at(EndpointId(0), rig.now).is_some_and(|l| l > 0.6));
}

#[test]
fn a_busy_mark_goes_when_the_load_does() {
    // gateways.md 13 and 14: "at capacity" once meant excluded until restart; three of four over the threshold meant all four used.
    let mut rig = told(&loaded("adaptive", &[]), 4);
    reports(&mut rig, &[0.95, 0.95, 0.95, 0.5]);
    rig.take_sent();
    (0..50).for_each(|_| assert_ne!(reason(&mut rig), "degraded"));
    assert_eq!(rig.sent[..3], [0, 0, 0]);
    reports(&mut rig, &[0.2, 0.95, 0.95, 0.95]);
    rig.take_sent();
    (0..50).for_each(|_| assert_ne!(reason(&mut rig), "degraded"));
    assert_eq!(rig.sent, [50, 0, 0, 0]);
    reports(&mut rig, &[0.95; 4]);
    assert_eq!(rig.offer_as(&Request::default()), Err(Shed::Overloaded));
}

#[test]
fn auto_weights_follow_the_scarcest_of_cpu_gpu_and_memory() {
    let cfg = loaded("weighted_round_robin", &[("weights", Value::Choice("auto"))]);
    let mut rig = Rig::new(cfg, 1);
    rig.stop_reports();
    for (k, weight) in [1.0, 1.0, 2.0, 1.0].into_iter().enumerate() {
        rig.add_as(EndpointConfig { weight, ..EndpointConfig::new(format!("e{k}")) }, Service::Delay(0.001));
    }
    let used = [[Some(0.2), Some(0.5), None], [None, Some(0.1), Some(0.75)], [Some(0.5), None, None], [Some(1.0); 3]];
    let tell = |rig: &mut Rig, used: [[Option<f64>; 3]; 4]| {
        for (k, utilisation) in used.into_iter().enumerate() {
            let report = LoadReport { sampled_at: rig.now, utilisation, ..LoadReport::default() };
            rig.event(Event::LoadReported { endpoint: EndpointId(k as u32), report });
        }
    };
    tell(&mut rig, used);
    assert!(rig.effects().iter().all(|e| !matches!(e, Effect::Degraded { why: Some(Degraded::Old), .. })));
    rig.burst(1800, &Request::default());
    // 1 x 0.5, 1 x 0.25, 2 x 0.5, and the floor of 5 % for the one that is full: of 1.8 in all.
    for (&n, expected) in rig.sent.iter().zip([500.0, 250.0, 1000.0, 50.0]) {
        assert!((f64::from(n) - expected).abs() <= 1.0, "{:?}", rig.sent);
    }
    // Smoothed: one reading of 0 % used moves the third by 30 % of the way, from a half to 0.65.
    rig.advance(rig.now + secs(0.5));
    tell(&mut rig, [used[0], used[1], [Some(0.0), None, None], used[3]]);
    rig.take_sent();
    rig.burst(2100, &Request::default());
    assert!((f64::from(rig.sent[2]) - 1300.0).abs() <= 2.0, "of 2.1 in all: {:?}", rig.sent);
    // Without reports the static weights are left.
    rig.advance(rig.now + secs(3.0));
    rig.take_sent();
    rig.burst(1000, &Request::default());
    assert!((f64::from(rig.sent[2]) - 400.0).abs() <= 3.0, "{:?}", rig.sent);
}

#[test]
fn smooth_round_robin_spreads_the_heavy_one_out() {
    let mut rig = Rig::new(config("weighted_round_robin", &[]), 1);
    for (k, weight) in [5.0, 1.0, 1.0].into_iter().enumerate() {
        rig.add_as(EndpointConfig { weight, ..EndpointConfig::new(format!("e{k}")) }, Service::Delay(0.001));
    }
    rig.burst(70, &Request::default());
    assert_eq!(rig.sent, [50, 10, 10]);
    assert!(rig.picks.windows(6).all(|w| w.iter().any(|&k| k != 0)), "never more than five in a row: {:?}", rig.picks);
    assert!(rig.picks.windows(2).all(|w| w[0] == 0 || w[1] == 0), "never two light ones in a row: {:?}", rig.picks);
}

#[test]
fn health_score_multiplies_queue_and_time() {
    let mut rig = Rig::of(&config("health_score", &[]), &[Service::Delay(0.1), Service::Delay(0.3)], 1);
    rig.run(20.0, 20.0);
    rig.advance(rig.now + secs(1.0));
    rig.take_sent();
    rig.burst(12, &Request::default());
    // (n + 1) times 0.1 and 0.3 s: equal at nine and three.
    assert_eq!(rig.sent, [9, 3]);
}

#[test]
fn health_score_gives_an_endpoint_that_failed_another_chance() {
    let mut cfg = config("health_score", &[]);
    cfg.breaker = driver::breaker("off", &[]);
    let mut rig = Rig::of(&cfg, &[Service::Delay(0.05), Service::Ends(FAILED, 0.01)], 1);
    rig.run(10.0, 5.0);
    rig.services[1] = Service::Delay(0.05);
    rig.run(10.0, 60.0);
    rig.take_sent();
    rig.run(10.0, 20.0);
    assert!(rig.sent[1] > 40, "{:?}", rig.sent);
}

#[test]
fn least_connections_starts_a_new_endpoint_as_if_it_were_busy() {
    let mut rig = Rig::of(&config("least_connections", &[]), &[Service::Delay(1.0); 2], 1);
    rig.burst(10, &Request::default());
    rig.add(Service::Delay(1.0));
    rig.take_sent();
    // Five phantoms and nobody ahead: all three are equal, and the phantoms fade by a third per pick.
    rig.burst(6, &Request::default());
    assert!((1..=4).contains(&rig.sent[2]), "not the whole burst: {:?}", rig.sent);
    let mut naive = Rig::of(
        &config("least_connections", &[("initial_connections", Value::Integer(0))]),
        &[Service::Delay(1.0); 2],
        1,
    );
    naive.burst(10, &Request::default());
    naive.add(Service::Delay(1.0));
    naive.take_sent();
    naive.burst(5, &Request::default());
    assert_eq!(naive.sent, [0, 0, 5], "the flood the phantoms prevent");
}

#[test]
fn plain_least_response_time_is_blind_to_rejections_and_the_ewma_is_not() {
    let share = |form| {
        let mut cfg = config("least_response_time", &[("form", Value::Choice(form))]);
        (cfg.breaker, cfg.cool_down) = (driver::breaker("off", &[]), secs(0.0));
        let mut rig = Rig::of(&cfg, &[Service::Delay(0.2), Service::Delay(0.05)], 1);
        rig.run(20.0, 10.0);
        rig.services[1] = Service::Ends(FAILED, 0.001);
        rig.take_sent();
        rig.run(20.0, 20.0);
        f64::from(rig.sent[1]) / f64::from(rig.sent[0] + rig.sent[1])
    };
    assert!(share("plain") > 0.95, "the favourite stays favourite while it rejects: {}", share("plain"));
    assert!(share("ewma") < 0.1, "a failure is a slow answer: {}", share("ewma"));
}

#[test]
fn least_response_time_uses_the_signal_it_is_told() {
    // Endpoint 0 begins fast and takes long, endpoint 1 the other way round, endpoint 2 says it is fastest.
    for (signal, best) in [("ttft", 0), ("total", 1), ("reported", 2)] {
        let set = [("signal", Value::Choice(signal)), ("credit", Value::Bool(false))];
        let mut rig = told(&loaded("least_response_time", &set), 3);
        for (k, (first, rest)) in [(0.01, 1.0), (0.2, 0.01), (0.5, 0.5)].into_iter().enumerate() {
            let others: Vec<EndpointId> = (0..3).filter(|&o| o != k as u32).map(EndpointId).collect();
            let retry = Request { attempted: &others, ..Request::default() };
            let tidegate_core::pool::Decision::Send { ticket, .. } = rig.pool.admit(rig.now, &retry, None) else {
                unreachable!("refused")
            };
            rig.now = rig.now + secs(first);
            rig.event(Event::FirstByte(ticket.key()));
            rig.now = rig.now + secs(rest);
            let success = tidegate_core::outcome::Outcome::new(tidegate_core::outcome::Verdict::Success);
            rig.pool.settle(rig.now, ticket, success);
        }
        for (k, time) in [0.3, 0.2, 0.1].into_iter().enumerate() {
            let report = LoadReport {
                sampled_at: rig.now,
                load: Some(0.5),
                response_time_s: Some(time),
                ..LoadReport::default()
            };
            rig.event(Event::LoadReported { endpoint: EndpointId(k as u32), report });
        }
        rig.burst(5, &Request::default());
        assert_eq!(rig.sent[best], 5, "{signal}: {:?}", rig.sent);
    }
}

#[test]
fn a_hung_endpoint_does_not_come_to_look_fast() {
    // An average that fades whatever happens makes the one that never answers the cheapest of all after a while.
    for policy in ["peak_ewma", "least_response_time", "health_score", "least_connections"] {
        let mut rig = Rig::of(&config(policy, &[]), &[Service::Delay(0.05); 3], 1);
        rig.run(50.0, 10.0);
        rig.services[1] = Service::Hangs;
        rig.run(50.0, 60.0);
        rig.take_sent();
        rig.run(50.0, 60.0);
        let total: u32 = rig.sent.iter().sum();
        assert!(rig.sent[1] * 20 < total, "{policy}: {:?}", rig.sent);
    }
}

#[test]
fn two_endpoints_under_power_of_two_always_give_the_better() {
    // governance.md 26: the same host was sampled twice.
    let mut rig = Rig::of(&config("peak_ewma", &[]), &[Service::Hangs; 2], 1);
    for n in 1..200 {
        rig.burst(2, &Request::default());
        assert_eq!(rig.sent, [n, n]);
    }
}

#[test]
fn every_example_and_default_is_in_its_range() {
    for descriptor in registry::all() {
        for param in descriptor.params {
            let accepted = param.kind.check(param.default);
            assert_eq!(accepted, Ok(()), "{} {}", descriptor.name, param.name);
        }
    }
}
