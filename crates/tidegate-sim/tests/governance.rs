//! `scenarios/promotion-day.yaml` and `scenarios/retry-storm.yaml`: what governance does for those who did nothing. The tables are kept as
//! golden text, and what they promise is asserted.
//!
//! To write them anew: TIDEGATE_WRITE_GOLDEN=1 cargo test -p tidegate-sim --test governance
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first thing that is not as it should be")]

use std::fmt::Write as _;
use std::num::NonZeroUsize;

use tidegate_sim::batch::{Seeds, run};
use tidegate_sim::report::{Report, TenantLine, report};
use tidegate_sim::scenario::{Scenario, Unread};

/// Reports of a scenario by variant, in its order.
fn reports(name: &str, seeds: u32) -> Vec<Report> {
    let path = format!("{}/../../scenarios/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let Ok((scenario, warnings)) = Scenario::parse(&text, name, &|_| None) else { panic!("{name} does not read") };
    assert!(warnings.is_empty());
    let cells = scenario.cells(&|_| Err(Unread::Absent("no traces".to_owned()))).unwrap();
    let rows = scenario.rows();
    let runs = run(&cells, &rows, Seeds { first: 1, count: seeds }, NonZeroUsize::new(2).unwrap(), |_, _| {});
    cells.iter().zip(&runs).map(|(cell, runs)| report(cell, &rows, runs)).collect()
}

fn golden(name: &str, found: &str) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("TIDEGATE_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == found, "{name} moved; see the head of this file.\nkept:\n{kept}\nfound:\n{found}");
}

fn line<'r>(report: &'r Report, row: &str, tenant: &str) -> &'r TenantLine {
    report.tenants.iter().find(|t| t.row == row && t.tenant == tenant).unwrap()
}

/// 99 % quantile of the quiet tenants on the day of the promotion over that of the ordinary day, and the share of them served.
fn quiet(day: &[Report], row: &str) -> (f64, f64) {
    let [promotion, ordinary] = day else { panic!("two days") };
    let (busy, calm) = (line(promotion, row, "quiet"), line(ordinary, row, "quiet"));
    assert_eq!(busy.requests, calm.requests, "the same requests on both days");
    (busy.p99_s.unwrap() / calm.p99_s.unwrap(), busy.success)
}

#[test]
fn a_promotion_day_is_not_noticed_by_who_has_none() {
    let day = reports("promotion-day", 4);
    let mut table = String::new();
    for report in &day {
        writeln!(table, "{}", report.variant.as_deref().unwrap()).unwrap();
        for t in &report.tenants {
            let (success, refused) = (t.success * 100.0, t.refused * 100.0);
            let (p50, p99) = (t.p50_s.unwrap(), t.p99_s.unwrap());
            let (row, tenant, n) = (&t.row, &t.tenant, t.requests);
            writeln!(
                table,
                "  {row:10} {tenant:5} {n:6} success {success:7.3} refused {refused:7.3} p50 {p50:.4} p99 {p99:.4}"
            )
            .unwrap();
        }
    }
    golden("promotion-day", &table);

    let (slower, served) = quiet(&day, "ours");
    assert!(slower < 1.10 && served > 0.999, "p99 x{slower:.3}, {served:.4} served");
    assert!(
        quiet(&day, "first-come").0 > 1.3 && quiet(&day, "first-come").1 < 0.9,
        "one bucket for all is no protection"
    );
    assert!(quiet(&day, "none").0 > 2.0, "nor is none");
    assert!(quiet(&day, "no-queue").1 < 0.97, "without waiting, moments over a share are refused");
    let promo = |row| line(&day[0], row, "promo").success;
    assert!(promo("ours") > 1.3 * promo("windows"), "what nobody asks for is lent");
}

#[test]
fn a_retry_storm_stays_within_the_budget() {
    let storm = reports("retry-storm", 4);
    let mut table = String::new();
    for l in &storm[0].lines {
        writeln!(table, "{:9} {:6} requests {:6} retries", l.name, l.requests, l.retries).unwrap();
    }
    golden("retry-storm", &table);
    for l in &storm[0].lines {
        let ratio = l.retries as f64 / l.requests as f64;
        let (least, most) = match l.name.as_str() {
            "ours" => (0.15, 0.2),
            "budget-10" => (0.05, 0.1),
            "no-retry" => (0.0, 0.0),
            _ => (2.0, 2.0),
        };
        assert!((least..=most).contains(&ratio), "{}: {ratio} retries a request", l.name);
    }
}

