use super::setup::{Outage, Shot, Site};
use super::*;
use crate::engine::EngineSpec;
use crate::engine::fixed::FixedParams;
use crate::fault::{Fault, FaultKind};
use crate::workload::Arrivals;
use tidegate_core::balance::registry;
use tidegate_core::descriptor::Params;

fn fixed(name: &str, delay_s: f64, slots: Option<u32>) -> Site {
    let spec = EngineSpec::Fixed(FixedParams { delay_s, slots, ..FixedParams::default() });
    Site { name: name.into(), spec, weight: 1.0, max_in_flight: None }
}

fn setup(sites: Vec<Site>, source: Source) -> Setup {
    Setup {
        sites,
        replicas: 1,
        probes: None,
        check_every: None,
        network: Duration::ZERO,
        source,
        stream: false,
        goal: Default::default(),
        outages: Vec::new(),
    }
}

fn run(setup: &Setup, policy: &str, seed: u64) -> Tally {
    let descriptor = registry::find(policy).unwrap();
    Kernel::new(setup, &PoolConfig::new(Params::defaults(descriptor)), seed).run()
}

fn poisson(rate: f64, length_s: u64) -> Source {
    let length = Duration::from_secs(length_s);
    Source::Open { arrivals: Arrivals::Poisson { rate }, length, tokens: (1, 1) }
}

#[test]
fn a_round_takes_what_can_be_worked_out_by_hand() {
    // One client, ten requests of one second each.
    let source = Source::Closed { clients: 1, requests: 10, rounds: 2, tokens: (1, 1) };
    let tally = run(&setup(vec![fixed("a", 1.0, None)], source), "round_robin", 1);
    assert_eq!((tally.rounds, tally.succeeded), (vec![10.0, 10.0], 20));
}

#[test]
fn the_network_is_paid_both_ways() {
    let shots: std::sync::Arc<[Shot]> = [Shot { at: Duration::ZERO, prompt_tokens: 1, output_tokens: 1 }].into();
    let mut s = setup(vec![fixed("a", 1.0, None)], Source::Trace(shots));
    s.network = Duration::from_millis(20);
    assert!((run(&s, "random", 1).total.mean_s().unwrap() - 1.04).abs() < 1e-9);
}

#[test]
fn every_request_ends_once_and_equal_seeds_are_equal() {
    for d in registry::all() {
        let s = setup(vec![fixed("a", 0.1, None), fixed("b", 0.2, Some(2)), fixed("c", 0.3, None)], poisson(20.0, 50));
        let (one, two) = (run(&s, d.name, 3), run(&s, d.name, 3));
        assert_eq!(one.requests, one.dispatched.iter().sum::<u64>(), "{}", d.name);
        assert_eq!((one.requests, one.dispatched.clone()), (two.requests, two.dispatched), "{}", d.name);
        assert_eq!(one.total.mean_s(), two.total.mean_s(), "{}", d.name);
        assert_eq!(one.succeeded, one.requests, "{}", d.name);
    }
}

#[test]
fn a_dead_endpoint_costs_retries_and_no_answers() {
    let mut s = setup(vec![fixed("a", 0.1, None), fixed("b", 0.1, None), fixed("c", 0.1, None)], poisson(50.0, 60));
    let fault = Fault { for_s: Some(20.0), ..Fault::of(FaultKind::Refuse) };
    s.outages.push(Outage { site: 1, at: Duration::from_secs(20), fault });
    let tally = run(&s, "least_connections", 1);
    assert_eq!(tally.succeeded, tally.requests);
    assert!(tally.retries > 0 && tally.retries < 100, "{}", tally.retries);
}

#[test]
fn replicas_share_the_engines() {
    let mut s = setup(vec![fixed("a", 0.1, Some(4)), fixed("b", 0.1, Some(4))], poisson(60.0, 60));
    s.replicas = 3;
    let mut pool = PoolConfig::new(Params::defaults(registry::default_policy()));
    pool.replicas = 3.0;
    let tally = Kernel::new(&s, &pool, 1).run();
    assert!(tally.succeeded == tally.requests && tally.imbalance() < 1.1, "{}", tally.imbalance());
}
