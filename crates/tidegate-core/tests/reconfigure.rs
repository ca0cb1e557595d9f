//! New settings for a pool that runs: what stays, and what follows them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of a test, which is there to fail")]
mod driver;

use driver::{FAILED, at, breaker, secs};
use tidegate_core::balance::registry;
use tidegate_core::breaker::Level;
use tidegate_core::descriptor::{Params, Value};
use tidegate_core::endpoint::Gate;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::outcome::{Outcome, Verdict};
use tidegate_core::pool::config::{EndpointConfig, Panic, PoolConfig};
use tidegate_core::pool::{Decision, Pool, Ticket};
use tidegate_core::queue::{ClassConfig, QueueConfig};
use tidegate_core::request::Request;

fn config(policy: &str) -> PoolConfig {
    let mut cfg = PoolConfig::new(Params::defaults(registry::find(policy).unwrap()));
    cfg.breaker = breaker("classic", &[("consecutive_errors", Value::Integer(2))]);
    cfg
}

fn pool(cfg: &PoolConfig, endpoints: u32, max_in_flight: Option<u32>) -> Pool {
    let mut pool = Pool::new(cfg.clone(), false, 1);
    for k in 0..endpoints {
        let _ = pool.add(at(0.0), EndpointConfig { max_in_flight, ..EndpointConfig::new(format!("e{k}")) });
    }
    pool
}

#[track_caller]
fn sent(decision: Decision) -> Ticket {
    match decision {
        Decision::Send { ticket, .. } => ticket,
        other => panic!("not sent: {other:?}"),
    }
}

/// Sends until `endpoint` has had `n` requests that ended as `verdict`.
fn end(pool: &mut Pool, now: f64, endpoint: EndpointId, n: u32, verdict: Verdict) {
    let mut left = n;
    while left > 0 {
        let ticket = sent(pool.admit(at(now), &Request::default(), None));
        let hit = ticket.endpoint() == endpoint;
        left -= u32::from(hit);
        pool.settle(at(now), ticket, Outcome::new(if hit { verdict } else { Verdict::Success }));
    }
}

#[test]
fn an_open_breaker_stays_open_unless_other_tests_take_over() {
    let cfg = config("round_robin");
    let mut pool = pool(&cfg, 4, None);
    end(&mut pool, 1.0, EndpointId(1), 2, FAILED);
    assert_eq!(pool.level(EndpointId(1), 0), Level::Open);
    let patient = PoolConfig {
        breaker: breaker("classic", &[("consecutive_errors", Value::Integer(50))]),
        policy: Params::defaults(registry::find("least_connections").unwrap()),
        ..cfg.clone()
    };
    pool.reconfigure(at(1.1), patient, false);
    assert_eq!(pool.level(EndpointId(1), 0), Level::Open, "what was found is not forgotten");
    end(&mut pool, 1.2, EndpointId(2), 49, FAILED);
    assert_eq!(pool.level(EndpointId(2), 0), Level::Full, "the new threshold holds for the others");
    pool.reconfigure(at(1.3), PoolConfig { breaker: breaker("off", &[]), ..cfg }, false);
    assert_eq!(pool.level(EndpointId(1), 0), Level::Full, "without a breaker nobody is open");
    assert_eq!(pool.count(Gate::Usable), 4);
}

#[test]
fn a_request_sent_under_other_tests_decides_nothing() {
    let cfg = config("round_robin");
    let mut pool = pool(&cfg, 3, None);
    let old: Vec<Ticket> = (0..9).map(|_| sent(pool.admit(at(0.0), &Request::default(), None))).collect();
    pool.reconfigure(at(0.1), PoolConfig { breaker: breaker("adaptive", &[]), ..cfg.clone() }, false);
    pool.reconfigure(at(0.2), cfg, false);
    old.into_iter().for_each(|t| pool.settle(at(0.3), t, Outcome::new(FAILED)));
    assert_eq!((pool.in_flight(), pool.count(Gate::Usable)), (0, 3));
}

#[test]
fn learned_speeds_survive_new_parameters_of_the_same_policy() {
    let cfg = config("adaptive");
    let mut pool = pool(&cfg, 2, None);
    // The second endpoint is four times as slow.
    for k in 0..200 {
        let now = f64::from(k);
        let ticket = sent(pool.admit(at(now), &Request { prompt_tokens: Some(100), ..Request::default() }, None));
        let took = if ticket.endpoint() == EndpointId(0) { 0.1 } else { 0.4 };
        pool.settle(at(now + took), ticket, Outcome::new(Verdict::Success));
    }
    let mut policy = cfg.policy.clone();
    policy.set("tie", Value::Float(0.04)).unwrap();
    pool.reconfigure(at(200.0), PoolConfig { policy, ..cfg.clone() }, false);
    let fast = |pool: &mut Pool, now: f64| {
        let ticket = sent(pool.admit(at(now), &Request { prompt_tokens: Some(100), ..Request::default() }, None));
        let is_fast = ticket.endpoint() == EndpointId(0);
        pool.settle(at(now + if is_fast { 0.1 } else { 0.4 }), ticket, Outcome::new(Verdict::Success));
        is_fast
    };
    assert!((0..5).all(|k| fast(&mut pool, 201.0 + f64::from(k))), "the fast one is known");
}

