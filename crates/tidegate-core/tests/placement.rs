//! Models, adapters and contexts: a request goes only where it can be served, whatever the policy.
mod driver;

use driver::params;
use tidegate_core::balance::registry;
use tidegate_core::event::Event;
use tidegate_core::explain::Explain;
use tidegate_core::hash::hash_bytes;
use tidegate_core::id::EndpointId;
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::placement::Serves;
use tidegate_core::pool::config::{EndpointConfig, PoolConfig};
use tidegate_core::pool::{Decision, Pool, Shed, Ticket};
use tidegate_core::queue::QueueConfig;
use tidegate_core::request::Request;
use tidegate_core::time::{Duration, Instant};

const DONE: Outcome = Outcome::new(Verdict::Success);

fn model(name: &str) -> u64 {
    hash_bytes(name.as_bytes())
}

fn models(names: &[&str]) -> Serves {
    Serves { models: Some(names.iter().map(|n| model(n)).collect()), ..Serves::default() }
}

fn asks(name: &str) -> Request<'static> {
    Request { model: model(name), prompt_tokens: Some(100), ..Request::default() }
}

fn pool_of(policy: &str, serves: &[Serves], change: impl Fn(&mut PoolConfig)) -> Pool {
    let mut cfg = PoolConfig::new(params(policy, &[]));
    cfg.queue = None;
    change(&mut cfg);
    let mut pool = Pool::new(cfg, false, 3);
    for (k, serves) in serves.iter().enumerate() {
        pool.add(Instant::ORIGIN, EndpointConfig { serves: serves.clone(), ..EndpointConfig::new(format!("e{k}")) });
    }
    pool
}

fn at(s: f64) -> Instant {
    Instant::from_secs_f64(s)
}

fn sent(decision: Decision) -> Ticket {
    match decision {
        Decision::Send { ticket, .. } => ticket,
        other => unreachable!("not sent: {other:?}"),
    }
}

fn refused(decision: Decision) -> Shed {
    match decision {
        Decision::Shed { why, .. } => why,
        other => unreachable!("not refused: {other:?}"),
    }
}

fn place(pool: &mut Pool, now: Instant, req: &Request<'_>) -> u32 {
    let ticket = sent(pool.admit(now, req, None));
    let id = ticket.endpoint();
    pool.settle(now, ticket, DONE);
    id.0
}

#[test]
fn under_every_policy_a_model_s_requests_go_only_where_it_is_served() {
    for descriptor in registry::all() {
        let serves = [models(&["a"]), models(&["b"]), models(&["a", "b"]), Serves::default(), models(&["c"])];
        let mut pool = pool_of(descriptor.name, &serves, |_| {});
        for k in 0..200u64 {
            let now = at(k as f64);
            let key = Some(k.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let with = |req: Request<'static>| Request { hash_key: key, affinity_key: key, ..req };
            assert!([0, 2, 3].contains(&place(&mut pool, now, &with(asks("a")))), "{}", descriptor.name);
            assert!([1, 2, 3].contains(&place(&mut pool, now, &with(asks("b")))), "{}", descriptor.name);
            assert_eq!(
                place(&mut pool, now, &with(asks("unheard of"))),
                3,
                "{}: only one takes anything",
                descriptor.name
            );
        }
    }
}

#[test]
fn a_model_that_nobody_serves_is_said_to_be_none_and_no_model_goes_anywhere() {
    let mut pool = pool_of("round_robin", &[models(&["a"]), models(&["b"])], |_| {});
    assert_eq!(refused(pool.admit(at(0.0), &asks("c"), None)), Shed::ModelNotServed);
    let mut seen: Vec<u32> = (0..2).map(|_| place(&mut pool, at(0.0), &Request::default())).collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1]);
    // Served, but not now: that is another answer.
    pool.on_event(at(1.0), Event::Drain { endpoint: EndpointId(0), draining: true });
    assert_eq!(refused(pool.admit(at(1.0), &asks("a"), None)), Shed::NoEndpoint);
    pool.remove(at(2.0), EndpointId(0));
    assert_eq!(refused(pool.admit(at(2.0), &asks("a"), None)), Shed::ModelNotServed);
}

