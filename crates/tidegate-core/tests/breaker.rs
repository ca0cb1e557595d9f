//! The adaptive breaker at its edges: what must not open an endpoint, what must, and the way back. Each test is named after what it
//! prevents; docs/cases.md says which reports they answer.
mod driver;

use driver::{Rig, Service, at, breaker, config, five_errors, secs};
use tidegate_core::breaker::Level;
use tidegate_core::descriptor::Value;
use tidegate_core::event::{Effect, Event};
use tidegate_core::id::EndpointId;
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::pool::config::{EndpointConfig, PoolConfig};
use tidegate_core::pool::{Decision, Pool, Ticket};
use tidegate_core::request::Request;
use tidegate_core::time::Instant;

const E: EndpointId = EndpointId(0);
const STATUS: Verdict = Verdict::Failed(Failure::Status);

/// A pool that is told everything by hand; every policy decision is the test's.
struct Bench {
    pool: Pool,
    now: Instant,
    probes: Vec<(EndpointId, tidegate_core::id::ProbeId)>,
    turned: Vec<(EndpointId, u8, Level, Level)>,
    redispatched: usize,
    failing: Vec<bool>,
    /// Endpoints whose health path fails.
    unwell: Vec<EndpointId>,
}

impl Bench {
    fn new(n: usize) -> Self {
        Self::with(config("round_robin", &[]), n)
    }

    fn with(cfg: PoolConfig, n: usize) -> Self {
        let mut pool = Pool::new(cfg, false, 1);
        (0..n).for_each(|k| _ = pool.add(at(0.0), EndpointConfig::new(format!("e{k}"))));
        let (probes, turned, failing) = (Vec::new(), Vec::new(), Vec::new());
        Self { pool, now: at(1.0), probes, turned, redispatched: 0, failing, unwell: Vec::new() }
    }

    /// One request of `tenant`, wherever the policy sends it.
    fn send(&mut self, tenant: u64, class: u8) -> Option<Ticket> {
        let req = Request { tenant, class, ..Request::default() };
        let decision = self.pool.admit(self.now, &req, None);
        self.attend();
        match decision {
            Decision::Send { ticket, .. } => Some(ticket),
            _ => None,
        }
    }

    fn end(&mut self, ticket: Ticket, verdict: Verdict) {
        self.pool.settle(self.now, ticket, Outcome::new(verdict));
        self.attend();
    }

    /// Effects; probes are answered at once.
    fn attend(&mut self) {
        loop {
            let mut effects = Vec::new();
            self.pool.drain_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                match effect {
                    Effect::Probe { endpoint, probe, .. } => {
                        self.probes.push((endpoint, probe));
                        let passed = !self.unwell.contains(&endpoint);
                        self.pool.on_event(self.now, Event::Probed { endpoint, probe, passed });
                    }
                    Effect::Breaker { endpoint, class, from, to, .. } => self.turned.push((endpoint, class, from, to)),
                    Effect::Redispatch(_) => self.redispatched += 1,
                    Effect::PoolFailing(on) => self.failing.push(on),
                    _ => {}
                }
            }
        }
    }

    fn pass(&mut self, s: f64) {
        let until = self.now + secs(s);
        while let Some(next) = self.pool.next_deadline().filter(|&at| at <= until) {
            self.now = self.now.max(next);
            self.pool.on_deadline(self.now);
            self.attend();
        }
        self.now = until;
    }

    /// `n` requests, one every `gap_s`, each answered 20 ms later as `verdict` says.
    fn run(&mut self, n: usize, gap_s: f64, mut verdict: impl FnMut(EndpointId, u64) -> Verdict) {
        for k in 0..n {
            let tenant = k as u64 % 5;
            if let Some(ticket) = self.send(tenant, 0) {
                self.pass(0.02);
                let how = verdict(ticket.endpoint(), tenant);
                self.end(ticket, how);
            }
            self.pass((gap_s - 0.02).max(0.0));
        }
    }

    fn well(&mut self, n: usize, gap_s: f64) {
        self.run(n, gap_s, |_, _| Verdict::Success);
    }

    fn opened(&self) -> usize {
        self.turned.iter().filter(|t| t.3 == Level::Open).count()
    }

    /// Runs until the first endpoint is open because it refuses.
    fn open(&mut self) {
        self.well(200, 0.03);
        self.unwell = vec![E];
        for _ in 0..400 {
            self.run(1, 0.03, |e, _| if e == E { driver::FAILED } else { Verdict::Success });
            if self.pool.level(E, 0) == Level::Open {
                return;
            }
        }
        unreachable!("it never opened: {:?}", self.turned);
    }
}

