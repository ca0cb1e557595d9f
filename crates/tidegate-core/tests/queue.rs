//! Waiting for a place: promises of the pool's queue.

use tidegate_core::balance::registry::default_policy;
use tidegate_core::descriptor::Params;
use tidegate_core::event::{Effect, Event};
use tidegate_core::id::EndpointId;
use tidegate_core::outcome::{Outcome, Verdict};
use tidegate_core::pool::config::{EndpointConfig, PoolConfig};
use tidegate_core::pool::{Decision, Pool, Shed, Ticket};
use tidegate_core::queue::{QueueConfig, Waiter};
use tidegate_core::request::Request;
use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant};

const DONE: Outcome = Outcome::new(Verdict::Success);

fn pool(places: &[u32], queue: QueueConfig) -> Pool {
    let mut cfg = PoolConfig::new(Params::defaults(default_policy()));
    cfg.queue = Some(queue);
    let mut pool = Pool::new(cfg, false, 7);
    for (k, &max) in places.iter().enumerate() {
        pool.add(Instant::ORIGIN, EndpointConfig { max_in_flight: Some(max), ..EndpointConfig::new(k.to_string()) });
    }
    pool
}

fn at(s: f64) -> Instant {
    Instant::from_secs_f64(s)
}

fn of(tenant: u64) -> Request<'static> {
    Request { tenant, ..Request::default() }
}

fn sent(decision: Decision) -> Ticket {
    match decision {
        Decision::Send { ticket, .. } => ticket,
        other => unreachable!("not sent: {other:?}"),
    }
}

fn waits(decision: Decision) -> Waiter {
    match decision {
        Decision::Wait { waiter, .. } => waiter,
        other => unreachable!("does not wait: {other:?}"),
    }
}

/// Waiters whose turn has come since the last call.
fn turns(pool: &mut Pool) -> Vec<Effect> {
    let mut effects = Vec::new();
    pool.drain_effects(&mut effects);
    effects.retain(|e| matches!(e, Effect::Turn(_)));
    effects
}

#[test]
fn a_freed_place_goes_to_who_waits_and_not_to_who_comes() {
    let mut p = pool(&[1], QueueConfig::default());
    let first = sent(p.admit(at(0.0), &of(1), None));
    let waiter = waits(p.admit(at(0.0), &of(1), None));
    p.settle(at(1.0), first, DONE);
    assert_eq!(turns(&mut p), [Effect::Turn(waiter.id())]);
    let newcomer = waits(p.admit(at(1.0), &of(2), None));
    let ticket = sent(p.claim(at(1.0), waiter));
    p.settle(at(2.0), ticket, DONE);
    let ticket = sent(p.claim(at(2.0), newcomer));
    p.settle(at(3.0), ticket, DONE);
    assert_eq!((p.in_flight(), p.waiting()), (0, 0));
}

#[test]
fn a_client_that_leaves_the_queue_frees_its_place_and_its_turn() {
    // governance.md 47: a permit of a client that timed out in the queue leaked, until none was left.
    let mut p = pool(&[1], QueueConfig::default());
    for round in 0..500 {
        let now = at(f64::from(round));
        let ticket = sent(p.admit(now, &of(1), None));
        let (gone, turned) = (waits(p.admit(now, &of(1), None)), waits(p.admit(now, &of(1), None)));
        p.leave(now, gone);
        p.settle(now, ticket, DONE);
        // Its turn has come, and only then its client leaves.
        p.leave(now, turned);
        assert_eq!((p.in_flight(), p.waiting()), (0, 0), "round {round}");
    }
}

#[test]
fn a_wait_ends_at_its_deadline_with_a_clear_answer() {
    let mut p = pool(&[1], QueueConfig { max_wait: Duration::from_secs(2), ..QueueConfig::default() });
    let held = sent(p.admit(at(0.0), &of(1), None));
    let patient = waits(p.admit(at(0.0), &of(1), None));
    let hasty = waits(p.admit(at(0.0), &Request { deadline: Some(at(0.5)), ..of(1) }, None));
    assert_eq!(p.next_deadline(), Some(at(0.5)));
    p.on_deadline(at(0.5));
    assert_eq!(turns(&mut p), [Effect::Turn(hasty.id())]);
    assert!(matches!(p.claim(at(0.5), hasty), Decision::Shed { why: Shed::QueueTimeout, .. }));
    p.on_deadline(at(2.0));
    assert!(matches!(p.claim(at(2.0), patient), Decision::Shed { why: Shed::QueueTimeout, .. }));
    p.settle(at(3.0), held, DONE);
}

#[test]
fn a_full_queue_answers_at_once_with_the_limit_that_refused() {
    let mut p = pool(&[1], QueueConfig { max_waiting: 2, max_per_tenant: 1, ..QueueConfig::default() });
    let held = sent(p.admit(at(0.0), &of(1), None));
    let a = waits(p.admit(at(0.0), &of(1), None));
    let refused = |p: &mut Pool, tenant| match p.admit(at(0.0), &of(tenant), None) {
        Decision::Shed { why, retry_after } => (why, retry_after.is_some()),
        other => unreachable!("{other:?}"),
    };
    assert_eq!(refused(&mut p, 1), (Shed::TenantQueueFull, true));
    let b = waits(p.admit(at(0.0), &of(2), None));
    assert_eq!(refused(&mut p, 3), (Shed::QueueFull, true));
    p.leave(at(0.0), a);
    p.leave(at(0.0), b);
    p.settle(at(0.0), held, DONE);
}

