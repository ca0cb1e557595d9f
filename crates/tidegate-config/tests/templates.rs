//! Templates are configs that pass, and overriding one field changes that field only.

mod common;

use tidegate_config::{Config, Pool, Problem, TEMPLATES, Template};

fn parse(text: &str) -> Result<(Config, Vec<Problem>), Vec<Problem>> {
    Config::parse(text, "gw.yaml", &|_| None)
}

fn pool(keys: &str) -> Pool {
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  p:\n    endpoints: [{{ url: http://127.0.0.1:9 }}]\n{keys}"
    );
    let (config, warnings) = parse(&text).unwrap_or_else(|p| unreachable!("{}", p[0]));
    assert_eq!(warnings, []);
    let mut pools = config.pools;
    pools.swap_remove(0)
}

/// Every setting of a pool but its name and endpoints, as text.
fn settings(pool: &Pool) -> Vec<String> {
    let pool = Pool { name: String::new(), endpoints: Vec::new(), ..pool.clone() };
    format!("{pool:#?}").lines().map(str::to_owned).collect()
}

#[test]
fn every_template_is_a_full_config_without_a_warning() {
    for t in TEMPLATES {
        let (config, warnings) = parse(t.text).unwrap_or_else(|p| unreachable!("{}: {}", t.name, p[0]));
        assert_eq!(warnings, [], "{}", t.name);
        assert_eq!(config.pools[0].name, t.name);
        assert!(!t.summary().is_empty());
    }
}

#[test]
fn a_pool_that_names_a_template_is_the_pool_it_shows() {
    for t in TEMPLATES {
        let (shown, _) = parse(t.text).unwrap();
        assert_eq!(settings(&pool(&format!("    template: {}", t.name))), settings(&shown.pools[0]), "{}", t.name);
    }
}

#[test]
fn overriding_one_field_changes_only_that() {
    let before = settings(&pool("    template: interactive"));
    for (keys, lines) in [
        ("    timeouts: { total: 20s }", 1),
        ("    retry: { budget: 0.5 }", 1),
        ("    queue: { max_wait: 1s }", 1),
        ("    breaker: { name: adaptive, stall_after: 7s }", 1),
        ("    health: { interval: 9s }", 1),
    ] {
        let after = settings(&pool(&format!("    template: interactive\n{keys}")));
        assert_eq!(before.len(), after.len(), "{keys}");
        let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert_eq!(changed, lines, "{keys}");
    }
}

#[test]
fn another_breaker_or_policy_takes_nothing_from_the_template_s() {
    let own =
        pool("    template: interactive\n    breaker: { name: classic, consecutive_errors: 3 }\n    policy: random");
    assert_eq!(own.breaker.params.label(), "classic");
    assert_eq!(own.policy.params.label(), "random");
    assert_eq!(pool("    template: interactive\n    breaker: off").breaker.params.label(), "off");
}

#[test]
fn a_template_that_does_not_exist_is_told_with_the_nearest_name() {
    let text = "listeners: [{ address: 127.0.0.1:0 }]\npools: { p: { template: interactiv, endpoints: [{ url: http://127.0.0.1:9 }] } }";
    let problems = parse(text).unwrap_err();
    assert_eq!(
        (problems[0].path.as_str(), problems[0].hint.as_str()),
        ("pools.p.template", "did you mean `interactive`?")
    );
    assert!(Template::find("interactiv").is_none());
}

#[test]
fn a_contradiction_with_a_template_is_shown_at_the_line_that_chose_it() {
    let text = "listeners: [{ address: 127.0.0.1:0 }]\npools:\n  p:\n    template: interactive\n    endpoints: [{ url: http://127.0.0.1:9 }]\n    timeouts: { total: 100ms }";
    let problems = parse(text).unwrap_err();
    assert!(problems.iter().all(|p| p.line == 4 || p.line == 6), "{problems:?}");
}
