//! All rules together: nothing is taken by a refusal, everything is settled once, and what a refusal says is true.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tidegate_core::limit::concurrency::{ConcurrencyConfig, SeatShare};
use tidegate_core::limit::limits::config::{
    ConcurrencyRuleConfig, DEFAULT_MAX_NAMES, LimitConfig, LimitsConfig, NamedShare, RateConfig, RuleConfig,
    SharesConfig,
};
use tidegate_core::limit::tree::Share;
use tidegate_core::limit::{Actual, Ask, Limited, Limits, Quantity, Reservation, Scope};
use tidegate_core::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(10);
const MINUTE: Duration = Duration::from_secs(60);

fn secs(s: f64) -> Instant {
    Instant::from_secs_f64(s)
}

fn ask<'a>(tenant: &'a str, model: &'a str, tokens: f64) -> Ask<'a> {
    Ask { tenant, model, route: "chat", prompt_tokens: tokens, ..Ask::default() }
}

fn used(tokens: f64) -> Actual {
    Actual { prompt_tokens: tokens, ..Actual::default() }
}

fn rate(name: &str, quantity: Quantity, cfg: RateConfig) -> RuleConfig {
    RuleConfig { name: name.into(), quantity, limit: LimitConfig::Rate(cfg), only: None }
}

fn tokens_per_minute(scope: Scope, amount: f64) -> RuleConfig {
    rate("tpm", Quantity::TotalTokens, RateConfig::new(scope, amount, MINUTE))
}

fn shares(rate: f64, largest_cost: f64, children: &[(&str, f64)]) -> RuleConfig {
    let child = |&(name, assured): &(&str, f64)| NamedShare {
        name: name.into(),
        share: Share { assured, weight: None, ceiling: None },
        children: Vec::new(),
    };
    let limit = LimitConfig::Shares(SharesConfig {
        rate,
        largest_cost,
        levels: vec![Scope::Tenant, Scope::Model],
        children: children.iter().map(child).collect(),
        others: vec![
            Share { assured: 0.0, weight: Some(1.0), ceiling: None },
            Share { assured: rate * 0.1, weight: None, ceiling: None },
        ],
        max_names: 50,
    });
    RuleConfig { name: "shares".into(), quantity: Quantity::TotalTokens, limit, only: None }
}

fn seats(total: u32, each: Option<u32>) -> ConcurrencyRuleConfig {
    let others = SeatShare { shares: 1.0, lendable: 1.0, borrowing: None };
    let seats = ConcurrencyConfig { total, each, groups: Vec::new(), others, max_names: 50 };
    ConcurrencyRuleConfig { name: "seats".into(), scope: Scope::Tenant, seats, adaptive: None }
}

fn limits(rules: Vec<RuleConfig>, concurrency: Vec<ConcurrencyRuleConfig>) -> Limits {
    Limits::new(Instant::ORIGIN, &LimitsConfig { rules, concurrency })
}

/// Everything a refusal must not change.
fn levels(limits: &Limits, now: Instant) -> Vec<(String, Vec<String>, u64, u32)> {
    let one = |l: &tidegate_core::limit::limits::Level<'_>| {
        (l.rule.to_owned(), l.path.iter().map(|p| (*p).to_owned()).collect(), l.level.to_bits(), l.outstanding)
    };
    limits.levels_at(now).iter().map(one).collect()
}

#[test]
fn a_thousand_at_once_do_not_pass_a_limit_of_a_hundred() {
    let mut limits = limits(vec![tokens_per_minute(Scope::Tenant, 10_000.0)], vec![]);
    let now = secs(100.0);
    let (mut held, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        match limits.reserve(now, &ask("a", "m", 100.0)) {
            Ok(r) => held.push(r),
            Err(l) => refused.push(l),
        }
    }
    assert_eq!((held.len(), refused.len()), (100, 900));
    for l in refused {
        assert_eq!((l.by, l.terminal), ("tenant_rate_limit_exceeded", false));
        let wait = l.retry_after.unwrap();
        let mut then = limits.clone();
        assert!(then.reserve(now + (wait - TICK), &ask("a", "m", 100.0)).is_err(), "not earlier by more than a tick");
        assert!(then.reserve(now + wait, &ask("a", "m", 100.0)).is_ok(), "true when tried");
    }
}

