//! Every policy: who may be picked, and what is said when nobody may.
mod driver;

use driver::{FAILED, Rig, Service, at, cases, config, five_errors, secs};
use tidegate_core::endpoint::Gate;
use tidegate_core::event::{Effect, Event};
use tidegate_core::explain::Explain;
use tidegate_core::id::EndpointId;
use tidegate_core::load::{Degraded, LoadReport, Unfit};
use tidegate_core::outcome::{Outcome, Verdict};
use tidegate_core::pool::config::{EndpointConfig, LoadConfig, Panic, PoolConfig, WarmUpStep};
use tidegate_core::pool::{Decision, Pool, Shed};
use tidegate_core::request::Request;

/// One random change of what an endpoint is worth.
fn disturb(rig: &mut Rig, endpoint: EndpointId) {
    match rig.rng.below(8) {
        0 => rig.event(Event::Drain { endpoint, draining: true }),
        1 => rig.event(Event::Drain { endpoint, draining: false }),
        2 => rig.event(Event::Weight { endpoint, weight: 0.0 }),
        3 => rig.event(Event::Weight { endpoint, weight: 2.0 }),
        4 => (0..3).for_each(|_| rig.check(endpoint, false)),
        5 => (0..3).for_each(|_| rig.check(endpoint, true)),
        6 => rig.report(endpoint, 0.97),
        _ => rig.report(endpoint, 0.2),
    }
    let verdicts = [Verdict::Success, FAILED, Verdict::Throttled { retry_after: None }, Verdict::Success];
    rig.services[endpoint.index()] = Service::Ends(verdicts[rig.rng.below(4)], 0.05);
}

#[test]
fn never_an_unusable_endpoint_while_a_usable_one_exists() {
    for mut case in cases() {
        case.cfg.load = Some(LoadConfig { max_age: secs(3.0), per_request: Some(0.02), by_answers: false });
        case.cfg.warm_up = None;
        let mut rig = Rig::checked(case.cfg, true, 11);
        rig.stop_reports();
        for k in 0..10 {
            let endpoint = EndpointConfig { max_in_flight: Some(3), ..EndpointConfig::new(format!("e{k}")) };
            let id = rig.add_as(endpoint, Service::Delay(0.05));
            rig.check(id, true);
        }
        let mut trials = 0;
        for _ in 0..4000 {
            let next = rig.now + secs(rig.rng.exponential(0.01));
            rig.advance(next);
            if rig.rng.below(4) == 0 {
                let endpoint = EndpointId(rig.rng.below(10) as u32);
                disturb(&mut rig, endpoint);
            }
            rig.pool.on_deadline(rig.now);
            let gates: Vec<Gate> = (0..10).map(|k| rig.gate(EndpointId(k))).collect();
            let best = [Gate::Usable, Gate::CoolingDown].into_iter().find(|g| gates.contains(g));
            match rig.offer() {
                Some(id) if gates[id.index()] == Gate::Open => trials += 1,
                Some(id) => assert_eq!(Some(gates[id.index()]), best, "{}: {gates:?}", case.label),
                None => assert_eq!(best, None, "{}: refused although {gates:?}", case.label),
            }
        }
        assert!(trials > 0, "{}: the test must reach ejections", case.label);
        rig.drain();
        assert_eq!(rig.pool.in_flight(), 0, "{}", case.label);
    }
}

#[test]
fn weight_zero_gets_nothing_and_all_zero_says_so() {
    for case in cases() {
        let mut rig = Rig::of(&case.cfg, &[Service::Delay(0.05); 3], 1);
        rig.event(Event::Weight { endpoint: EndpointId(1), weight: 0.0 });
        rig.run(100.0, 10.0);
        assert_eq!(rig.sent[1], 0, "{}", case.label);
        for k in [0, 2] {
            rig.event(Event::Weight { endpoint: EndpointId(k), weight: 0.0 });
        }
        assert_eq!(rig.offer_as(&Request::default()), Err(Shed::AllWeightsZero), "{}", case.label);
    }
}

#[test]
fn an_empty_pool_refuses_and_one_endpoint_gets_everything() {
    for case in cases() {
        let mut rig = Rig::new(case.cfg.clone(), 1);
        assert_eq!(rig.offer_as(&Request::default()), Err(Shed::NoEndpoint), "{}", case.label);
        rig.add(Service::Delay(0.2));
        rig.run(100.0, 3.0);
        assert_eq!((rig.shed, rig.sent[0] > 200), (1, true), "{}", case.label);
        rig.drain();
        assert_eq!(rig.pool.in_flight(), 0);
    }
}

