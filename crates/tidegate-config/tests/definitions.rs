//! What the definitions promise holds: every default and example parses, and defaults are those of core.

mod common;

use tidegate_config::{Absent, Config, Kind, Problem, ProblemKind, Table};
use tidegate_core::balance::registry;
use tidegate_core::pool::config::PoolConfig;

/// Problems that a lone key with a good value cannot have.
fn wrong(text: &str) -> Vec<Problem> {
    let env = |name: &str| Some(format!("value of {name}"));
    let problems = match Config::parse(text, "gw.yaml", &env) {
        Ok((_, problems)) | Err(problems) => problems,
    };
    let may_be = |p: &Problem| matches!(p.kind, ProblemKind::Missing | ProblemKind::Contradiction);
    problems.into_iter().filter(|p| !may_be(p)).collect()
}

fn visit(table: &Table, wrap: &dyn Fn(&str) -> String, seen: &mut usize) {
    for key in table.keys {
        let default = match key.absent {
            Absent::Default(text) => Some(text),
            _ => None,
        };
        for value in [Some(key.example), default, key.kind.word()].into_iter().flatten() {
            let text = wrap(&format!("{}: {value}", key.name));
            let problems = wrong(&text);
            assert!(problems.is_empty(), "{text}\n{}", problems[0]);
            *seen += 1;
        }
        let name = key.name;
        match key.kind {
            Kind::Table(t) | Kind::TableOr(t, _) => visit(t, &|inner| wrap(&format!("{name}: {{ {inner} }}")), seen),
            Kind::List(t) => visit(t, &|inner| wrap(&format!("{name}: [{{ {inner} }}]")), seen),
            Kind::Named(t) => visit(t, &|inner| wrap(&format!("{name}: {{ x: {{ {inner} }} }}")), seen),
            _ => {}
        }
    }
}

#[test]
fn every_default_and_example_parses() {
    let mut seen = 0;
    visit(Config::table(), &|inner| format!("{{ {inner} }}"), &mut seen);
    assert!(seen > 100, "{seen}");
}

#[test]
fn every_policy_example_parses() {
    for d in registry::all() {
        let by_cache = ["adaptive", "least_work", "prefix_affinity"].contains(&d.name);
        let cache = if by_cache { "\n    prefix_cache: {}" } else { "" };
        common::check(&common::in_pool(&format!("    {}\n    load: {{ status: {{}} }}{cache}", d.example)), "");
        for p in d.params {
            let text =
                common::in_pool(&format!("    policy: {{ name: {}, {}: {} }}{cache}", d.name, p.name, p.example));
            assert_eq!(wrong(&text), [], "{text}");
        }
    }
}

#[test]
fn a_pool_without_settings_is_core_s_default() {
    let (config, warnings) = Config::parse(&common::in_pool(""), "gw.yaml", &common::env).unwrap();
    let core = config.pools[0].core();
    let default = PoolConfig::new(tidegate_core::descriptor::Params::defaults(registry::default_policy()));
    assert!(warnings.is_empty());
    // The gate is the one difference: without a source of load there is nothing to gate by.
    let default = PoolConfig { max_load: None, ..default };
    assert_eq!(format!("{core:?}"), format!("{default:?}"));
    let with_load = common::in_pool("    load: { status: {} }\n    health: { tcp: {} }\n    affinity: { key: tenant }");
    let (config, _) = Config::parse(&with_load, "gw.yaml", &common::env).unwrap();
    let core = config.pools[0].core();
    assert_eq!(core.max_load, Some(0.9));
    assert_eq!((core.unhealthy_after, core.healthy_after, core.panic_threshold), (3, 2, 0.5));
    assert_eq!(core.affinity, Some(tidegate_core::pool::config::AffinityConfig::default()));
}

#[test]
fn the_reference_says_what_newcomers_asked() {
    let page = tidegate_config::docs();
    for part in ["longest pause in a body", "the header `Authorization`, else", "`cpu`, `gpu` and `memory` (0..1)"] {
        assert!(page.contains(part), "{part}");
    }
}