#[test]
fn threads_that_ask_at_once_get_what_one_would() {
    let limits =
        std::sync::Mutex::new(limits(vec![tokens_per_minute(Scope::Tenant, 10_000.0)], vec![seats(1000, None)]));
    let admitted = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut held = Vec::new();
                for _ in 0..125 {
                    held.extend(limits.lock().unwrap().reserve(secs(1.0), &ask("a", "m", 100.0)));
                }
                admitted.fetch_add(held.len(), std::sync::atomic::Ordering::Relaxed);
                held.into_iter().for_each(|r| limits.lock().unwrap().settle(secs(1.0), r, &used(100.0)));
            });
        }
    });
    assert_eq!((admitted.into_inner(), limits.lock().unwrap().outstanding()), (100, 0));
}

#[test]
fn use_beyond_the_estimate_is_a_debt_that_is_repaid() {
    let mut limits = limits(vec![tokens_per_minute(Scope::Tenant, 10_000.0)], vec![]);
    let held: Vec<_> = (0..1000).filter_map(|_| limits.reserve(secs(0.0), &ask("a", "m", 100.0)).ok()).collect();
    assert_eq!(held.len(), 100);
    held.into_iter().for_each(|r| limits.settle(secs(0.0), r, &used(200.0)));
    let refused = limits.reserve(secs(0.0), &ask("a", "m", 100.0)).unwrap_err();
    let wait = refused.retry_after.unwrap();
    assert_eq!(wait, Duration::from_millis(60_600), "10,000 owed and 100 asked, at 10,000 a minute");
    assert!(limits.clone().reserve(secs(0.0) + (wait - TICK), &ask("a", "m", 100.0)).is_err());
    let mut spent = 20_000.0;
    for k in 0..=6000 {
        if let Ok(r) = limits.reserve(secs(60.0 + f64::from(k) * 0.1), &ask("a", "m", 100.0)) {
            limits.settle(secs(60.0 + f64::from(k) * 0.1), r, &used(200.0));
            spent += 200.0;
        }
    }
    assert!(spent <= 10_000.0 * 11.0 + 10_000.0 + 200.0, "{spent} in eleven minutes");
    assert!(spent >= 10_000.0 * 11.0, "{spent}: and no less");
}

#[test]
fn what_a_child_refuses_is_not_taken_from_its_parents() {
    let rules = vec![
        rate("all", Quantity::Requests, RateConfig::new(Scope::Global, 1000.0, MINUTE)),
        shares(1e6, 1000.0, &[("a", 1000.0)]),
        rate("model", Quantity::Requests, RateConfig::new(Scope::Model, 5.0, MINUTE)),
    ];
    let mut limits = limits(rules, vec![seats(100, Some(50))]);
    let now = secs(10.0);
    let held: Vec<_> = (0..5).map(|_| limits.reserve(now, &ask("a", "m", 10.0)).unwrap()).collect();
    let before = levels(&limits, now);
    for _ in 0..100 {
        assert_eq!(limits.reserve(now, &ask("a", "m", 10.0)).unwrap_err().by, "model_rate_limit_exceeded");
    }
    assert_eq!(levels(&limits, now), before);
    assert_eq!(limits.outstanding(), 5);
    held.into_iter().for_each(|r| limits.release(now, r));
}

#[test]
fn what_is_released_comes_back_everywhere() {
    let rules = vec![
        tokens_per_minute(Scope::Global, 1000.0),
        rate("rpm", Quantity::Requests, RateConfig::new(Scope::Tenant, 10.0, MINUTE)),
        rate("cost", Quantity::Cost, RateConfig::new(Scope::Route, 1.0, MINUTE)),
    ];
    let mut limits = limits(rules, vec![seats(5, None)]);
    let ask = Ask { cost: 0.25, ..ask("a", "m", 900.0) };
    for _ in 0..1000 {
        let held = limits.reserve(secs(1.0), &ask).unwrap();
        assert!(limits.reserve(secs(1.0), &ask).is_err());
        limits.release(secs(1.0), held);
    }
    assert_eq!(limits.outstanding(), 0);
    assert!(limits.levels_at(secs(1.0)).iter().all(|l| l.quantity.is_none() || (l.level - l.depth).abs() < 1e-6));
}