#[test]
fn ten_thousand_endpoints() {
    for case in cases() {
        let mut rig = Rig::of(&case.cfg, &vec![Service::Delay(0.5); 10_000], 3);
        for k in (0..10_000).filter(|k| k % 2 == 0) {
            rig.event(Event::Drain { endpoint: EndpointId(k), draining: true });
        }
        rig.stop_reports();
        for k in 0..50 {
            let endpoint = EndpointId(2 * k + 1);
            rig.report(endpoint, 0.5);
        }
        rig.run(1000.0, 0.15);
        assert!(rig.picks.iter().all(|k| k % 2 == 1), "{}", case.label);
        assert!((100..220).contains(&rig.picks.len()), "{}: {}", case.label, rig.picks.len());
        rig.drain();
        assert_eq!(rig.pool.in_flight(), 0);
    }
}

#[test]
fn a_single_endpoint_is_never_opened_but_fails_fast() {
    for case in cases() {
        let mut rig = Rig::of(&case.cfg, &[Service::Ends(FAILED, 0.001)], 1);
        rig.run(100.0, 2.0);
        assert!(!rig.is_out(EndpointId(0)) && rig.shed > 100, "{}", case.label);
        // Back as soon as a probe passes.
        rig.services[0] = Service::Delay(0.01);
        rig.run(100.0, 0.3);
        rig.shed = 0;
        rig.run(100.0, 2.0);
        assert_eq!(rig.shed, 0, "{}", case.label);
        // Nor is the last one beside drained and weightless neighbours, whatever its breaker.
        let mut rig =
            Rig::of(&PoolConfig { breaker: five_errors(1.0), ..case.cfg }, &[Service::Ends(FAILED, 0.001)], 1);
        for k in 1..3 {
            rig.add(Service::Delay(0.05));
            assert_eq!(rig.sent.len(), k + 1);
        }
        rig.event(Event::Drain { endpoint: EndpointId(1), draining: true });
        rig.event(Event::Weight { endpoint: EndpointId(2), weight: 0.0 });
        rig.run(100.0, 2.0);
        assert!(!rig.is_out(EndpointId(0)) && rig.shed == 0, "{}", case.label);
    }
}

#[test]
fn at_most_half_are_ejected_when_all_fail() {
    for case in cases() {
        for n in [2u32, 3, 5, 8] {
            let mut rig = Rig::of(&case.cfg, &vec![Service::Ends(FAILED, 0.001); n as usize], 1);
            for _ in 0..300 {
                rig.run(200.0, 0.02);
                let out = (0..n).filter(|&k| rig.is_out(EndpointId(k))).count() as u32;
                assert!(2 * out <= n, "{}: {out} of {n}", case.label);
            }
            assert_eq!(rig.shed, 0, "{}", case.label);
        }
    }
}

#[test]
fn too_few_healthy_endpoints_use_all_or_refuse_as_configured() {
    for case in cases() {
        for panic in [Panic::UseAll, Panic::Refuse] {
            let cfg = PoolConfig { panic, ..case.cfg.clone() };
            let mut rig = Rig::checked(cfg, true, 1);
            for _ in 0..4 {
                let id = rig.add(Service::Delay(0.05));
                rig.check(id, true);
            }
            let fail = |rig: &mut Rig, k: u32| (0..3).for_each(|_| rig.check(EndpointId(k), false));
            fail(&mut rig, 0);
            fail(&mut rig, 1);
            rig.run(100.0, 3.0);
            let sent = rig.take_sent();
            assert_eq!((sent[0] + sent[1], rig.shed), (0, 0), "{}: half of them is enough", case.label);
            rig.effects();
            fail(&mut rig, 2);
            assert!(rig.effects().contains(&Effect::Panic(true)), "{}", case.label);
            rig.run(100.0, 3.0);
            let sent = rig.take_sent();
            if panic == Panic::UseAll {
                assert_eq!((rig.pool.count(Gate::Usable), rig.shed), (4, 0), "{}", case.label);
                // The textbook forms look at loads that do not differ here and may leave somebody out.
                let spreads = !case.label.contains("form=");
                assert!(!spreads || sent.iter().all(|&n| n > 0), "{}: {sent:?}", case.label);
            } else {
                assert_eq!((sent.iter().sum::<u32>(), rig.shed > 200), (0, true), "{}", case.label);
                assert_eq!(rig.offer_as(&Request::default()), Err(Shed::NoHealthyEndpoint));
            }
            let shed = rig.shed;
            rig.check(EndpointId(2), true);
            rig.check(EndpointId(2), true);
            rig.run(100.0, 3.0);
            assert_eq!((rig.sent[0] + rig.sent[1], rig.shed), (0, shed), "{}: and back", case.label);
        }
    }
}