#[test]
fn a_mass_reset_of_two_hundred_streams_neither_opens_nor_reduces_for_long() {
    for connections in [1, 16] {
        let mut b = Bench::new(3);
        b.well(300, 0.03);
        let mut streams = Vec::new();
        for k in 0..600 {
            let Some(ticket) = b.send(k % 5, 0) else { unreachable!() };
            let connection = u64::from(ticket.endpoint().0) * 100 + k % connections;
            b.pool.on_event(b.now, Event::Connected { key: ticket.key(), connection });
            b.pass(0.01);
            b.pool.on_event(b.now, Event::FirstByte(ticket.key()));
            streams.push(ticket);
        }
        for ticket in streams {
            let cut = ticket.endpoint() == E;
            b.end(ticket, if cut { Verdict::Failed(Failure::Truncated) } else { Verdict::Success });
        }
        b.well(60, 0.03);
        assert_eq!((b.opened(), b.pool.level(E, 0)), (0, Level::Full), "{connections}: {:?}", b.turned);
    }
}

#[test]
fn client_errors_cancels_and_throttling_never_open() {
    // gateways.md 25 and 62: requests over the context length, and 429s, opened the breaker.
    for verdict in [Verdict::ClientError, Verdict::Cancelled, Verdict::Throttled { retry_after: None }] {
        let mut b = Bench::with(PoolConfig { cool_down: secs(0.0), ..config("round_robin", &[]) }, 3);
        b.well(100, 0.03);
        b.run(600, 0.03, |e, _| if e == E { verdict } else { Verdict::Success });
        assert!(b.turned.is_empty(), "{verdict:?} {:?}", b.turned);
    }
}

#[test]
fn a_straggler_from_before_the_trip_changes_nothing() {
    // gateways.md 61: a stream that was sent before the trip and ends well closed the breaker.
    let mut b = Bench::new(3);
    b.well(100, 0.03);
    let mut old = Vec::new();
    while old.len() < 3 {
        if let Some(ticket) = b.send(9, 0) {
            if ticket.endpoint() == E { old.push(ticket) } else { b.end(ticket, Verdict::Success) }
        }
        b.pass(0.01);
    }
    b.open();
    let before = b.turned.len();
    for (ticket, verdict) in old.into_iter().zip([Verdict::Success, STATUS, Verdict::Cancelled]) {
        b.end(ticket, verdict);
        assert_eq!((b.pool.level(E, 0), b.turned.len()), (Level::Open, before));
    }
    // Nor while it is half-open.
    b.unwell.clear();
    b.pass(0.4);
    assert_eq!(b.pool.level(E, 0), Level::HalfOpen, "a probe passed");
}

#[test]
fn after_a_clock_jump_of_a_day_one_failure_is_a_new_episode() {
    // governance.md 18 and gateways.md 62: failures days apart were consecutive.
    let mut b = Bench::new(3);
    b.well(100, 0.03);
    for _ in 0..30 {
        b.run(1, 0.03, |e, _| if e == E { STATUS } else { Verdict::Success });
        b.now = b.now + secs(86_400.0);
        b.pool.on_deadline(b.now);
        b.attend();
    }
    assert_eq!(b.opened(), 0, "{:?}", b.turned);
}

#[test]
fn a_failing_tenant_sticky_to_one_endpoint_opens_nothing_while_others_succeed() {
    let mut b = Bench::new(3);
    b.well(300, 0.03);
    b.run(900, 0.03, |e, tenant| if e == E && tenant == 2 { STATUS } else { Verdict::Success });
    assert_eq!(b.opened(), 0, "{:?}", b.turned);
}