#[test]
fn a_restarted_process_starts_as_full_as_configured() {
    let count = |fill: f64| {
        let cfg = RateConfig { initial_fill: fill, ..RateConfig::new(Scope::Tenant, 600.0, MINUTE) };
        let mut limits = limits(vec![rate("rpm", Quantity::Requests, cfg)], vec![]);
        let held: Vec<_> = (0..1000).filter_map(|_| limits.reserve(secs(5.0), &ask("a", "m", 1.0)).ok()).collect();
        let n = held.len();
        held.into_iter().for_each(|r| limits.release(secs(5.0), r));
        n
    };
    assert_eq!((count(1.0), count(0.25), count(0.0)), (600, 150, 0));
}

#[test]
fn asking_again_and_again_does_not_postpone_the_refill() {
    let mut limits = limits(vec![tokens_per_minute(Scope::Tenant, 600.0), shares(1000.0, 1.0, &[])], vec![]);
    let (mut now, mut admitted) = (secs(0.0), 0);
    while now < secs(60.0) {
        now = now + Duration::from_millis(1);
        if let Ok(r) = limits.reserve(now, &ask("a", "m", 1.0)) {
            limits.settle(now, r, &used(1.0));
            admitted += 1;
        }
    }
    assert!((1190..=1200).contains(&admitted), "{admitted}");
}

#[test]
fn twenty_that_share_ten_all_get_something() {
    let mut limits = limits(vec![shares(10.0, 1.0, &[])], vec![]);
    let names: Vec<String> = (0..20).map(|k| format!("t{k}")).collect();
    let mut admitted = [0; 20];
    for tick in 0..6000 {
        let now = secs(f64::from(tick) * 0.01);
        for (name, n) in names.iter().zip(&mut admitted) {
            if let Ok(r) = limits.reserve(now, &ask(name, "m", 1.0)) {
                limits.settle(now, r, &used(1.0));
                *n += 1;
            }
        }
    }
    assert!(admitted.iter().all(|n| (25..=35).contains(n)), "{admitted:?}");
}

#[test]
fn a_request_that_can_never_fit_is_told_so_and_not_when_to_come_back() {
    let mut limits =
        limits(vec![tokens_per_minute(Scope::Tenant, 1000.0), shares(1000.0, 500.0, &[("a", 500.0)])], vec![]);
    let refused = limits.reserve(secs(1.0), &ask("a", "m", 1001.0)).unwrap_err();
    assert!(refused.terminal && refused.retry_after.is_none() && refused.rule == "tpm");
    let again = limits.reserve(secs(1.0), &ask("b", "m", 1001.0)).unwrap_err();
    assert!(again.terminal, "whoever asks");
}

#[test]
fn of_two_refusals_the_longer_wait_is_told() {
    let rules = vec![
        rate("short", Quantity::Requests, RateConfig::new(Scope::Global, 1.0, Duration::from_secs(1))),
        rate("long", Quantity::Requests, RateConfig::new(Scope::Tenant, 1.0, Duration::from_secs(107))),
        rate("middle", Quantity::Requests, RateConfig::new(Scope::Model, 1.0, Duration::from_secs(9))),
    ];
    let mut limits = limits(rules, vec![]);
    let held = limits.reserve(secs(0.0), &ask("a", "m", 1.0)).unwrap();
    limits.settle(secs(0.0), held, &used(1.0));
    let refused = limits.reserve(secs(0.0), &ask("a", "m", 1.0)).unwrap_err();
    let wait = refused.retry_after.map(|d| d.as_millis());
    assert_eq!((refused.rule.as_str(), wait), ("long", Some(107_000)));
}

