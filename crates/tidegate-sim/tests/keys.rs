//! The definitions of scenario keys: every default and example reads, and the reference page says what they say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first thing that is not as it should be")]

use tidegate_config::{Absent, Kind, ProblemKind, Table};
use tidegate_sim::Scenario;

/// What is wrong besides keys that are missing or do not fit together, which a lone key cannot help.
fn wrong(text: &str) -> Vec<String> {
    let problems = match Scenario::parse(text, "s.yaml", &|_| None) {
        Ok((_, problems)) | Err(problems) => problems,
    };
    let may_be = |k: ProblemKind| matches!(k, ProblemKind::Missing | ProblemKind::Contradiction);
    problems.iter().filter(|p| !may_be(p.kind)).map(ToString::to_string).collect()
}

fn visit(table: &Table, wrap: &dyn Fn(&str) -> String, seen: &mut usize) {
    for key in table.keys {
        let default = if let Absent::Default(text) = key.absent { Some(text) } else { None };
        for value in [Some(key.example), default, key.kind.word()].into_iter().flatten() {
            let text = wrap(&format!("{}: {value}", key.name));
            assert_eq!(wrong(&text), Vec::<String>::new(), "{text}");
            *seen += 1;
        }
        let name = key.name;
        match key.kind {
            Kind::Table(t) => visit(t, &|inner| wrap(&format!("{name}: {{ {inner} }}")), seen),
            Kind::List(t) => visit(t, &|inner| wrap(&format!("{name}: [{{ {inner} }}]")), seen),
            _ => {}
        }
    }
}

#[test]
fn every_default_and_example_reads() {
    let mut seen = 0;
    visit(Scenario::table(), &|inner| format!("{{ {inner} }}"), &mut seen);
    assert!(seen > 100, "{seen}");
}

#[test]
fn the_reference_page_is_made_from_the_definitions() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulation-keys.md");
    let page = Scenario::docs();
    if std::env::var_os("TIDEGATE_WRITE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).is_ok_and(|kept| kept == page),
        "the page is stale; its head says how to write it"
    );
}

#[test]
fn mistakes_are_told_with_their_place() {
    let text = "fleet: [{ fixed: { delay: 1s }, llm: {} }]\nworkload: { arrivals: { rat: 5 } }\npolicies: [{ policy: adaptve }]\n";
    let Err(problems) = Scenario::parse(text, "s.yaml", &|_| None) else { panic!("accepted") };
    let all: Vec<String> = problems.iter().map(|p| format!("{}:{} {}", p.line, p.path, p.found)).collect();
    assert!(all.iter().any(|p| p.starts_with("1:fleet[0]") && p.contains("more than one model")), "{all:?}");
    assert!(all.iter().any(|p| p.starts_with("2:workload.arrivals") && p.contains("rat")), "{all:?}");
    assert!(all.iter().any(|p| p.starts_with("3:policies[0].policy") && p.contains("adaptve")), "{all:?}");
}