#[test]
fn max_in_flight_is_never_exceeded_also_in_warm_up_and_trials() {
    for mut case in cases() {
        case.cfg.warm_up = Some(WarmUpStep::defaults());
        case.cfg.breaker = five_errors(0.2);
        let mut rig = Rig::new(case.cfg, 5);
        let bounded = |k| EndpointConfig { max_in_flight: Some(8), ..EndpointConfig::new(format!("e{k}")) };
        for k in 0..3 {
            rig.add_as(bounded(k), Service::Delay(0.2));
        }
        rig.run(60.0, 2.0);
        let new = rig.add_as(bounded(3), Service::Delay(0.2));
        let joined = rig.now;
        let mut highest = 0;
        for turn in 0..2000 {
            // Over capacity, with failures that eject and hung requests that fill an ejected endpoint.
            rig.services[0] = [Service::Delay(0.2), Service::Ends(FAILED, 0.01), Service::Hangs][turn / 20 % 3];
            rig.services[1] = Service::Ends(Verdict::Throttled { retry_after: None }, 0.1);
            rig.run(200.0, 0.02);
            for k in 0..4 {
                assert!(rig.in_flight(EndpointId(k)) <= 8, "{}: e{k}", case.label);
            }
            let age = rig.now.secs_since(joined);
            let share = if age < 30.0 { 0.25 } else { 0.5 };
            assert!(f64::from(rig.in_flight(new)) <= 8.0 * share, "{}: {age} s after joining", case.label);
            highest = highest.max(rig.in_flight(new));
        }
        assert!(highest >= 2, "{}", case.label);
        assert!(rig.offer_as(&Request::default()).is_err() || rig.shed > 0, "{}", case.label);
    }
}

#[test]
fn a_full_pool_says_endpoint_limit_and_an_overloaded_one_says_so() {
    for case in cases() {
        let mut rig = Rig::new(case.cfg, 1);
        for k in 0..2 {
            rig.add_as(
                EndpointConfig { max_in_flight: Some(1), ..EndpointConfig::new(format!("e{k}")) },
                Service::Hangs,
            );
        }
        assert!(rig.offer().is_some() && rig.offer().is_some());
        assert_eq!(rig.offer_as(&Request::default()), Err(Shed::EndpointLimit), "{}", case.label);
    }
    let cfg = driver::with_load(driver::Case { label: String::new(), cfg: config("adaptive", &[]) }).cfg;
    let mut rig = Rig::of(&cfg, &[Service::Delay(0.1); 2], 1);
    rig.stop_reports();
    rig.report(EndpointId(0), 0.95);
    rig.report(EndpointId(1), 0.95);
    assert_eq!(rig.offer_as(&Request::default()), Err(Shed::Overloaded));
    // The report expires at its age exactly: the pool's own timer must be enough to open the gate again.
    let expiry = rig.pool.next_deadline();
    assert_eq!(expiry, Some(at(4.0)));
    rig.advance(at(4.0));
    assert!(rig.offer().is_some(), "an old report keeps nobody out");
}

#[test]
fn an_unfit_endpoint_gets_nothing_under_any_policy_and_says_why() {
    for mut case in cases() {
        case.cfg.load = Some(LoadConfig { max_age: secs(3.0), per_request: Some(0.02), by_answers: false });
        case.cfg.max_load = None;
        let mut rig = Rig::of(&case.cfg, &[Service::Delay(0.1); 3], 1);
        rig.stop_reports();
        let unfit = |at| LoadReport { sampled_at: at, unfit: Some(Unfit::GpuBroken), ..LoadReport::default() };
        rig.event(Event::LoadReported { endpoint: EndpointId(1), report: unfit(rig.now) });
        for key in 0..20 {
            let mut explain = Explain::default();
            let request = Request { hash_key: Some(key), ..Request::default() };
            match rig.pool.admit(rig.now, &request, Some(&mut explain)) {
                Decision::Send { ticket, .. } => {
                    assert_ne!(ticket.endpoint(), EndpointId(1), "{}", case.label);
                    rig.pool.settle(rig.now, ticket, Outcome::new(Verdict::Success));
                }
                other => unreachable!("{other:?}"),
            }
            assert!(explain.excluded.contains(&(EndpointId(1), Gate::Unfit)), "{}", case.label);
            assert_eq!(explain.unfit, [(EndpointId(1), Unfit::GpuBroken)], "{}", case.label);
        }
        for k in [0, 2] {
            rig.event(Event::LoadReported { endpoint: EndpointId(k), report: unfit(rig.now) });
        }
        assert_eq!(rig.offer_as(&Request::default()), Err(Shed::Overloaded), "{}", case.label);
        // Well again, or not heard of for too long: both are enough.
        let well = LoadReport {
            sampled_at: rig.now + secs(0.001),
            utilisation: [None, Some(0.1), None],
            ..LoadReport::default()
        };
        rig.advance(rig.now + secs(0.001));
        rig.event(Event::LoadReported { endpoint: EndpointId(1), report: well });
        assert!(rig.offer().is_some(), "{}", case.label);
        rig.advance(rig.now + secs(3.0));
        assert_eq!(rig.pool.count(Gate::Unfit), 0, "{}", case.label);
    }
}