#[test]
fn a_rule_that_is_removed_limits_no_longer_and_one_that_stays_keeps_its_balance() {
    let rpm = |amount: f64| rate("rpm", Quantity::Requests, RateConfig::new(Scope::Tenant, amount, MINUTE));
    let config = |rules: Vec<RuleConfig>| LimitsConfig { rules, concurrency: vec![] };
    let mut limits = Limits::new(secs(0.0), &config(vec![rpm(10.0), tokens_per_minute(Scope::Global, 100.0)]));
    let held: Vec<_> = (0..10).map(|_| limits.reserve(secs(0.0), &ask("a", "m", 10.0)).unwrap()).collect();
    limits.configure(secs(0.0), &config(vec![rpm(1000.0)]));
    assert_eq!(limits.reserve(secs(0.0), &ask("a", "m", 1e9)).unwrap_err().rule, "rpm", "a reload is no refill");
    held.into_iter().for_each(|r| limits.settle(secs(0.0), r, &used(1e6)));
    limits.configure(secs(1.0), &config(vec![]));
    assert!(limits.reserve(secs(1.0), &ask("a", "m", 1e9)).map(|r| limits.release(secs(1.0), r)).is_ok());
    assert_eq!(limits.outstanding(), 0);
}

#[test]
fn no_route_goes_past_a_budget() {
    let mut limits = limits(vec![rate("spend", Quantity::Cost, RateConfig::new(Scope::Tenant, 10.0, MINUTE))], vec![]);
    let mut spent = 0.0;
    for (route, model) in [("chat", "m"), ("passthrough", ""), ("", "")].iter().cycle().take(90) {
        let ask = Ask { tenant: "a", model, route, cost: 1.0, ..Ask::default() };
        if let Ok(r) = limits.reserve(secs(0.0), &ask) {
            limits.settle(secs(0.0), r, &Actual { cost: 1.0, ..Actual::default() });
            spent += 1.0;
        }
    }
    assert_eq!(spent, 10.0);
}

#[test]
fn what_is_left_is_known_on_successes_too() {
    let rules = vec![
        rate("rpm", Quantity::Requests, RateConfig::new(Scope::Tenant, 100.0, MINUTE)),
        tokens_per_minute(Scope::Tenant, 10_000.0),
    ];
    let mut limits = limits(rules, vec![]);
    let ask = ask("a", "m", 4000.0);
    let held = limits.reserve(secs(1.0), &ask).unwrap();
    let left = limits.headroom_at(secs(1.0), &ask).unwrap();
    assert_eq!((left.rule, left.limit, left.remaining, left.reset), ("tpm", 10_000.0, 6000.0, Duration::from_secs(24)));
    limits.release(secs(1.0), held);
    assert_eq!(limits.headroom_at(secs(1.0), &ask).unwrap().remaining, 100.0, "the first of equals");
}

#[test]
fn requests_in_flight_are_refused_by_name_and_by_total() {
    let mut limits = limits(vec![], vec![seats(5, Some(3))]);
    let code = |r: Result<Reservation, Limited>| r.err().map(|l| (l.by, l.retry_after));
    let mut held: Vec<_> = (0..3).map(|_| limits.reserve(secs(0.0), &ask("a", "m", 1.0)).unwrap()).collect();
    assert_eq!(code(limits.reserve(secs(0.0), &ask("a", "m", 1.0))), Some(("tenant_concurrency_limit_exceeded", None)));
    held.extend((0..2).map(|_| limits.reserve(secs(0.0), &ask("b", "m", 1.0)).unwrap()));
    assert_eq!(code(limits.reserve(secs(0.0), &ask("b", "m", 1.0))), Some(("global_concurrency_limit_exceeded", None)));
    held.into_iter().for_each(|r| limits.release(secs(0.0), r));
    assert!(limits.levels_at(secs(0.0)).iter().all(|l| l.level == 0.0));
}

#[test]
fn spaced_requests_wait_their_turn_and_not_longer_than_said() {
    let cfg = RateConfig { max_wait: Some(Duration::from_secs(1)), ..RateConfig::new(Scope::Global, 600.0, MINUTE) };
    let mut limits = limits(vec![rate("even", Quantity::Requests, cfg)], vec![]);
    let waits: Vec<_> = (0..20).map(|_| limits.reserve(secs(5.0), &ask("a", "m", 1.0))).collect();
    for (k, wait) in waits.into_iter().enumerate() {
        match wait {
            Ok(r) => {
                let late = r.not_before().since(secs(5.0)).as_secs_f64();
                assert!((late - 0.1 * k as f64).abs() < 1e-6 && k <= 10);
                limits.settle(secs(5.0), r, &used(1.0));
            }
            Err(l) => assert!(k > 10 && l.retry_after.unwrap() > Duration::ZERO),
        }
    }
}