#[test]
fn what_an_endpoint_says_holds_where_its_settings_say_nothing() {
    let mut pool = pool_of("round_robin", &[Serves::default(), models(&["b"])], |_| {});
    assert_eq!(place(&mut pool, at(0.0), &asks("a")), 0, "not asked yet: anything");
    pool.on_serves(at(1.0), EndpointId(0), &models(&["a"]));
    pool.on_serves(at(1.0), EndpointId(1), &models(&["a"]));
    assert_eq!([0, 1].map(|_| place(&mut pool, at(1.0), &asks("b"))), [1, 1]);
    assert_eq!([0, 1].map(|_| place(&mut pool, at(1.0), &asks("a"))), [0, 0], "settings go first");
    pool.change(at(2.0), EndpointId(1), &EndpointConfig::new("e1"));
    assert_eq!(pool.serves(EndpointId(1)), Some(&models(&["a"])));
}

#[test]
fn a_long_prompt_goes_where_it_fits_and_one_too_long_for_all_where_most_fits() {
    let fits = |max| Serves { max_context: Some(max), ..Serves::default() };
    for descriptor in registry::all() {
        let mut pool = pool_of(descriptor.name, &[fits(8_000), fits(32_000)], |_| {});
        let asks = |prompt, max_output| Request { prompt_tokens: Some(prompt), max_output, ..Request::default() };
        for k in 0..20 {
            let now = at(f64::from(k));
            assert_eq!(place(&mut pool, now, &asks(7_000, 0)), 1, "an estimate needs a margin");
            assert_eq!(place(&mut pool, now, &asks(4_000, 4_000)), 1, "the answer has to fit too");
            assert_eq!(place(&mut pool, now, &asks(50_000, 0)), 1, "the engine judges better than an estimate");
        }
        pool.on_event(at(30.0), Event::Drain { endpoint: EndpointId(1), draining: true });
        assert_eq!(place(&mut pool, at(30.0), &asks(6_000, 0)), 0);
        assert_eq!(
            refused(pool.admit(at(30.0), &asks(7_000, 0), None)),
            Shed::NoEndpoint,
            "not where it fails for sure"
        );
    }
}

#[test]
fn a_retry_stays_with_the_model() {
    let mut pool = pool_of("adaptive", &[models(&["a"]), models(&["a"]), models(&["b"])], |_| {});
    let first = sent(pool.admit(at(0.0), &asks("a"), None));
    let attempted = [first.endpoint()];
    pool.settle(at(0.1), first, Outcome::new(Verdict::Failed(Failure::Reset)));
    let again = Request { attempted: &attempted, ..asks("a") };
    let second = sent(pool.admit(at(0.1), &again, None));
    assert!(second.endpoint() != attempted[0] && second.endpoint().0 < 2);
    let attempted = [attempted[0], second.endpoint()];
    pool.settle(at(0.2), second, Outcome::new(Verdict::Failed(Failure::Reset)));
    let last = Request { attempted: &attempted, ..asks("a") };
    assert_eq!(refused(pool.admit(at(0.2), &last, None)), Shed::Exhausted);
}

#[test]
fn who_waits_for_one_model_does_not_hold_up_another() {
    let mut pool = pool_of("least_connections", &[], |cfg| cfg.queue = Some(QueueConfig::default()));
    for name in ["a", "b"] {
        let cfg = EndpointConfig { max_in_flight: Some(1), serves: models(&[name]), ..EndpointConfig::new(name) };
        pool.add(Instant::ORIGIN, cfg);
    }
    let busy = sent(pool.admit(at(0.0), &asks("a"), None));
    let Decision::Wait { waiter, .. } = pool.admit(at(0.0), &asks("a"), None) else { unreachable!("it waits") };
    for _ in 0..3 {
        let other = sent(pool.admit(at(0.1), &asks("b"), None));
        assert_eq!(other.endpoint(), EndpointId(1), "a place is free for it, whoever waits");
        pool.settle(at(0.2), other, DONE);
    }
    pool.settle(at(1.0), busy, DONE);
    let turn = sent(pool.claim(at(1.0), waiter));
    assert_eq!(turn.endpoint(), EndpointId(0));
    pool.settle(at(2.0), turn, DONE);
    assert_eq!((pool.in_flight(), pool.waiting()), (0, 0));
}