#[test]
fn a_load_that_nobody_asked_for_yet_is_no_news() {
    let mut cfg = config("adaptive", &[]);
    cfg.load = Some(LoadConfig { max_age: secs(3.0), per_request: None, by_answers: false });
    let missing = |endpoint| Effect::Degraded { endpoint, why: Some(Degraded::Missing) };
    let mut pool = Pool::new(cfg.clone(), false, 1);
    let [a, b] = ["a", "b"].map(|name| pool.add(at(1.0), EndpointConfig::new(name.to_owned())));
    let mut effects = Vec::new();
    pool.on_event(at(1.1), Event::LoadMissed(a));
    pool.drain_effects(&mut effects);
    assert_eq!(effects, [missing(a)], "asked in vain");
    assert_eq!(pool.next_deadline(), Some(at(4.0)));
    pool.on_deadline(at(4.0));
    effects.clear();
    pool.drain_effects(&mut effects);
    assert_eq!(effects, [missing(b)], "no word for as long as a report counts");
    // Where answers tell, nobody is asked until something is sent.
    cfg.load = cfg.load.map(|l| LoadConfig { by_answers: true, ..l });
    let mut pool = Pool::new(cfg, false, 1);
    let a = pool.add(at(1.0), EndpointConfig::new("a".to_owned()));
    pool.on_deadline(at(100.0));
    effects.clear();
    pool.drain_effects(&mut effects);
    assert_eq!(effects, []);
    let Decision::Send { ticket, .. } = pool.admit(at(100.0), &Request::default(), None) else { unreachable!() };
    assert_eq!(pool.next_deadline(), Some(at(103.0)));
    pool.on_deadline(at(103.0));
    pool.drain_effects(&mut effects);
    assert_eq!(effects, [missing(a)]);
    pool.settle(at(103.0), ticket, Outcome::new(Verdict::Success));
}

#[test]
fn a_throttled_trial_is_left_alone_as_long_as_it_asked() {
    let mut cfg = config("random", &[]);
    cfg.breaker = five_errors(0.1);
    let mut rig = Rig::of(&cfg, &[Service::Ends(FAILED, 0.001), Service::Delay(0.01)], 1);
    rig.run(100.0, 0.5);
    assert!(rig.is_out(EndpointId(0)));
    rig.services[0] = Service::Ends(Verdict::Throttled { retry_after: Some(secs(10.0)) }, 0.001);
    rig.run(100.0, 1.0);
    rig.take_sent();
    rig.run(100.0, 8.0);
    assert!(rig.sent[0] <= 1, "{} trials while it asked for ten seconds", rig.sent[0]);
}

/// A pool of two that grows to eight: six engines load their models and fail their checks, and get nothing until they pass one.
#[test]
fn a_pool_that_grows_by_more_than_it_has_does_not_panic() {
    for case in cases() {
        let cfg = PoolConfig { panic: Panic::Refuse, ..case.cfg.clone() };
        let mut rig = Rig::checked(cfg, true, 1);
        for _ in 0..2 {
            let id = rig.add(Service::Delay(0.05));
            rig.check(id, true);
        }
        rig.run(50.0, 1.0);
        for _ in 0..6 {
            let id = rig.add(Service::Delay(0.05));
            (0..5).for_each(|_| rig.check(id, false));
        }
        let before = rig.picks.len();
        rig.run(50.0, 2.0);
        assert!(!rig.pool.is_panicking() && rig.shed == 0, "{}", case.label);
        assert!(rig.picks.len() > before && rig.picks.iter().all(|k| *k < 2), "{}", case.label);
        // Those that served and fail are another thing.
        (0..2).for_each(|k| (0..5).for_each(|_| rig.check(EndpointId(k), false)));
        assert!(rig.pool.is_panicking(), "{}", case.label);
    }
}
