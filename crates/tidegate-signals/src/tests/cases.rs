//! gateways.md 7, 9 and 15 with engines' own metrics as the source: what a page said does not outweigh what was sent since.

use super::pool_at;
use crate::poll::LoadPage;
use crate::work::MetricsPage;
use std::time::Duration;
use tidegate_config::Pool as Settings;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::outcome::{Outcome, Verdict};
use tidegate_core::pool::{Decision, Pool, Ticket};
use tidegate_core::request::Request;
use tidegate_core::time::Instant;

/// Two engines under `policy`.
fn pool(policy: &str) -> (Settings, Pool) {
    let lines = format!("policy: {policy}\n    warm_up: off\n    load: {{ metrics: {{ engine: vllm }} }}");
    let settings = pool_at("http://a:1", &lines);
    let mut pool = Pool::new(settings.core(), false, 1);
    for url in ["http://a:1", "http://b:1"] {
        let mut endpoint = settings.core_endpoints().remove(0);
        endpoint.name = url.to_owned();
        pool.add(at(0), endpoint);
    }
    (settings, pool)
}

fn at(ms: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(ms)
}

/// The page of an engine with so much to do, told at `now`.
fn tell(settings: &Settings, pool: &mut Pool, id: u32, now: Instant, running: u32, generated: u64) {
    let mut page = MetricsPage::new(settings.load.as_ref().and_then(|l| l.metrics.as_ref()).unwrap(), None);
    let text = format!(
        "vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total {generated}\n"
    );
    let report = page.read(now, text.as_bytes()).unwrap();
    pool.on_event(now, Event::LoadReported { endpoint: EndpointId(id), report });
}

fn send(pool: &mut Pool, now: Instant, prompt_tokens: u32) -> Ticket {
    let request = Request { prompt_tokens: Some(prompt_tokens), ..Request::default() };
    match pool.admit(now, &request, None) {
        Decision::Send { ticket, .. } => ticket,
        other => panic!("{other:?}"),
    }
}

const POLICIES: [&str; 2] = ["adaptive", "least_work"];

#[test]
fn case_9_a_burst_inside_one_interval_does_not_go_to_one_engine() {
    for policy in POLICIES {
        let (settings, mut pool) = pool(policy);
        tell(&settings, &mut pool, 0, at(1000), 1, 10);
        tell(&settings, &mut pool, 1, at(1000), 0, 10);
        // One engine was a little less busy when the pages were read.
        let tickets: Vec<Ticket> = (0..40).map(|_| send(&mut pool, at(1100), 500)).collect();
        let first = tickets.iter().filter(|t| t.endpoint() == EndpointId(0)).count();
        assert!((15..=25).contains(&first), "{policy}: {first} of 40");
    }
}

#[test]
fn case_7_long_prompts_count_when_they_are_sent_and_not_when_they_are_answered() {
    for policy in POLICIES {
        let (settings, mut pool) = pool(policy);
        for id in 0..2 {
            tell(&settings, &mut pool, id, at(1000), 0, 10);
        }
        let long = send(&mut pool, at(1100), 32_000);
        // Nothing was answered, and no new page was read.
        let short: Vec<Ticket> = (0..20).map(|_| send(&mut pool, at(1101), 500)).collect();
        let beside = short.iter().filter(|t| t.endpoint() == long.endpoint()).count();
        assert_eq!(beside, 0, "{policy}: 20 short prompts are less work than a long one");
    }
}

#[test]
fn case_15_a_fast_client_between_two_pages_is_spread_evenly() {
    for policy in POLICIES {
        let (settings, mut pool) = pool(policy);
        let (mut sent, mut open, mut clumps, mut window) = ([0u32; 2], Vec::new(), 0, [0u32; 2]);
        for k in 0..2000u64 {
            let now = at(1000 + k * 5);
            if k % 10 == 0 {
                clumps += u32::from(window.contains(&10));
                window = [0; 2];
                // Every 50 ms a page, as it was 50 ms ago: each engine seems to have what it had then.
                for id in 0..2 {
                    let running = open.iter().filter(|t: &&Ticket| t.endpoint() == EndpointId(id)).count() as u32;
                    tell(&settings, &mut pool, id, now, running, 10 + k);
                }
            }
            let ticket = send(&mut pool, now, 200);
            sent[ticket.endpoint().index()] += 1;
            window[ticket.endpoint().index()] += 1;
            open.push(ticket);
            if open.len() > 8 {
                pool.settle(now, open.remove(0), Outcome::new(Verdict::Success));
            }
        }
        // All ten between two pages to one engine is what was reported. The engines of this test answer as fast however much they have, so
        // which of them seems the faster is chance.
        assert_eq!(clumps, 0, "{policy}: {sent:?}");
        assert!(sent.iter().all(|n| (700..=1300).contains(n)), "{policy}: {sent:?}");
    }
}