#[test]
fn if_all_fail_alike_nobody_opens_and_the_pool_says_so_once() {
    // governance.md 2, 3 and 25: one shared cause took the whole fleet out.
    let mut b = Bench::new(4);
    b.well(200, 0.03);
    b.run(900, 0.01, |_, _| STATUS);
    assert_eq!((b.opened(), &b.failing[..]), (0, &[true][..]), "{:?}", b.turned);
    assert!(b.pool.is_failing());
    b.well(1000, 0.03);
    assert_eq!(b.failing, [true, false]);
}

#[test]
fn without_a_history_nobody_is_late_and_nothing_stalls() {
    let mut b = Bench::new(3);
    let held: Vec<Ticket> = (0..15).filter_map(|k| b.send(k, 0)).collect();
    b.pass(30.0);
    let more: Vec<Ticket> = (0..15).filter_map(|k| b.send(k, 0)).collect();
    assert!(b.turned.is_empty() && b.redispatched == 0, "{:?}", b.turned);
    held.into_iter().chain(more).for_each(|t| b.pool.settle(b.now, t, Outcome::new(Verdict::Cancelled)));
}

#[test]
fn a_trial_that_is_cancelled_refused_or_throttled_is_repeated_and_teaches_nothing() {
    // governance.md 14 and 23: a probe answered 404, or one that skipped the breaker, kept its slot for ever.
    let mut b = Bench::with(PoolConfig { cool_down: secs(0.0), ..config("round_robin", &[]) }, 3);
    b.open();
    b.unwell.clear();
    b.pass(0.4);
    for verdict in [Verdict::Cancelled, Verdict::ClientError, Verdict::Throttled { retry_after: None }] {
        let Some(trial) = b.send(1, 0) else { unreachable!() };
        assert!(trial.is_trial() && trial.endpoint() == E);
        let Some(other) = b.send(2, 0) else { unreachable!() };
        assert!(!other.is_trial(), "one at a time");
        b.end(other, Verdict::Success);
        b.end(trial, verdict);
        assert_eq!(b.pool.level(E, 0), Level::HalfOpen, "{verdict:?}");
    }
    let Some(trial) = b.send(1, 0) else { unreachable!() };
    assert!(trial.is_trial());
    b.pass(0.02);
    b.end(trial, Verdict::Success);
    b.well(200, 0.03);
    assert_eq!(b.pool.level(E, 0), Level::Full);
}

#[test]
fn a_burst_in_half_open_sends_one_trial() {
    // governance.md 11, 13 and 17: everyone who came in half-open passed.
    let mut b = Bench::new(3);
    b.open();
    b.unwell.clear();
    b.pass(0.4);
    let burst: Vec<Ticket> = (0..1000).filter_map(|k| b.send(k, 0)).collect();
    assert_eq!(burst.iter().filter(|t| t.endpoint() == E).count(), 1);
    burst.into_iter().for_each(|t| b.pool.settle(b.now, t, Outcome::new(Verdict::Cancelled)));
}

#[test]
fn a_trial_that_hangs_opens_again_when_its_lease_is_over() {
    // governance.md 15 and gateways.md 33: a probe that never settled kept a breaker half-open for six days.
    let mut b = Bench::new(3);
    b.open();
    b.unwell.clear();
    b.pass(0.4);
    let Some(trial) = b.send(1, 0) else { unreachable!() };
    b.pass(2.1);
    assert_ne!(b.turned.last().map(|t| t.3), Some(Level::Full));
    assert!(b.turned.iter().any(|t| t.2 == Level::HalfOpen && t.3 == Level::Open), "{:?}", b.turned);
    b.pass(2.0);
    assert_eq!(b.pool.level(E, 0), Level::HalfOpen, "and the next trial is due, whatever became of that one");
    b.end(trial, Verdict::Success);
    assert_eq!(b.pool.level(E, 0), Level::HalfOpen, "which is a straggler now");
}

#[test]
fn a_half_dead_engine_costs_one_trial_per_eight_seconds() {
    let mut b = Bench::new(3);
    b.open();
    b.unwell.clear();
    let mut trials = 0;
    for _ in 0..36_000 {
        b.run(1, 0.1, |e, _| {
            trials += u32::from(e == E);
            if e == E { STATUS } else { Verdict::Success }
        });
    }
    // 0, 0.5, 1, 2, 4 and then 8 s +-25 %, for an hour.
    assert!((400..650).contains(&trials), "{trials}");
}

