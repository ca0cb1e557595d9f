//! Every policy: what happens to single requests. Counts, retries, affinity, determinism.
mod driver;

use driver::{FAILED, Rig, Service, cases, config, secs, step};
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::outcome::{Outcome, Verdict};
use tidegate_core::pool::config::{AffinityConfig, EndpointConfig, PoolConfig};
use tidegate_core::pool::{Decision, Shed, Ticket};
use tidegate_core::request::Request;

#[test]
fn in_flight_returns_to_zero_however_requests_end() {
    // gateways.md 2 and 19: counts leaked on aborts, or went below zero, and one endpoint got everything or nothing.
    let verdicts =
        [Verdict::Success, Verdict::Cancelled, Verdict::ClientError, FAILED, Verdict::Throttled { retry_after: None }];
    for case in cases() {
        let mut rig = Rig::of(&case.cfg, &[Service::Delay(0.1); 5], 4);
        for turn in 0..600 {
            let k = rig.rng.below(5);
            let hangs = rig.rng.below(10) == 0;
            rig.services[k] = if hangs { Service::Hangs } else { Service::Ends(verdicts[turn % 5], 0.05) };
            rig.run(100.0, 0.05);
            let sum: u32 = (0..5).map(|k| rig.in_flight(EndpointId(k))).sum();
            assert_eq!(sum as usize, rig.pool.in_flight(), "{}", case.label);
        }
        rig.drain();
        let endpoints = rig.pool.endpoints();
        assert_eq!(rig.pool.in_flight(), 0);
        for e in &endpoints.hot {
            assert_eq!((e.in_flight, e.pending, endpoints.stats[e.id.index()].streams), (0, 0, 0), "{}", case.label);
        }
    }
}

#[test]
fn equal_seeds_give_equal_picks() {
    for case in cases() {
        let picks = |seed| {
            let mut cfg = case.cfg.clone();
            cfg.warm_up = Some(step(0.25, 1.0));
            let mut rig =
                Rig::of(&cfg, &[Service::Delay(0.05), Service::Queue(0.02), Service::Ends(FAILED, 0.01)], seed);
            rig.run(100.0, 5.0);
            rig.add(Service::Delay(0.03));
            rig.run(100.0, 5.0);
            rig.picks
        };
        assert_eq!(picks(7), picks(7), "{}", case.label);
        assert_ne!(picks(7), picks(8), "{}", case.label);
    }
}

#[test]
fn retries_go_elsewhere_and_stay_in_their_budget() {
    for case in cases() {
        let mut rig = Rig::of(&case.cfg, &[Service::Ends(FAILED, 0.0); 5], 4);
        rig.pool = tidegate_core::pool::Pool::new(
            PoolConfig { breaker: driver::breaker("off", &[]), ..case.cfg.clone() },
            false,
            1,
        );
        for k in 0..5 {
            rig.pool.add(rig.now, EndpointConfig::new(format!("e{k}")));
        }
        let (mut first, mut retries, mut out_of_budget) = (0, 0, 0);
        for _ in 0..2000 {
            let mut attempted: Vec<EndpointId> = Vec::new();
            let key = Some(rig.rng.next_u64());
            first += 1;
            loop {
                let req = Request { hash_key: key, attempted: &attempted, ..Request::default() };
                match rig.pool.admit(rig.now, &req, None) {
                    Decision::Send { ticket, .. } => {
                        let id = ticket.endpoint();
                        assert!(!attempted.contains(&id), "{}", case.label);
                        rig.pool.settle(rig.now, ticket, Outcome::new(FAILED));
                        retries += u32::from(!attempted.is_empty());
                        attempted.push(id);
                    }
                    Decision::Wait { .. } => unreachable!("this pool has no queue"),
                    Decision::Shed { why, .. } => {
                        assert_eq!(why, Shed::RetryBudget, "{}", case.label);
                        out_of_budget += u32::from(attempted.len() < 3);
                        assert!(attempted.len() <= 3, "{}: at most three attempts", case.label);
                        break;
                    }
                }
            }
            rig.now = rig.now + secs(0.01);
        }
        assert!(retries <= first / 5 + 10, "{}: {retries} of {first}", case.label);
        assert!(retries >= first / 5 && out_of_budget > 0, "{}", case.label);
    }
}

#[test]
fn a_retry_with_nobody_left_says_so() {
    for case in cases() {
        let mut rig = Rig::of(&case.cfg, &[Service::Delay(0.1)], 1);
        let attempted = [EndpointId(0)];
        let retry = Request { attempted: &attempted, hash_key: Some(1), ..Request::default() };
        assert_eq!(rig.offer_as(&retry), Err(Shed::Exhausted), "{}", case.label);
    }
}

fn sticky(mut cfg: PoolConfig) -> PoolConfig {
    cfg.affinity = Some(AffinityConfig { hold: secs(10.0), max_keys: 100 });
    cfg
}

fn session(rig: &mut Rig, key: u64) -> EndpointId {
    let request = Request { affinity_key: Some(key), hash_key: Some(rig.rng.next_u64()), ..Request::default() };
    rig.offer_as(&request).unwrap_or_else(|why| unreachable!("{why:?}"))
}

