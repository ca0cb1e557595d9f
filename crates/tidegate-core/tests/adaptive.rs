//! `adaptive` against notes/adaptive.md, sections 1 to 5.
mod driver;

use driver::{FAILED, Rig, Service, breaker, config, errors_from, params, secs};
use tidegate_core::descriptor::Value;
use tidegate_core::event::Event;
use tidegate_core::explain::Explain;
use tidegate_core::id::EndpointId;
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::pool::config::PoolConfig;
use tidegate_core::pool::{Decision, Ticket};
use tidegate_core::request::Request;

const E0: EndpointId = EndpointId(0);
const E1: EndpointId = EndpointId(1);

fn rig_of(services: &[Service]) -> Rig {
    Rig::of(&config("adaptive", &[]), services, 3)
}

fn tokens(n: u32) -> Request<'static> {
    Request { prompt_tokens: Some(n), ..Request::default() }
}

/// The price of every endpoint for `req`, by slot. The request itself leaves at once and teaches nothing.
fn prices(rig: &mut Rig, req: &Request<'_>) -> Vec<f64> {
    let mut explain = Explain::default();
    if let Decision::Send { ticket, .. } = rig.pool.admit(rig.now, req, Some(&mut explain)) {
        rig.pool.settle(rig.now, ticket, Outcome::new(Verdict::Cancelled));
    }
    let mut prices = vec![f64::NAN; rig.services.len()];
    explain.candidates.iter().for_each(|&(id, cost)| prices[id.index()] = cost);
    prices
}