#[test]
fn rates_change_at_run_time_without_a_burst() {
    let mut limits =
        limits(vec![tokens_per_minute(Scope::Tenant, 600.0), shares(1e5, 100.0, &[("a", 1000.0)])], vec![]);
    let held = limits.reserve(secs(0.0), &ask("a", "m", 600.0));
    assert!(held.is_err() || limits.set_rate(secs(0.0), "tpm", &["a"], 1e6));
    held.into_iter().for_each(|r| limits.settle(secs(0.0), r, &used(600.0)));
    assert!(limits.set_rate(secs(0.0), "shares", &["a"], 2000.0) && limits.set_rate(secs(0.0), "shares", &[], 2e5));
    assert_eq!(limits.rate("shares", &["a"]), Some(2000.0));
    assert_eq!((limits.rate("shares", &[]), limits.rate("shares", &["nobody"])), (Some(2e5), None));
    assert!(!limits.set_rate(secs(0.0), "shares", &["nobody"], 1.0) && !limits.set_rate(secs(0.0), "none", &[], 1.0));
    let assured = limits.levels_at(secs(0.0)).iter().find(|l| l.path == ["a"] && l.rule == "shares").map(|l| l.rate);
    assert_eq!(assured, Some(2000.0));
}

#[test]
fn names_from_users_stay_within_their_bounds() {
    let per_tenant = RateConfig { max_names: 50, ..RateConfig::new(Scope::Tenant, 10.0, MINUTE) };
    let mut limits = limits(
        vec![rate("rpm", Quantity::Requests, per_tenant), shares(1e4, 1.0, &[("a", 10.0)])],
        vec![seats(1000, None)],
    );
    for k in 0..20_000u32 {
        let now = secs(f64::from(k) * 0.001);
        let tenant = format!("t{k}");
        if let Ok(r) = limits.reserve(now, &ask(&tenant, "m", 1.0)) {
            limits.settle(now, r, &used(1.0));
        }
    }
    let count = limits.levels_at(secs(20.0)).len();
    assert!(count <= 51 + 51 * 2 + 3, "{count}");
    assert_eq!(DEFAULT_MAX_NAMES, 10_000);
}

#[derive(Clone, Debug)]
enum Step {
    Reserve { tenant: u8, model: u8, prompt: f64, output: f64 },
    End { which: u8, used: Option<f64> },
    Reload(u8),
}

fn step() -> impl Strategy<Value = (i32, Step)> {
    let what = prop_oneof![
        6 => (0u8..6, 0u8..3, 0.0..300.0f64, 0.0..300.0f64)
            .prop_map(|(tenant, model, prompt, output)| Step::Reserve { tenant, model, prompt, output }),
        4 => (any::<u8>(), prop::option::of(0.0..900.0f64)).prop_map(|(which, used)| Step::End { which, used }),
        1 => any::<u8>().prop_map(Step::Reload),
    ];
    (prop_oneof![8 => 0i32..20, 1 => -50i32..2000], what)
}