#[test]
fn a_session_keeps_its_endpoint_over_any_policy() {
    for case in cases() {
        let mut rig = Rig::of(&sticky(case.cfg), &[Service::Delay(0.01); 4], 5);
        let homes: Vec<EndpointId> = (0..40).map(|key| session(&mut rig, key)).collect();
        for _ in 0..20 {
            let next = rig.now + secs(0.1);
            rig.advance(next);
            for (key, &home) in homes.iter().enumerate() {
                assert_eq!(session(&mut rig, key as u64), home, "{}", case.label);
            }
        }
        let endpoint = homes[0];
        let away = |rig: &mut Rig, draining| rig.event(Event::Drain { endpoint, draining });
        away(&mut rig, true);
        let next = rig.now + secs(5.0);
        assert_ne!(session(&mut rig, 0), endpoint);
        rig.advance(next);
        away(&mut rig, false);
        // Home again after a short outage, as soon as the ramp lets it.
        let mut home = false;
        for _ in 0..200 {
            let next = rig.now + secs(0.05);
            rig.advance(next);
            (100..110).for_each(|key| {
                session(&mut rig, key);
            });
            home |= session(&mut rig, 0) == endpoint;
        }
        assert!(home && session(&mut rig, 0) == endpoint, "{}", case.label);
        // A longer outage moves it for good.
        away(&mut rig, true);
        session(&mut rig, 0);
        let next = rig.now + secs(11.0);
        rig.advance(next);
        let moved = session(&mut rig, 0);
        away(&mut rig, false);
        let next = rig.now + secs(60.0);
        rig.advance(next);
        assert_ne!(moved, endpoint);
        assert_eq!(session(&mut rig, 0), moved, "{}", case.label);
    }
}

#[test]
fn sessions_are_bounded_in_memory_and_do_not_flood_a_returning_endpoint() {
    for case in cases() {
        let mut cfg = sticky(case.cfg);
        cfg.affinity = Some(AffinityConfig { hold: secs(10.0), max_keys: 500 });
        if let Some(load) = &mut cfg.load {
            load.per_request = Some(0.0001);
        }
        let mut rig = Rig::of(&cfg, &[Service::Delay(0.02); 4], 5);
        rig.stop_reports();
        for key in 0..5000 {
            session(&mut rig, key);
            let next = rig.now + secs(0.001);
            rig.advance(next);
            assert!(rig.pool.affinity_keys() <= 500, "{}", case.label);
        }
        let endpoint = EndpointId(2);
        rig.event(Event::Drain { endpoint, draining: true });
        (4500..5000).for_each(|key| {
            session(&mut rig, key);
        });
        let next = rig.now + secs(1.0);
        rig.advance(next);
        rig.event(Event::Drain { endpoint, draining: false });
        rig.take_sent();
        (4500..5000).for_each(|key| {
            session(&mut rig, key);
        });
        // 500 requests at a sixteenth of a quarter: eight, 1.05 of that, and two tokens.
        assert!(rig.sent[2] <= 12, "{}: {} sessions came home in one instant", case.label, rig.sent[2]);
    }
}

#[test]
fn adaptive_learns_from_requests_that_affinity_placed() {
    let mut rig = Rig::of(&sticky(config("adaptive", &[])), &[Service::Queue(0.01), Service::Queue(0.2)], 5);
    let homes: Vec<EndpointId> = (0..8).map(|key| session(&mut rig, key)).collect();
    let slow = homes.iter().position(|id| id.index() == 1).unwrap_or_default() as u64;
    for _ in 0..30 {
        let next = rig.now + secs(0.5);
        rig.advance(next);
        session(&mut rig, slow);
    }
    rig.take_sent();
    let next = rig.now + secs(2.0);
    rig.advance(next);
    (0..10).for_each(|_| {
        rig.offer();
    });
    assert!(rig.sent[0] >= 9, "its sessions told how slow it is: {:?}", rig.sent);
}

#[test]
fn late_events_about_requests_and_endpoints_that_are_gone_change_nothing() {
    for case in cases() {
        let mut rig = Rig::of(&case.cfg, &[Service::Delay(0.1); 3], 5);
        rig.run(50.0, 1.0);
        let admit = |rig: &mut Rig| -> Ticket {
            match rig.pool.admit(rig.now, &Request { hash_key: Some(5), ..Request::default() }, None) {
                Decision::Send { ticket, .. } => ticket,
                other => unreachable!("{other:?}"),
            }
        };
        let ticket = admit(&mut rig);
        let (key, id) = (ticket.key(), ticket.endpoint());
        rig.pool.settle(rig.now, ticket, Outcome::new(Verdict::Cancelled));
        rig.event(Event::FirstByte(key));
        rig.drain();
        rig.pool.remove(rig.now, id);
        rig.pool.remove(rig.now, id);
        rig.effects();
        for endpoint in [id, EndpointId(999)] {
            rig.check(endpoint, false);
            rig.check(endpoint, true);
            rig.report(endpoint, 0.5);
            rig.event(Event::Drain { endpoint, draining: false });
            rig.event(Event::Weight { endpoint, weight: 1.0 });
            rig.event(Event::LoadMissed(endpoint));
            rig.event(Event::Progress { endpoint, tokens: 5 });
        }
        assert_eq!(rig.effects(), [], "{}", case.label);
        let reused = rig.add(Service::Delay(0.1));
        assert_eq!(reused, id, "its slot is free again");
        assert_eq!(rig.pool.endpoints().stats[id.index()].dispatched, 0, "and knows nothing of the one before");
    }
}