#[test]
fn an_endpoint_out_of_traffic_is_probed_without_any() {
    // gateways.md 34: an open breaker was only checked on requests it never got.
    let mut b = Bench::new(3);
    b.open();
    let before = b.probes.len();
    b.pass(10.0);
    let sent = b.probes.len() - before;
    assert!((30..=60).contains(&sent), "every 0.25 s +-25 %: {sent}");
    b.unwell.clear();
    b.pass(0.35);
    assert_eq!(b.pool.level(E, 0), Level::HalfOpen);
}

#[test]
fn retry_after_in_a_ramp_is_a_step_back_and_no_trip() {
    let mut b = Bench::new(3);
    b.open();
    b.unwell.clear();
    b.pass(0.4);
    let Some(trial) = b.send(1, 0) else { unreachable!() };
    b.end(trial, Verdict::Success);
    let mut throttled = 0;
    for _ in 0..400 {
        b.run(1, 0.021, |e, _| {
            let now = e == E && throttled < 3;
            throttled += u32::from(now);
            if now { Verdict::Throttled { retry_after: Some(secs(0.01)) } } else { Verdict::Success }
        });
    }
    assert_eq!((throttled, b.opened(), b.pool.level(E, 0)), (3, 1, Level::Full), "{:?}", b.turned);
}

#[test]
fn a_hung_engine_opens_within_stall_after_and_its_waiting_requests_go_elsewhere() {
    // gateways.md 26 and governance.md 22: frozen with a healthy health path, in rotation for 85 minutes.
    let mut rig = Rig::of(&config("random", &[]), &[Service::Delay(0.05); 4], 3);
    rig.run(100.0, 10.0);
    rig.services[0] = Service::Hangs;
    let hung = rig.now;
    rig.effects();
    let (mut open, mut moved) = (None, 0);
    while open.is_none() && rig.now < hung + secs(5.0) {
        rig.run(100.0, 0.01);
        for effect in rig.effects() {
            match effect {
                Effect::Breaker { endpoint: E, to: Level::Open, .. } => open = Some(rig.now.secs_since(hung)),
                Effect::Redispatch(_) => moved += 1,
                _ => {}
            }
        }
    }
    assert!(open.is_some_and(|s| (1.9..2.15).contains(&s)), "{open:?}");
    assert!(moved >= 10, "{moved} of those that wait");
}

#[test]
fn an_engine_that_hangs_again_while_it_ramps_up_opens_and_its_waiting_requests_go_elsewhere() {
    // The first seconds after a return are when it hangs again, and a rule that chases load stops sending there, so that nothing asked.
    for policy in ["round_robin", "least_connections"] {
        let mut b = Bench::with(config(policy, &[]), 4);
        b.well(1000, 0.03);
        b.open();
        b.unwell.clear();
        b.pass(0.4);
        for _ in 0..400 {
            b.well(1, 0.03);
            if b.pool.level(E, 0) == Level::HalfOpen && b.pool.share_at(E, b.now) >= 1.0 {
                break;
            }
        }
        assert_eq!(b.pool.level(E, 0), Level::HalfOpen, "{policy}: {:?}", b.turned);
        let opened = b.opened();
        let mut held = Vec::new();
        for k in 0..300 {
            if let Some(ticket) = b.send(k % 5, 0) {
                b.pass(0.02);
                if ticket.endpoint() == E { held.push(ticket) } else { b.end(ticket, Verdict::Success) }
            }
            b.pass(0.01);
            assert_ne!(b.pool.level(E, 0), Level::Full, "{policy}: closed in the middle of it");
            if b.opened() > opened {
                break;
            }
        }
        let moved = (b.redispatched, held.len());
        assert!(b.opened() > opened && moved.0 == moved.1 && moved.1 >= 1, "{policy}: {moved:?} {:?}", b.turned);
    }
}