/// Sends one request to `id`, whatever the policy would do: as a retry after all others. A fresh budget allows ten.
fn send_to(rig: &mut Rig, id: EndpointId, req: &Request<'_>) -> Ticket {
    let others: Vec<EndpointId> = (0..rig.services.len() as u32).map(EndpointId).filter(|&e| e != id).collect();
    match rig.pool.admit(rig.now, &Request { attempted: &others, ..*req }, None) {
        Decision::Send { ticket, .. } => ticket,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_burst_in_one_instant_spreads_by_speed() {
    // gateways.md 9: N concurrent requests inside one interval went to the same pod.
    let mut rig = rig_of(&[Service::Queue(0.01), Service::Queue(0.02), Service::Queue(0.04)]);
    rig.run(100.0, 120.0);
    rig.advance(rig.now + secs(10.0));
    rig.take_sent();
    rig.burst(140, &Request::default());
    // Speeds 4 : 2 : 1.
    for (n, part) in rig.sent.iter().zip([80.0, 40.0, 20.0]) {
        assert!((f64::from(*n) - part).abs() < 0.15 * part + 2.0, "{:?}", rig.sent);
    }
}

#[test]
fn speeds_of_7_4_1_are_learned() {
    // Service times 0.28, 0.16 and 0.04 s: capacities 3.6, 6.25 and 25 per second, at 70 % of their sum.
    let run = |policy| {
        // The breaker would come to the aid of round robin: an engine whose queue grows is slower than its peers.
        let cfg = PoolConfig { breaker: breaker("off", &[]), ..config(policy, &[]) };
        let mut rig = Rig::of(&cfg, &[Service::Queue(0.28), Service::Queue(0.16), Service::Queue(0.04)], 3);
        rig.run(24.4, 30.0);
        rig.response_s.clear();
        rig.take_sent();
        rig.run(24.4, 200.0);
        (rig.mean_s(), rig.sent.clone())
    };
    let (adaptive, sent) = run("adaptive");
    let (least_connections, _) = run("least_connections");
    let (round_robin, _) = run("round_robin");
    println!("mean s: adaptive {adaptive:.3}, least_connections {least_connections:.3}, round_robin {round_robin:.3}");
    assert!(adaptive < 0.9 * least_connections && adaptive < 0.1 * round_robin, "{adaptive} {least_connections}");
    assert!(sent[2] > 7 * sent[0] && sent[2] > 4 * sent[1], "the fast one takes at least its part: {sent:?}");
}

#[test]
fn work_counts_and_not_requests() {
    // gateways.md 7: load was raised only once a response existed, so one prefill worker got all long prompts.
    let mut rig = rig_of(&[Service::Hangs; 2]);
    rig.burst(1, &tokens(32_000));
    rig.burst(1, &tokens(100));
    let placed = rig.picks.clone();
    rig.burst(20, &tokens(100));
    assert_ne!(placed[0], placed[1]);
    assert!(
        rig.picks[2..].iter().all(|&k| k == placed[1]),
        "twenty short prompts are less than one long: {:?}",
        rig.picks
    );
}

#[test]
fn a_hung_endpoint_loses_its_traffic_before_any_timeout() {
    // gateways.md 26: the engine hung with /health 200 and stayed in rotation for 85 minutes.
    let mut rig = rig_of(&[Service::Queue(0.02); 4]);
    rig.run(100.0, 20.0);
    rig.services[2] = Service::Hangs;
    rig.run(100.0, 1.0);
    let stuck = rig.in_flight(EndpointId(2));
    rig.take_sent();
    rig.run(100.0, 60.0);
    assert!(stuck <= 6, "{stuck} requests before the silence tells");
    assert_eq!(rig.sent[2], 0, "an answer that does not come is evidence");
}

#[test]
fn costs_within_the_tie_go_to_the_fewest_in_flight() {
    let place = |tie| {
        let mut rig = Rig::of(&config("adaptive", &[("tie", Value::Float(tie))]), &[Service::Hangs; 2], 1);
        // Both have answered at once, so both speeds are equal (and tiny). Endpoint 1 streams two answers, endpoint 0 owes 7 tokens.
        let answered = send_to(&mut rig, E0, &tokens(1));
        rig.pool.settle(rig.now, answered, Outcome::new(Verdict::Success));
        let mut streams = Vec::new();
        for _ in 0..2 {
            let ticket = send_to(&mut rig, E1, &tokens(1));
            rig.pool.on_event(rig.now, Event::FirstByte(ticket.key()));
            streams.push(ticket);
        }
        let owed = send_to(&mut rig, E0, &tokens(7));
        let prices = prices(&mut rig, &tokens(100));
        assert!(prices[0] > prices[1] && prices[0] <= prices[1] * 1.06, "{prices:?}");
        let mut chosen = Vec::new();
        for _ in 0..20 {
            if let Decision::Send { ticket, .. } = rig.pool.admit(rig.now, &tokens(100), None) {
                chosen.push(ticket.endpoint());
                rig.pool.settle(rig.now, ticket, Outcome::new(Verdict::Cancelled));
            }
        }
        drop((owed, streams));
        chosen
    };
    assert!(place(0.06).iter().all(|&id| id == E0), "one in flight against two");
    assert!(place(0.0).iter().all(|&id| id == E1), "without a tie the cheaper one");
}

#[test]
fn over_sixty_four_endpoints_thirty_two_are_priced() {
    for (n, priced) in [(64, 64), (65, 32), (1000, 32)] {
        let mut rig = rig_of(&vec![Service::Queue(0.1); n]);
        let mut explain = Explain::default();
        assert!(matches!(rig.pool.admit(rig.now, &tokens(1), Some(&mut explain)), Decision::Send { .. }));
        assert_eq!(explain.candidates.len(), priced);
    }
    let mut rig = rig_of(&[Service::Queue(0.1); 200]);
    rig.run(1000.0, 20.0);
    let total = rig.sent.iter().sum();
    assert!(rig.sent.iter().all(|&n| errors_from(n, total, 1.0 / 200.0) < 5.0), "{:?}", rig.sent);
}

#[test]
fn failures_and_cancels_teach_nothing() {
    let run = |verdict: Option<Verdict>| {
        let mut rig = rig_of(&[Service::Hangs]);
        for _ in 0..30 {
            for verdict in std::iter::once(Verdict::Success).chain(verdict) {
                let ticket = send_to(&mut rig, E0, &tokens(10));
                let end = rig.now + secs(if verdict == Verdict::Success { 0.02 } else { 0.0 });
                rig.advance(end);
                rig.pool.settle(rig.now, ticket, Outcome::new(verdict));
            }
        }
        prices(&mut rig, &tokens(10))
    };
    let plain = run(None);
    assert!((plain[0] - 0.03).abs() < 1e-9, "0.02 s of own wait, and half of it for others: {plain:?}");
    for verdict in [FAILED, Verdict::Failed(Failure::FirstByteTimeout), Verdict::Cancelled, Verdict::ClientError] {
        assert_eq!(run(Some(verdict)), plain, "{verdict:?}");
    }
}

#[test]
fn opaque_requests_are_seconds_per_outstanding_request() {
    let mut rig = rig_of(&[Service::Queue(0.01), Service::Queue(0.05)]);
    rig.run(40.0, 60.0);
    rig.advance(rig.now + secs(5.0));
    let idle = prices(&mut rig, &Request::default());
    // Own wait of one service time, and half of it again for others.
    assert!((idle[0] - 0.015).abs() < 0.005 && (idle[1] - 0.075).abs() < 0.03, "{idle:?}");
}

#[test]
fn an_endpoint_with_slow_tokens_costs_more() {
    let mut rig = rig_of(&[Service::Hangs; 2]);
    let mut streams = Vec::new();
    for id in [E0, E1] {
        for _ in 0..2 {
            let ticket = send_to(&mut rig, id, &tokens(10));
            rig.now = rig.now + secs(0.1);
            rig.pool.on_event(rig.now, Event::FirstByte(ticket.key()));
            streams.push(ticket);
        }
    }
    for endpoint in [E0, E1] {
        rig.event(Event::Progress { endpoint, tokens: 1 });
    }
    // Two streams each: 100 and 10 tokens per second and stream.
    for _ in 0..20 {
        rig.now = rig.now + secs(0.5);
        rig.event(Event::Progress { endpoint: E0, tokens: 100 });
        rig.event(Event::Progress { endpoint: E1, tokens: 10 });
    }
    let prices = prices(&mut rig, &tokens(10));
    // Four first words at 0.1 s instead of 0.01 s each: 0.36 s more, beside what a slow pace says about prefill.
    assert!(prices[1] - prices[0] > 0.36, "{prices:?}");
    drop(streams);
}

#[test]
fn replicas_count_own_work_as_often() {
    let cfg = PoolConfig { replicas: 4.0, ..PoolConfig::new(params("adaptive", &[])) };
    let (mut one, mut four) = (rig_of(&[Service::Hangs; 2]), Rig::of(&cfg, &[Service::Hangs; 2], 3));
    let price = |rig: &mut Rig| {
        let ticket = send_to(rig, E0, &tokens(100));
        let other = send_to(rig, E1, &tokens(100));
        let prices = prices(rig, &tokens(100));
        drop((ticket, other));
        prices[0]
    };
    // W + u + u/2 with W = 100 of this replica, and of four that did the same.
    assert_eq!((price(&mut one), price(&mut four)), (250.0, 550.0));
}