#[test]
fn all_that_serve_a_model_being_new_holds_nobody_back() {
    // The others are proven, but they cannot help.
    let mut pool = pool_of("round_robin", &[models(&["b"]), models(&["b"])], |_| {});
    place(&mut pool, at(0.0), &asks("b"));
    let cfg = EndpointConfig { serves: models(&["a"]), ..EndpointConfig::new("new") };
    let new = pool.add(at(1.0), cfg);
    for _ in 0..50 {
        assert_eq!(place(&mut pool, at(1.0), &asks("a")), new.0);
    }
}

fn adapters(names: &[&str], max: u32) -> Serves {
    Serves {
        models: Some(vec![model("base")]),
        adapters: names.iter().map(|n| model(n)).collect(),
        max_adapters: Some(max),
        ..Serves::default()
    }
}

/// A pool in which every endpoint takes 10 ms per 100 tokens, as it has learned.
fn learned(policy: &str, serves: &[Serves]) -> (Pool, f64) {
    let mut pool = pool_of(policy, serves, |cfg| cfg.adapter_load = Duration::from_millis(300));
    let mut now = 0.0;
    for _ in 0..100 {
        let ticket = sent(pool.admit(at(now), &asks("base"), None));
        now += 0.01;
        pool.settle(at(now), ticket, DONE);
    }
    (pool, now)
}

#[test]
fn an_adapter_s_requests_go_where_it_is_loaded_until_the_queue_there_costs_more() {
    for policy in ["adaptive", "least_work"] {
        let all = ["x", "y", "z"];
        let (mut pool, mut now) = learned(policy, &[adapters(&all, 2), adapters(&all, 2), adapters(&all, 2)]);
        let home = place(&mut pool, at(now), &asks("x"));
        for _ in 0..20 {
            now += 0.05;
            let ticket = sent(pool.admit(at(now), &asks("x"), None));
            assert_eq!(ticket.endpoint().0, home, "{policy}");
            pool.settle(at(now + 0.01), ticket, DONE);
        }
        // 10 ms each: thirty in line are as dear as loading it elsewhere.
        let tickets: Vec<Ticket> = (0..45).map(|_| sent(pool.admit(at(now), &asks("x"), None))).collect();
        let here = tickets.iter().filter(|t| t.endpoint().0 == home).count();
        assert!((25..45).contains(&here), "{policy}: {here}");
        tickets.into_iter().for_each(|t| pool.settle(at(now + 1.0), t, DONE));
    }
}

#[test]
fn a_place_held_by_an_adapter_in_use_is_dearer_than_a_free_one() {
    let all = ["x", "y", "z"];
    let (mut pool, now) = learned("adaptive", &[adapters(&all, 1), adapters(&all, 1)]);
    let x = sent(pool.admit(at(now), &asks("x"), None));
    let mut explain = Explain::default();
    let y = sent(pool.admit(at(now), &asks("y"), Some(&mut explain)));
    assert_ne!(x.endpoint(), y.endpoint());
    let cost = |id: EndpointId| explain.candidates.iter().find(|c| c.0 == id).map_or(f64::NAN, |c| c.1);
    assert!(cost(x.endpoint()) > cost(y.endpoint()), "{:?}", explain.candidates);
    for ticket in [x, y] {
        pool.settle(at(now + 0.01), ticket, DONE);
    }
    // What the engine says of other clients' adapters counts like own ones.
    let told = Serves { adapters_in_use: Some(vec![model("z")]), ..Serves::default() };
    let quiet = Serves { adapters_in_use: Some(Vec::new()), ..Serves::default() };
    pool.on_serves(at(now + 0.02), EndpointId(1), &told);
    pool.on_serves(at(now + 0.02), EndpointId(0), &quiet);
    assert_eq!(place(&mut pool, at(now + 0.02), &asks("z")), 1);
}

#[test]
fn an_adapter_served_in_one_place_only_goes_there() {
    let (mut pool, now) = learned("adaptive", &[adapters(&["x"], 1), adapters(&["y"], 1)]);
    for _ in 0..20 {
        assert_eq!(place(&mut pool, at(now), &asks("x")), 0);
        assert_eq!(place(&mut pool, at(now), &asks("y")), 1);
    }
    assert_eq!(refused(pool.admit(at(now), &asks("w"), None)), Shed::ModelNotServed);
}