#[test]
fn of_a_slow_engine_a_few_requests_that_wait_are_no_hang() {
    // An engine at a tenth of its speed, of which some requests time out, was opened by a few of these in a row.
    for (slow, opens) in [(false, true), (true, false)] {
        let mut b = Bench::new(4);
        b.well(1000, 0.03);
        for k in 0..if slow { 160 } else { 0 } {
            if let Some(ticket) = b.send(k % 5, 0) {
                b.pass(if ticket.endpoint() == E { 0.3 } else { 0.02 });
                b.end(ticket, Verdict::Success);
            }
        }
        let mut held = Vec::new();
        for k in 0..100 {
            if let Some(ticket) = b.send(k % 5, 0) {
                b.pass(0.02);
                if ticket.endpoint() == E { held.push(ticket) } else { b.end(ticket, Verdict::Success) }
            }
            b.pass(0.01);
        }
        assert_eq!(b.opened() > 0, opens, "slow {slow}: {} wait, {:?}", held.len(), b.turned);
    }
}

#[test]
fn one_of_five_that_fails_is_not_the_pool() {
    // A log that says every endpoint fails alike sends the reader to the wrong machine.
    let mut b = Bench::new(5);
    b.well(500, 0.01);
    b.run(2000, 0.01, |e, tenant| if e == E && tenant != 0 { STATUS } else { Verdict::Success });
    assert!(b.opened() >= 1 && b.failing.is_empty(), "{:?} {:?}", b.failing, b.turned);
}

#[test]
fn a_pause_of_the_whole_pool_opens_nobody() {
    // gateways.md 27: engines that compile for the first request were marked dead.
    let mut rig = Rig::of(&config("random", &[]), &[Service::Delay(0.05); 4], 3);
    rig.run(100.0, 10.0);
    rig.services.fill(Service::Hangs);
    rig.run(100.0, 10.0);
    assert!((0..4).all(|k| rig.pool.level(EndpointId(k), 0) != Level::Open));
}

#[test]
fn one_failure_on_a_quiet_endpoint_does_not_open_it() {
    // governance.md 6 and 19: idle hosts counted, and a single failure was 100 %.
    let mut b = Bench::new(5);
    b.well(5, 60.0);
    b.run(5, 60.0, |e, _| if e == E { STATUS } else { Verdict::Success });
    b.well(20, 60.0);
    assert!(b.turned.is_empty(), "{:?}", b.turned);
}

#[test]
fn a_good_endpoint_of_a_better_fleet_is_no_outlier() {
    // envoy#37723, governance.md 5: at four nines a deviation of nothing ejected an endpoint that was 99 % good.
    let (mut b, mut k) = (Bench::new(8), 0u32);
    b.well(400, 0.03);
    b.run(8000, 0.021, |e, _| {
        k += u32::from(e == E);
        if e == E && k.is_multiple_of(100) { STATUS } else { Verdict::Success }
    });
    assert_eq!(b.opened(), 0, "{:?}", b.turned);
}

#[test]
fn only_the_endpoint_with_the_broken_path_opens() {
    // Polly#287, governance.md 25: one breaker for all took the fleet out.
    let mut b = Bench::new(8);
    b.open();
    assert!((1..8).all(|k| b.pool.level(EndpointId(k), 0) == Level::Full), "{:?}", b.turned);
}

#[test]
fn the_same_request_that_fails_everywhere_is_taken_back() {
    let mut b = Bench::new(3);
    b.well(300, 0.03);
    for _ in 0..300 {
        let Some(first) = b.send(7, 0) else { unreachable!() };
        let was = first.endpoint();
        b.pass(0.01);
        b.end(first, Verdict::Failed(Failure::Reset));
        let attempted = [was];
        let req = Request { tenant: 7, attempted: &attempted, ..Request::default() };
        if let Decision::Send { ticket, .. } = b.pool.admit(b.now, &req, None) {
            b.pass(0.01);
            b.end(ticket, Verdict::Failed(Failure::Reset));
        }
        b.well(3, 0.021);
    }
    assert_eq!(b.opened(), 0, "{:?}", b.turned);
}