#[test]
fn a_greedy_tenant_does_not_hold_all_places_of_the_fast_endpoint_while_another_waits() {
    // Endpoint 0 ends its requests ten times faster than endpoint 1.
    let mut p = pool(&[8, 8], QueueConfig::default());
    let mut out: Vec<(f64, Ticket, u64)> = Vec::new();
    let mut waiting: Vec<(u64, Waiter)> = Vec::new();
    let mut ended = [[0u32; 2]; 3];
    let mut now = 0.0;
    let start = |out: &mut Vec<(f64, Ticket, u64)>, now: f64, tenant: u64, ticket: Ticket| {
        let took = if ticket.endpoint() == EndpointId(0) { 0.1 } else { 1.0 };
        out.push((now + took, ticket, tenant));
    };
    while now < 60.0 {
        for (tenant, offered) in [(1, 40), (2, 6)] {
            let held = waiting.iter().filter(|(t, _)| *t == tenant).count()
                + out.iter().filter(|(.., t)| *t == tenant).count();
            for _ in held..offered {
                match p.admit(at(now), &of(tenant), None) {
                    Decision::Send { ticket, .. } => start(&mut out, now, tenant, ticket),
                    Decision::Wait { waiter, .. } => waiting.push((tenant, waiter)),
                    Decision::Shed { .. } => break,
                }
            }
        }
        out.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (t, ticket, tenant) = out.remove(0);
        now = t;
        ended[tenant as usize][ticket.endpoint().index()] += 1;
        p.settle(at(now), ticket, DONE);
        for turn in turns(&mut p) {
            let Effect::Turn(id) = turn else { continue };
            let place = waiting.iter().position(|(_, w)| w.id() == id).unwrap();
            let (tenant, waiter) = waiting.remove(place);
            start(&mut out, now, tenant, sent(p.claim(at(now), waiter)));
        }
    }
    // The small tenant has six requests out at any time: they are its to run, and mostly on the fast endpoint.
    let (greedy, small) = (ended[1], ended[2]);
    assert!(small[0] * 3 > greedy[0], "fast endpoint: greedy {greedy:?}, small {small:?}");
}

#[test]
fn nothing_waits_while_a_place_is_free_and_counts_return_to_zero() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut p = pool(&[2, 3, 1], QueueConfig { max_wait: Duration::from_secs(3), ..QueueConfig::default() });
        let (mut out, mut waiting): (Vec<Ticket>, Vec<Waiter>) = (Vec::new(), Vec::new());
        let mut now = 0.0;
        for _ in 0..2000 {
            now += rng.unit() * 0.05;
            match rng.below(4) {
                0 | 1 => match p.admit(at(now), &of(rng.below(5) as u64 + 1), None) {
                    Decision::Send { ticket, .. } => out.push(ticket),
                    Decision::Wait { waiter, .. } => waiting.push(waiter),
                    Decision::Shed { .. } => {}
                },
                2 if !out.is_empty() => {
                    let k = rng.below(out.len());
                    p.settle(at(now), out.swap_remove(k), DONE);
                }
                _ if !waiting.is_empty() && rng.below(3) == 0 => {
                    let k = rng.below(waiting.len());
                    p.leave(at(now), waiting.swap_remove(k));
                }
                _ => p.on_deadline(at(now)),
            }
            for turn in turns(&mut p) {
                let Some(k) = waiting.iter().position(|w| Effect::Turn(w.id()) == turn) else { continue };
                if let Decision::Send { ticket, .. } = p.claim(at(now), waiting.swap_remove(k)) {
                    out.push(ticket);
                }
            }
            assert!(p.waiting() == 0 || p.in_flight() == 6, "seed {seed}: {} wait, {} run", p.waiting(), p.in_flight());
            assert_eq!((p.waiting(), p.in_flight()), (waiting.len(), out.len()), "seed {seed}");
        }
        waiting.into_iter().for_each(|w| p.leave(at(now), w));
        out.into_iter().for_each(|t| p.settle(at(now), t, DONE));
        assert_eq!((p.waiting(), p.in_flight()), (0, 0));
    }
}

#[test]
fn a_pool_that_may_hold_more_serves_who_waits_at_once_and_one_that_may_hold_less_breaks_nobody_off() {
    let mut p = pool(&[10], QueueConfig::default());
    p.on_event(at(0.0), Event::MaxInFlight(1));
    let first = sent(p.admit(at(0.0), &of(1), None));
    let waiters: Vec<Waiter> = (2..5).map(|tenant| waits(p.admit(at(0.0), &of(tenant), None))).collect();
    assert_eq!((p.limit(), p.waiting(), turns(&mut p).len()), (Some(1), 3, 0));
    p.on_event(at(1.0), Event::MaxInFlight(3));
    assert_eq!((p.limit(), p.waiting(), turns(&mut p).len()), (Some(3), 1, 2));
    p.on_event(at(2.0), Event::MaxInFlight(0));
    assert_eq!((p.limit(), p.in_flight()), (Some(1), 3), "at least one, and those inside stay");
    p.settle(at(3.0), first, DONE);
    for (k, waiter) in waiters.into_iter().enumerate() {
        match p.claim(at(3.0), waiter) {
            Decision::Send { ticket, .. } => p.settle(at(3.0), ticket, DONE),
            other => assert!(k == 2 && matches!(other, Decision::Shed { .. }), "{other:?}"),
        }
    }
    assert_eq!((p.in_flight(), p.waiting()), (0, 0));
}