fn queued(max_waiting: usize) -> Pool {
    let queue = QueueConfig { max_waiting, max_per_tenant: max_waiting, ..QueueConfig::default() };
    let mut pool = pool_of("adaptive", &[], |cfg| cfg.queue = Some(queue.clone()));
    for name in ["a", "b"] {
        let max_in_flight = (name == "a").then_some(1);
        pool.add(
            Instant::ORIGIN,
            EndpointConfig { max_in_flight, serves: models(&[name]), ..EndpointConfig::new(name) },
        );
    }
    pool
}

#[test]
fn whoever_waits_an_unknown_model_is_none_and_a_full_queue_of_one_model_is_none_of_another_s() {
    let mut pool = queued(3);
    let busy = sent(pool.admit(at(0.0), &asks("a"), None));
    let waiters: Vec<_> = (0..3)
        .map(|_| match pool.admit(at(0.0), &asks("a"), None) {
            Decision::Wait { waiter, .. } => waiter,
            other => unreachable!("{other:?}"),
        })
        .collect();
    assert_eq!(refused(pool.admit(at(0.1), &asks("zz"), None)), Shed::ModelNotServed);
    assert_eq!(refused(pool.admit(at(0.1), &asks("a"), None)), Shed::QueueFull);
    let other = sent(pool.admit(at(0.1), &asks("b"), None));
    pool.settle(at(0.2), other, DONE);
    // Its model goes away: nobody waits for nothing.
    pool.change(at(0.3), EndpointId(0), &EndpointConfig { serves: models(&["x"]), ..EndpointConfig::new("a") });
    for waiter in waiters {
        assert_eq!(refused(pool.claim(at(0.3), waiter)), Shed::ModelNotServed);
    }
    pool.settle(at(0.4), busy, DONE);
    assert_eq!((pool.in_flight(), pool.waiting()), (0, 0));
}

#[test]
fn an_endpoint_that_was_never_read_gets_only_what_nobody_is_known_to_serve() {
    let mut pool = pool_of("round_robin", &[Serves::default(), Serves::default()], |cfg| cfg.asks_models = true);
    let mut seen: Vec<u32> = (0..2).map(|_| place(&mut pool, at(0.0), &asks("a"))).collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1], "nobody has answered yet");
    pool.on_serves(at(1.0), EndpointId(0), &models(&["a"]));
    for _ in 0..5 {
        assert_eq!(place(&mut pool, at(1.0), &asks("a")), 0);
        assert_eq!(place(&mut pool, at(1.0), &asks("b")), 1, "it may be there");
    }
    // One that joins later, and what another process knew.
    let new = pool.add(at(2.0), EndpointConfig::new("new"));
    assert_eq!([0, 1].map(|_| place(&mut pool, at(2.0), &asks("a"))), [0, 0]);
    let mut next = pool_of("round_robin", &[Serves::default(), Serves::default()], |cfg| cfg.asks_models = true);
    next.restore(at(2.0), &pool.save(at(2.0)));
    assert_eq!([0, 1].map(|_| place(&mut next, at(2.0), &asks("a"))), [0, 0]);
    // A page that is none: it serves anything, as one that is not asked.
    pool.on_serves(at(3.0), new, &Serves::default());
    assert!((0..60).any(|_| place(&mut pool, at(3.0), &asks("a")) == new.0));
    // Nobody asks any more.
    let mut cfg = pool.config().clone();
    cfg.asks_models = false;
    pool.reconfigure(at(4.0), cfg, false);
    assert!((0..60).any(|_| place(&mut pool, at(4.0), &asks("a")) == 1));
}

#[test]
fn polls_that_begin_anew_do_not_take_away_what_an_engine_said() {
    let mut pool = pool_of("round_robin", &[Serves::default(), Serves::default()], |cfg| cfg.asks_models = true);
    pool.on_serves(at(0.0), EndpointId(0), &models(&["a"]));
    pool.on_serves(at(0.0), EndpointId(1), &models(&["b"]));
    // Its metrics are read before its list.
    let metrics = Serves { is_unread: true, max_adapters: Some(4), ..Serves::default() };
    pool.on_serves(at(1.0), EndpointId(0), &metrics);
    assert_eq!(pool.serves(EndpointId(0)), Some(&Serves { max_adapters: Some(4), ..models(&["a"]) }));
    assert_eq!([0, 1].map(|_| place(&mut pool, at(1.0), &asks("b"))), [1, 1]);
}