#[test]
fn route_classes_break_apart() {
    // An engine that fails embeddings and answers chats is out for embeddings only.
    let mut b = Bench::new(3);
    b.well(200, 0.03);
    for k in 0..800 {
        for class in [0, 1] {
            if let Some(ticket) = b.send(k % 5, class) {
                b.pass(0.01);
                let fails = class == 1 && ticket.endpoint() == E;
                b.end(ticket, if fails { STATUS } else { Verdict::Success });
            }
        }
    }
    assert_eq!((b.pool.level(E, 0), b.pool.level(E, 1) == Level::Full), (Level::Full, false), "{:?}", b.turned);
    assert!(b.turned.iter().all(|t| t.1 == 1));
}

#[test]
fn a_successor_at_the_same_address_begins_closed_and_stragglers_do_not_count() {
    let mut b = Bench::new(3);
    b.open();
    b.pool.remove(b.now, E);
    let again = b.pool.add(b.now, EndpointConfig::new("e0"));
    assert_eq!((again, b.pool.level(again, 0)), (E, Level::Full));
}

#[test]
fn a_reduced_endpoint_is_used_where_no_other_has_a_place() {
    let cfg = config("round_robin", &[]);
    let mut pool = Pool::new(cfg, false, 1);
    (0..2).for_each(|k| {
        _ = pool.add(at(0.0), EndpointConfig { max_in_flight: Some(4), ..EndpointConfig::new(format!("e{k}")) });
    });
    let mut b = Bench { pool, ..Bench::new(0) };
    b.well(300, 0.03);
    // Half of its requests fail: reduced, and with two endpoints not opened by that alone.
    let mut k = 0u32;
    while b.pool.level(E, 0) != Level::Reduced {
        b.run(1, 0.021, |e, _| {
            k += 1;
            if e == E && k.is_multiple_of(2) { STATUS } else { Verdict::Success }
        });
        assert!(k < 2000, "{:?}", b.turned);
    }
    let held: Vec<Ticket> = (0..8).filter_map(|t| b.send(t, 0)).collect();
    assert_eq!(held.len(), 8, "every place of both");
    held.into_iter().for_each(|t| b.pool.settle(b.now, t, Outcome::new(Verdict::Cancelled)));
}

#[test]
fn a_classic_breaker_opens_at_its_minimum_and_not_when_a_window_is_full() {
    // mcp-proxy#220, governance.md 21: min_calls 5, all fail, and it did not open before 100.
    let set = [
        ("consecutive_errors", Value::Integer(0)),
        ("error_rate", Value::Float(0.5)),
        ("min_requests", Value::Integer(5)),
    ];
    let cfg = PoolConfig { breaker: breaker("classic", &set), ..config("round_robin", &[]) };
    let mut b = Bench::with(cfg, 2);
    let mut failed = 0;
    while b.opened() == 0 {
        b.run(1, 0.03, |e, _| {
            failed += u32::from(e == E);
            if e == E { STATUS } else { Verdict::Success }
        });
        assert!(failed < 100);
    }
    assert_eq!(failed, 5);
}

#[test]
fn a_classic_window_forgets_errors_by_time_and_does_not_slide_with_each() {
    // Shopify/semian#24, governance.md 18: errors at t-6, t-1 and t opened a limit of three in five seconds.
    let set = [
        ("consecutive_errors", Value::Integer(0)),
        ("error_rate", Value::Float(1.0)),
        ("min_requests", Value::Integer(3)),
        ("window", Value::Duration(5.0)),
    ];
    let cfg = PoolConfig { breaker: breaker("classic", &set), ..config("round_robin", &[]) };
    let mut b = Bench::with(cfg, 2);
    for gap in [5.0, 1.0, 0.1] {
        // Two endpoints in turn: one failure at the first, then a success at the other.
        b.run(1, 0.02, |e, _| if e == E { STATUS } else { Verdict::Success });
        b.run(1, gap, |e, _| if e == E { STATUS } else { Verdict::Success });
    }
    assert_eq!(b.opened(), 0, "{:?}", b.turned);
}