fn mixed(scale: f64) -> LimitsConfig {
    let shaped = RateConfig {
        max_wait: Some(Duration::from_secs(5)),
        ..RateConfig::new(Scope::Route, 60_000.0 * scale, MINUTE)
    };
    LimitsConfig {
        rules: vec![
            rate("rpm", Quantity::Requests, RateConfig::new(Scope::Tenant, 300.0 * scale, MINUTE)),
            tokens_per_minute(Scope::Model, 40_000.0 * scale),
            rate("output", Quantity::OutputTokens, RateConfig::new(Scope::Global, 60_000.0, MINUTE)),
            shares(1000.0 * scale, 600.0, &[("t0", 300.0), ("t1", 200.0)]),
            rate("even", Quantity::Requests, shaped),
        ],
        concurrency: vec![seats(20, Some(8))],
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    /// Interleaved tenants, cancellation at any point, reloads, clocks that step back.
    #[test]
    fn every_reservation_settles_once_and_a_refusal_changes_nothing(steps in prop::collection::vec(step(), 1..400)) {
        let mut limits = Limits::new(secs(100.0), &mixed(1.0));
        let (mut now, mut held): (Instant, Vec<Reservation>) = (secs(100.0), Vec::new());
        for (ms, step) in steps {
            let passed = Duration::from_millis(u64::from(ms.unsigned_abs()));
            now = if ms < 0 { now - passed } else { now + passed };
            match step {
                Step::Reserve { tenant, model, prompt, output } => {
                    let (tenant, model) = (format!("t{tenant}"), format!("m{model}"));
                    let ask = Ask { tenant: &tenant, model: &model, route: "chat", prompt_tokens: prompt, output_tokens: output, ..Ask::default() };
                    // Ticks and names that were due anyway.
                    let _ = limits.clone().reserve(now, &ask);
                    limits.want(now, &ask);
                    let before = levels(&limits, now);
                    match limits.reserve(now, &ask) {
                        Ok(r) => {
                            prop_assert!(r.not_before() >= now);
                            held.push(r);
                        }
                        Err(l) => {
                            let after = levels(&limits, now);
                            let known = |level: &&(String, Vec<String>, u64, u32)| before.iter().any(|b| b.0 == level.0 && b.1 == level.1);
                            let kept: Vec<_> = after.iter().filter(known).cloned().collect();
                            prop_assert_eq!(kept, before);
                            prop_assert!(!l.terminal || l.retry_after.is_none());
                        }
                    }
                }
                Step::End { which, used } if !held.is_empty() => {
                    let r = held.swap_remove(usize::from(which) % held.len());
                    match used {
                        Some(n) => limits.settle(now, r, &Actual { prompt_tokens: n, output_tokens: n, cost: n }),
                        None => limits.release(now, r),
                    }
                }
                Step::End { .. } => {}
                Step::Reload(n) => limits.configure(now, &mixed(f64::from(n % 4 + 1) * 0.5)),
            }
            prop_assert_eq!(limits.outstanding() as usize, held.len());
            let seats = limits.levels_at(now).iter().filter(|l| l.quantity.is_none() && l.path.is_empty()).map(|l| l.level as usize).sum::<usize>();
            prop_assert_eq!(seats, held.len());
        }
        held.drain(..).for_each(|r| limits.release(now, r));
        prop_assert_eq!(limits.outstanding(), 0);
        prop_assert!(limits.levels_at(now).iter().all(|l| l.outstanding == 0));
        // Debts are bounded, and repaid: after two hours everything is full again.
        let mut end = now + Duration::from_secs(7200);
        for _ in 0..10 {
            limits.want(end, &ask("t0", "m0", 1.0));
            end = end + Duration::from_secs(5);
        }
        let full = |l: &tidegate_core::limit::limits::Level<'_>| l.level >= l.depth * 0.999 || l.quantity.is_none() || l.path.first().is_some_and(|t| *t > "t1");
        prop_assert!(limits.levels_at(end).iter().all(full), "{:?}", limits.levels_at(end));
    }
}

#[test]
fn who_asks_no_engine_is_no_concern_of_limits_on_tokens() {
    let minute = |amount| RateConfig::new(Scope::Global, amount, MINUTE);
    let rules =
        vec![rate("calls", Quantity::Requests, minute(2.0)), rate("words", Quantity::TotalTokens, minute(10.0))];
    let mut limits = Limits::new(secs(0.0), &LimitsConfig { rules, ..LimitsConfig::default() });
    let now = secs(1.0);
    let held = limits.reserve(now, &ask("a", "m", 10.0)).unwrap();
    limits.settle(now, held, &used(500.0));
    let free = Ask { asks_no_engine: true, ..ask("a", "", 0.0) };
    let refused = limits.reserve(now, &Ask { asks_no_engine: false, ..free }).unwrap_err();
    assert_eq!(refused.rule, "words", "in debt, even for a request of no tokens");
    let held = limits.reserve(now, &free).unwrap();
    limits.settle(now, held, &Actual::default());
    let refused = limits.reserve(now, &free).unwrap_err();
    assert_eq!((refused.rule.as_str(), limits.outstanding()), ("calls", 0), "it counts as a request");
}
