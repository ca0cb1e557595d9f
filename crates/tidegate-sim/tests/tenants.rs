//! `scenarios/tenants.yaml`: what tenants get of one rate. The table is kept as golden text, and what it promises is asserted.
//!
//! To write it anew: TIDEGATE_WRITE_GOLDEN=1 cargo test -p tidegate-sim --test tenants
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first thing that is not as it should be")]

use std::num::NonZeroUsize;
use tidegate_sim::Scenario;
use tidegate_sim::batch::Seeds;
use tidegate_sim::study::{Cell, Grid};

fn table(seeds: u32, only: &[&str]) -> Grid {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/tenants.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let Ok((scenario, warnings)) = Scenario::parse(&text, "tenants.yaml", &|_| None) else { panic!("does not read") };
    assert!(warnings.is_empty());
    let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
    let (study, seeds) = (scenario.study.unwrap(), Seeds { first: 1, count: seeds });
    let threads = NonZeroUsize::MIN.saturating_add(1);
    study.tenants().unwrap().run(seeds, &only, threads, &mut |_, _, _| {}).remove(0)
}

/// The value of a column in the row of a trace and scheme.
fn value(table: &Grid, trace: &str, scheme: &str, key: &str) -> f64 {
    let at = table.columns.iter().position(|c| c.key == key).unwrap();
    let is = |cell: &Cell, text: &str| *cell == Cell::Text(text.to_owned());
    let row = table.rows.iter().find(|row| is(&row[0], trace) && is(&row[1], scheme)).unwrap();
    if let Cell::Number(Some(n), _) = row[at] { n } else { panic!("{trace} {scheme} {key}: {:?}", row[at]) }
}

const OURS: [&str; 2] = ["ours, refusing", "ours, queueing"];

#[test]
fn the_table_is_as_kept() {
    let found = table(4, &[]).text();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tenants.txt");
    if std::env::var_os("TIDEGATE_WRITE_GOLDEN").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == found, "tenants moved; see the head of this file.\nkept:\n{kept}\nfound:\n{found}");
}

#[test]
fn a_returning_tenant_gets_what_it_asks_from_its_first_request() {
    let names = ["returning", "bursts", "thousand", "all-assured", "two-levels", "ceilings"];
    let table = table(4, &names);
    for trace in names {
        for scheme in OURS {
            let got = |key| value(&table, trace, scheme, key);
            assert!(got("first_second_percent") >= 99.9 && got("of_asked_percent") >= 99.9, "{trace}, {scheme}");
            assert!(got("utilisation_percent") >= 99.0, "{trace}, {scheme}");
        }
        assert!(
            value(&table, trace, "shared bucket", "first_second_percent") < 60.0,
            "{trace}: first come, first served"
        );
    }
}

#[test]
fn borrowed_shares_follow_the_weights_and_no_trace_is_less_fair_than_designed() {
    let table = table(4, &["returning", "thousand", "all-assured", "weights", "costs", "two-levels", "ceilings"]);
    for scheme in OURS {
        let unfair = |trace| value(&table, trace, scheme, "unfairness");
        assert!(unfair("thousand") <= 0.08 && unfair("costs") <= 0.05, "{scheme}");
        for trace in ["returning", "all-assured", "weights", "two-levels", "ceilings"] {
            assert!(unfair(trace) <= 0.002, "{trace}, {scheme}: {}", unfair(trace));
            assert!(value(&table, trace, scheme, "off_percent") <= 5.0, "{trace}, {scheme}");
        }
    }
}

#[test]
fn no_window_exceeds_the_stated_bound() {
    let table = table(3, &[]);
    let traces = table.rows.iter().filter_map(|row| if let Cell::Text(t) = &row[0] { Some(t.as_str()) } else { None });
    for trace in traces.collect::<std::collections::BTreeSet<_>>() {
        for scheme in OURS {
            let (excess, bound) =
                (value(&table, trace, scheme, "worst_excess_ms"), value(&table, trace, scheme, "bound_ms"));
            assert!(excess <= bound + 1e-6, "{trace}, {scheme}: {excess} of {bound} ms");
        }
    }
}

#[test]
fn queueing_restores_what_refusing_loses_on_coarse_costs() {
    let table = table(8, &["costs", "lumps"]);
    for trace in ["costs", "lumps"] {
        let got = |scheme| value(&table, trace, scheme, "of_asked_percent");
        assert!(got(OURS[0]) < 95.0 && got(OURS[1]) >= 99.0, "{trace}: {} {}", got(OURS[0]), got(OURS[1]));
    }
}

#[test]
fn keys_that_a_study_does_not_read_are_refused_beside_it() {
    let text = "study: { tenants: { traces: [] } }\nnetwork: 1ms\n";
    let Err(problems) = Scenario::parse(text, "s.yaml", &|_| None) else { panic!("accepted") };
    assert!(problems.iter().any(|p| p.line == 2 && p.found.contains("network")), "{problems:?}");
}
