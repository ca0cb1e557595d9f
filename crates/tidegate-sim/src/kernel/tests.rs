use super::governance::Governance;
use super::setup::{Outage, Party, Shot, Site};
use super::*;
use crate::engine::EngineSpec;
use crate::engine::fixed::FixedParams;
use crate::fault::{Fault, FaultKind};
use crate::workload::{Arrivals, Burst};
use tidegate_core::balance::registry;
use tidegate_core::descriptor::Params;

fn fixed(name: &str, delay_s: f64, slots: Option<u32>) -> Site {
    let spec = EngineSpec::Fixed(FixedParams { delay_s, slots, ..FixedParams::default() });
    Site::new(name, spec)
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
        told_goal: None,
        outages: Vec::new(),
        lies: Vec::new(),
        elastic: Default::default(),
        queries: None,
        max_tokens: None,
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
    let shots: std::sync::Arc<[Shot]> =
        [Shot { at: Duration::ZERO, prompt_tokens: 1, output_tokens: 1, client: 0, key: None, prompt: (0, 0) }].into();
    let mut s = setup(vec![fixed("a", 1.0, None)], Source::Trace(shots.into()));
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

fn party(name: &str, count: u32, rate: f64, burst: Option<Burst>) -> Party {
    let arrivals = Arrivals::Poisson { rate };
    Party { name: name.into(), count, arrivals, burst, tokens: (10, 10), weight: 1.0, priority: None }
}

fn tenants(parties: Vec<Party>) -> Source {
    Source::Tenants { parties: parties.into(), length: Duration::from_secs(30) }
}

/// A limit of `amount` requests per second for each tenant.
fn per_tenant(amount: f64) -> Governance {
    use tidegate_core::limit::limits::config::{LimitConfig, LimitsConfig, RateConfig, RuleConfig};
    use tidegate_core::limit::{Quantity, Scope};
    let limit = LimitConfig::Rate(RateConfig::new(Scope::Tenant, amount, Duration::from_secs(1)));
    let rule = RuleConfig { name: "each".into(), quantity: Quantity::Requests, limit, only: None };
    Governance {
        name: "each".into(),
        limits: LimitsConfig { rules: vec![rule], concurrency: Vec::new() },
        waits: Vec::new(),
        classes: Vec::new(),
        told_apart: true,
        known_lengths: false,
        windows: false,
        naive_attempts: None,
    }
}

fn pool() -> PoolConfig {
    PoolConfig::new(Params::defaults(registry::default_policy()))
}

#[test]
fn a_burst_changes_nobody_else_s_arrivals() {
    let burst = Burst { at: Duration::from_secs(10), length: Duration::from_secs(10), factor: 20.0 };
    let day = |burst| tenants(vec![party("quiet", 3, 2.0, None), party("promo", 1, 2.0, burst)]);
    let run = |source| {
        let s = setup(vec![fixed("a", 0.01, None)], source);
        Kernel::new(&s, &pool(), 1).run().parties
    };
    let (calm, busy) = (run(day(None)), run(day(Some(burst))));
    assert_eq!(calm[0].requests, busy[0].requests);
    assert_eq!(calm[0].total.mean_s(), busy[0].total.mean_s());
    assert!(busy[1].requests > 4 * calm[1].requests, "{} {}", busy[1].requests, calm[1].requests);
}

#[test]
fn limits_know_each_tenant_and_get_back_what_was_reserved() {
    let s = setup(
        vec![fixed("a", 0.01, None)],
        tenants(vec![party("greedy", 1, 100.0, None), party("quiet", 4, 2.0, None)]),
    );
    let mut kernel = Kernel::new(&s, &pool(), 1).governed(&per_tenant(10.0));
    kernel.play();
    let [greedy, quiet] = &kernel.tally.parties[..] else { panic!("two parties") };
    assert!((300..=320).contains(&greedy.succeeded) && greedy.refused == greedy.requests - greedy.succeeded);
    assert_eq!((quiet.refused, quiet.succeeded), (0, quiet.requests));
    assert_eq!(kernel.governors[0].limits.outstanding(), 0);
    assert_eq!(kernel.tally.requests, greedy.requests + quiet.requests);
}

#[test]
fn tenants_that_are_not_told_apart_share_what_one_has() {
    let s = setup(vec![fixed("a", 0.01, None)], tenants(vec![party("a", 5, 20.0, None)]));
    let together = Governance { told_apart: false, ..per_tenant(10.0) };
    let tally = Kernel::new(&s, &pool(), 1).governed(&together).run();
    assert!((300..=320).contains(&tally.succeeded), "{}", tally.succeeded);
}

#[test]
fn naive_attempts_are_as_many_as_said_whatever_the_budget() {
    let mut s = setup(vec![fixed("a", 0.1, None), fixed("b", 0.1, None)], poisson(20.0, 30));
    for site in 0..2 {
        s.outages.push(Outage { site, at: Duration::ZERO, fault: Fault::of(FaultKind::Refuse) });
    }
    let naive = Governance { naive_attempts: Some(3), ..per_tenant(1e6) };
    let tally = Kernel::new(&s, &pool(), 1).governed(&naive).run();
    assert_eq!((tally.retries, tally.succeeded), (2 * tally.requests, 0));
}