#[test]
fn what_an_operator_or_a_rule_set_stays_where_the_setting_did_not_change() {
    let cfg = PoolConfig { max_in_flight: Some(10), ..config("round_robin") };
    let mut pool = pool(&cfg, 2, None);
    let id = EndpointId(0);
    pool.on_event(at(1.0), Event::MaxInFlight(3));
    pool.on_event(at(1.0), Event::Weight { endpoint: id, weight: 7.0 });
    pool.reconfigure(at(2.0), PoolConfig { max_load: None, ..cfg.clone() }, false);
    pool.change(at(2.0), id, &EndpointConfig { max_in_flight: Some(5), ..EndpointConfig::new("e0") });
    assert_eq!((pool.limit(), pool.endpoints().get(id).weight), (Some(3), 7.0));
    assert_eq!(pool.max_in_flight(id), Some(5));
    pool.reconfigure(at(3.0), PoolConfig { max_in_flight: Some(20), ..cfg }, false);
    pool.change(at(3.0), id, &EndpointConfig { weight: 2.0, ..EndpointConfig::new("e0") });
    assert_eq!((pool.limit(), pool.endpoints().get(id).weight), (Some(20), 2.0));
    assert_eq!(pool.max_in_flight(id), None);
}

#[test]
fn who_waits_is_served_under_new_classes_and_even_without_a_queue() {
    let class = |name: &str| ClassConfig { name: name.into(), share: 0.0 };
    let queue = |names: &[&str]| {
        let classes = names.iter().map(|n| class(n)).collect();
        Some(QueueConfig { classes, max_wait: secs(60.0), ..QueueConfig::default() })
    };
    let cfg = PoolConfig { queue: queue(&["gold", "rest"]), ..config("round_robin") };
    let mut pool = pool(&cfg, 1, Some(1));
    let first = sent(pool.admit(at(0.0), &Request::default(), None));
    let mut waiters = Vec::new();
    for priority in [1, 1, 0] {
        match pool.admit(at(0.1), &Request { priority, ..Request::default() }, None) {
            Decision::Wait { waiter, .. } => waiters.push(waiter),
            other => panic!("did not wait: {other:?}"),
        }
    }
    // Gold moves down, the rest moves up.
    pool.reconfigure(at(0.2), PoolConfig { queue: queue(&["rest", "silver", "gold"]), ..cfg.clone() }, false);
    assert_eq!(pool.waiting(), 3);
    pool.settle(at(1.0), first, Outcome::new(Verdict::Success));
    let second = sent(pool.claim(at(1.0), waiters.remove(0)));
    pool.reconfigure(at(1.1), PoolConfig { queue: None, ..cfg.clone() }, false);
    assert_eq!(pool.waiting(), 2, "nobody is sent away");
    assert!(matches!(pool.admit(at(1.2), &Request::default(), None), Decision::Shed { .. }), "and nobody joins");
    pool.settle(at(1.3), second, Outcome::new(Verdict::Success));
    let third = sent(pool.claim(at(1.3), waiters.remove(0)));
    pool.settle(at(1.4), third, Outcome::new(Verdict::Success));
    let last = sent(pool.claim(at(1.4), waiters.remove(0)));
    pool.settle(at(1.5), last, Outcome::new(Verdict::Success));
    assert!(pool.queue().is_none() && pool.in_flight() == 0);
}

#[test]
fn checks_that_are_switched_on_refuse_nobody_before_they_have_looked() {
    let cfg = PoolConfig { panic: Panic::Refuse, ..config("round_robin") };
    let mut pool = pool(&cfg, 2, None);
    pool.reconfigure(at(1.0), cfg.clone(), true);
    assert_eq!(pool.count(Gate::Usable), 2);
    for _ in 0..cfg.unhealthy_after {
        pool.on_event(at(2.0), Event::Checked { endpoint: EndpointId(0), passed: false });
    }
    assert_eq!(pool.count(Gate::Unhealthy), 1);
    pool.reconfigure(at(3.0), cfg, false);
    assert_eq!(pool.count(Gate::Usable), 2, "nobody is unhealthy where nothing is checked");
}

#[test]
fn a_new_policy_knows_what_is_in_flight() {
    let cfg = config("random");
    let mut pool = pool(&cfg, 2, None);
    let mut out: Vec<Ticket> = (0..40)
        .map(|_| sent(pool.admit(at(0.0), &Request { prompt_tokens: Some(50), ..Request::default() }, None)))
        .collect();
    for policy in registry::all() {
        pool.reconfigure(at(1.0), PoolConfig { policy: Params::defaults(policy), ..config("random") }, false);
        let ticket = sent(pool.admit(at(1.0), &Request::default(), None));
        pool.settle(at(1.1), ticket, Outcome::new(Verdict::Success));
        if let Some(old) = out.pop() {
            pool.settle(at(1.1), old, Outcome::new(Verdict::Success));
        }
    }
    out.into_iter().for_each(|t| pool.settle(at(2.0), t, Outcome::new(Verdict::Success)));
    assert_eq!(pool.in_flight(), 0);
    assert!(pool.endpoints().hot.iter().all(|e| e.in_flight == 0 && e.pending == 0));
}