#[test]
fn a_cool_down_never_exceeds_its_maximum_and_returns_are_spread() {
    // envoy#37602 and envoy#19869, governance.md 7 and 9: backoff overshot by one, and everybody came back at once.
    let cfg = PoolConfig { breaker: five_errors(1.0), ..config("round_robin", &[]) };
    let mut back = Vec::new();
    for seed in 0..16 {
        let mut pool = Pool::new(cfg.clone(), false, seed);
        (0..2).for_each(|k| _ = pool.add(at(0.0), EndpointConfig::new(format!("e{k}"))));
        let mut b = Bench { pool, ..Bench::new(0) };
        while b.opened() == 0 {
            b.run(1, 0.03, |e, _| if e == E { STATUS } else { Verdict::Success });
        }
        let opened = b.now;
        while b.pool.level(E, 0) == Level::Open {
            b.pass(0.005);
        }
        back.push(b.now.secs_since(opened));
    }
    back.sort_by(f64::total_cmp);
    assert!(back[0] >= 0.7 && back[15] <= 1.3 && back[15] - back[0] > 0.2, "{back:?}");
}

#[test]
fn in_a_small_fleet_max_ejected_of_a_tenth_ejects_nobody() {
    // envoy#3263, governance.md 1: 2-3 hosts, max_ejection 10 %, and one was always ejected.
    for n in [2, 3] {
        let set = [("max_ejected", Value::Float(0.1))];
        let cfg = PoolConfig { breaker: breaker("classic", &set), ..config("round_robin", &[]) };
        let mut b = Bench::with(cfg, n);
        b.run(200, 0.03, |e, _| if e == E { STATUS } else { Verdict::Success });
        assert_eq!(b.opened(), 0, "{n}");
    }
}

#[test]
fn failures_of_requests_in_flight_do_not_lengthen_an_ejection() {
    // agentgateway#1912 and #1982, gateways.md 35: failures inside one window multiplied the ejection.
    let cfg = PoolConfig { breaker: five_errors(1.0), ..config("round_robin", &[]) };
    let mut b = Bench::with(cfg, 2);
    let held: Vec<Ticket> = (0..80).filter_map(|k| b.send(k, 0)).collect();
    b.pass(0.02);
    for ticket in held {
        let fails = ticket.endpoint() == E;
        b.end(ticket, if fails { STATUS } else { Verdict::Success });
    }
    assert_eq!(b.opened(), 1);
    b.pass(1.3);
    assert_eq!(b.pool.level(E, 0), Level::HalfOpen, "one pause of a second, not forty");
}

#[test]
fn the_longest_retry_after_counts() {
    // litellm#40130, gateways.md 31: eight 429s at once, the first said 1 s, and the pause of 60 s was over after one.
    let mut b = Bench::new(2);
    let held: Vec<Ticket> = (0..16).filter_map(|k| b.send(k, 0)).collect();
    let mut asked = [1.0, 60.0].into_iter().cycle();
    for ticket in held {
        let verdict = match ticket.endpoint() {
            E => Verdict::Throttled { retry_after: asked.next().map(secs) },
            _ => Verdict::Success,
        };
        b.end(ticket, verdict);
    }
    b.pass(30.0);
    b.run(50, 0.03, |e, _| {
        assert_ne!(e, E, "it asked for a minute");
        Verdict::Success
    });
}

#[test]
fn five_points_of_errors_over_the_peers_already_cut_the_weight() {
    // Endpoint 0 fails 6 %, the others 1 %: how many requests of the pool until its weight is cut, over ten draws.
    let cut_after = |seed: u64| {
        let mut b = Bench::new(4);
        let mut rng = tidegate_core::rng::Rng::new(seed);
        for k in 0..20_000 {
            b.now = b.now + secs(0.005);
            let Some(ticket) = b.send(k % 7 + 1, 0) else { continue };
            let rate = if ticket.endpoint() == E { 0.06 } else { 0.01 };
            let verdict = if rng.unit() < rate { STATUS } else { Verdict::Success };
            b.pool.on_event(b.now, Event::Connected { key: ticket.key(), connection: k });
            b.end(ticket, verdict);
            if b.turned.iter().any(|t| t.3 == Level::Reduced && t.0 == E) {
                return k;
            }
        }
        20_000
    };
    let mut all: Vec<u64> = (0..10).map(cut_after).collect();
    all.sort_unstable();
    assert!(all[5] < 1000, "{all:?}");
}