#[test]
fn a_governance_that_cannot_be_is_refused_at_its_line() {
    let text = "fleet: [{ fixed: { delay: 1s } }]\nworkload:\n  tenants:\n    - { name: a, count: 2, arrivals: { rate: 1 } }\n    - { name: a-1, arrivals: { rate: 1 } }\ngovernance: [{ name: x, qeue: {} }]\n";
    let Err(problems) = Scenario::parse(text, "s.yaml", &|_| None) else { panic!("accepted") };
    let said: Vec<String> = problems.iter().map(|p| format!("{} {}", p.line, p.found)).collect();
    assert_eq!(said, ["4 the tenant `a-1` twice", "6 an unknown key, `qeue`"], "{problems:?}");
}

/// Answers of ten tokens under a limit of 4,000 tokens a second, of which 5,000 are asked for: a gateway that begins with 256 tokens an answer lets
/// fewer in at first, has learned better within seconds, and is then as good as one that knows.
#[test]
fn lengths_of_answers_are_learned_and_not_known() {
    let served = |duration: &str, says: &str| {
        let text = format!(
            "duration: {duration}\nfleet: [{{ count: 4, fixed: {{ delay: 50ms }} }}]\npolicies: [{{ policy: round_robin }}]\n\
             workload: {{ prompt_tokens: 40, output_tokens: 10{says}, arrivals: {{ rate: 100, process: constant }} }}\n\
             governance:\n  - {{ name: learned, rate_limits: &limits [{{ name: t, limit: 4_000 tokens/s, burst: 500 }}] }}\n  \
             - {{ name: known, known_lengths: true, rate_limits: *limits }}\n"
        );
        let (scenario, _) = Scenario::parse(&text, "s.yaml", &|_| None).unwrap_or_else(|p| panic!("{}", p[0]));
        let cells = scenario.cells(&|_| Err(Unread::Absent(String::new()))).unwrap();
        let tallies =
            scenario.rows().iter().map(|row| row.kernel(&cells[0].setup, 1).run().success()).collect::<Vec<_>>();
        (tallies[0], tallies[1])
    };
    let (learned, known) = served("100ms", "");
    assert!(learned < known - 0.1, "{learned} {known}");
    let (learned, known) = served("60s", "");
    assert!((0.78..0.84).contains(&known) && (learned - known).abs() < 0.02, "{learned} {known}");
    // Half of the bucket for an answer of ten tokens: whoever says so is let in as often as there is room for that.
    let (said, known) = served("60s", ", max_tokens: 250");
    assert!(said < known - 0.05 && (0.78..0.84).contains(&known), "{said} {known}");
}

/// The clients of a trace are tenants: a limit for each is a limit for each, and who asks little gets all of it.
#[test]
fn clients_of_a_trace_are_tenants() {
    let mut text = String::from("t_s,client,input_tokens,output_tokens\n");
    for k in 0..300 {
        text.push_str(&format!("{:.2},{},10,5\n", f64::from(k) * 0.1, if k % 10 == 0 { 9000 } else { 17 }));
    }
    let scenario = "fleet: [{ fixed: { delay: 50ms } }]\nworkload: { trace: { file: t.csv } }\npolicies: [{ policy: round_robin }]\n\
                    governance:\n  - { name: each, rate_limits: [{ name: r, limit: 3 requests/s, per: tenant }] }\n  \
                    - { name: all, told_apart: false, rate_limits: [{ name: r, limit: 3 requests/s, per: tenant }] }\n";
    let (scenario, _) = Scenario::parse(scenario, "s.yaml", &|_| None).unwrap_or_else(|p| panic!("{}", p[0]));
    let cells = scenario.cells(&|_: &str| Ok(text.clone())).unwrap();
    let served: Vec<u64> = scenario.rows().iter().map(|row| row.kernel(&cells[0].setup, 1).run().succeeded).collect();
    // 30 s of one a second, all of it, and of nine a second, three.
    assert!((115..=130).contains(&served[0]), "{served:?}");
    assert!((85..=100).contains(&served[1]), "{served:?}");
}
