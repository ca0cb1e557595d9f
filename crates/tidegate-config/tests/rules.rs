//! Auto-tuning rules as written: what they may change, and what is said about those that cannot work.

#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

mod common;

use common::check;
use std::time::Duration;
use tidegate_config::{Config, Source, Target};
use tidegate_core::tune::{Op, Revert, Step};

const LIMITS: &str = "
listeners: [{ address: 127.0.0.1:8080 }]
tenants: { identify: [{ api_key: {} }] }
rate_limits: [{ name: all, limit: 600 requests/min }, { name: all.big, limit: 50 requests/s, per: tenant, overrides: { acme: { amount: 80 } } }, { name: shared, limit: 6_000 requests/min, shares: { acme: { assured: 10 requests/s } } }]
concurrency_limits: [{ name: streams, max_in_flight: 400 }, { name: auto, max_in_flight: 10, adaptive: {} }]
routes: [{ match: { path: /q }, pool: q }, { pool: p }]
pools: { p: { endpoints: [{ url: http://a:1, weight: 3 }], rate_limits: [{ name: own, limit: 5 requests/s }] }, q: { endpoints: [{ url: http://a:2 }], max_in_flight: 32 } }
";

/// The limits, then one rule on line 6.
fn with_rule(when: &str, action: &str, more: &str) -> String {
    let rule = format!("rules: [{{ name: r, when: {{ {when} }}, do: {{ {action} }}{more} }}]\n");
    LIMITS.trim_start().to_owned() + &rule
}

const WHEN: &str = "metric: p99(tidegate_ttft_seconds), op: \">\", value: 500ms";

fn target(name: &str) -> (Target, f64) {
    let text = with_rule(WHEN, &format!("scale: 0.8, min: 1, target: '{name}'"), "");
    let (config, _) = Config::parse(&text, "gw.yaml", &|_| None).unwrap();
    (config.rules[0].target.clone(), config.rules[0].core().configured)
}

#[test]
fn a_target_is_found_with_its_value_in_the_unit_of_the_file() {
    let rate = |limit: &str, path: &[&str], period_s| Target::Rate {
        limit: limit.to_owned(),
        path: path.iter().map(|p| (*p).to_owned()).collect(),
        period_s,
    };
    assert_eq!(target("rate_limits.all"), (rate("all", &[], 60.0), 600.0));
    assert_eq!(target("rate_limits.all.big"), (rate("all.big", &[], 1.0), 50.0));
    assert_eq!(target("rate_limits.all.big.acme"), (rate("all.big", &["acme"], 1.0), 80.0));
    assert_eq!(target("rate_limits.all.big.zeta.x"), (rate("all.big", &["zeta.x"], 1.0), 50.0));
    assert_eq!(target("rate_limits.shared"), (rate("shared", &[], 60.0), 6000.0));
    assert_eq!(target("rate_limits.shared.acme"), (rate("shared", &["acme"], 60.0), 600.0));
    assert_eq!(target("concurrency_limits.streams"), (Target::Total { limit: "streams".to_owned() }, 400.0));
    assert_eq!(target("pools.p.rate_limits.own"), (rate("p.own", &[], 1.0), 5.0));
    assert_eq!(target("pools.q.max_in_flight"), (Target::Pool { pool: 1 }, 32.0));
    assert_eq!(target("pools.p.endpoints[0].weight"), (Target::Weight { pool: 0, endpoint: 0 }, 3.0));
}

#[test]
fn what_cannot_be_changed_is_refused_with_the_nearest_name() {
    for (name, hint) in [
        ("rate_limits.al", "did you mean `rate_limits.all`?"),
        ("rate_limits.all.acme", "did you mean `rate_limits.all.big`?"),
        ("rate_limits.shared.acma", "did you mean `rate_limits.shared.acme`?"),
        ("concurrency_limits.auto", "it is adaptive: its total follows response times already"),
        ("pools.p.endpoints[1].weight", "did you mean `pools.p.endpoints[0].weight`?"),
        ("pools.p.max_in_flight", "did you mean `pools.q.max_in_flight`?"),
        ("queue", "for example: `target: rate_limits.all`"),
    ] {
        let text = with_rule(WHEN, &format!("scale: 0.8, min: 1, target: '{name}'"), "");
        let found = format!("`{name}`, which is nothing that can be changed");
        let column = text.lines().nth(6).and_then(|l| l.find(&format!("'{name}'"))).map_or(0, |at| at + 1);
        check(&text, &format!("7:{column} contradiction rules[0].do.target | {found} | {hint}"));
    }
}

#[test]
fn a_rule_is_bounded_where_it_goes() {
    for (action, said) in [
        ("target: rate_limits.all, scale: 0.8", "`scale` without `min` | add `min`, so that the rule ends somewhere"),
        ("target: rate_limits.all, step: +100", "`step` without `max` | add `max`, so that the rule ends somewhere"),
        ("target: rate_limits.all, scale: 1, min: 1", "1 | for example: `scale: 0.8`"),
        ("target: rate_limits.all, min: 9, max: 3, step: -1", "min 9 over max 3 | lower min or raise max"),
        ("target: rate_limits.all, set: 5, min: 9", "5, outside of min and max |"),
        ("target: rate_limits.all", "no step | for example: `scale: 0.8`"),
        ("target: rate_limits.all, scale: 2, set: 3", "more than one step | for example: `scale: 0.8`"),
    ] {
        let summary = common::summary(&with_rule(WHEN, action, ""));
        assert!(summary.starts_with("7:") && summary.ends_with(said) && summary.lines().count() == 1, "{summary}");
    }
}

#[test]
fn one_metric_and_a_way_back_on_the_calm_side() {
    let good = "scale: 0.8, min: 1, target: rate_limits.all";
    for (when, more, said) in [
        ("op: \">\", value: 1", "", "no metric | for example: `metric: p99(tidegate_ttft_seconds)`"),
        (
            "metric: x, prometheus: { url: http://a, query: up }, op: \">\", value: 1",
            "",
            "both `metric` and `prometheus` | for example: `metric: p99(tidegate_ttft_seconds)`",
        ),
        ("metric: p99(x, op: \">\", value: 1", "", "p99(x | the closing ) is missing, or not at the end"),
        ("metric: x, op: \"=>\", value: 1", "", "=> | did you mean `>`?"),
        ("metric: x, op: \">\", value: fast", "", "fast | for example: `value: 500ms`"),
        ("metric: x, op: \">\", value: 1", ", revert: { value: 2 }", "2, where the condition > 1 still holds |"),
    ] {
        let summary = common::summary(&with_rule(when, good, more));
        assert!(summary.ends_with(said) && summary.lines().count() == 1, "{summary}");
    }
}

#[test]
fn the_example_reads_as_it_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/auto-tuning.yaml");
    let (config, _) = Config::load(std::path::Path::new(path)).unwrap();
    let [latency, cpu, gpu] = &config.rules[..] else { panic!("three rules") };
    let core = latency.core();
    assert_eq!((core.when.op, core.when.value, core.when.clear), (Op::Above, 0.5, 0.3));
    assert_eq!((core.step, core.bounds.min, core.configured), (Step::Scale(0.8), 200.0, 1000.0));
    assert_eq!(core.revert, Some(Revert { hold: Duration::from_secs(120) }));
    assert_eq!((cpu.core().step, cpu.core().when.value), (Step::Add(-100.0), 0.7));
    let Source::Query(asked) = &cpu.when.source else { panic!("a query") };
    assert!(asked.url.path.starts_with("/api/v1/query?query=1%20-%20avg%28rate%28"), "{}", asked.url);
    assert!(gpu.dry_run && gpu.core().bounds.whole && gpu.core().stale_after == Duration::from_secs(15));
}
