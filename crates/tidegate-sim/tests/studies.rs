//! Small runs of every study, byte for byte: a breaker that changes shows in a diff.

use std::num::NonZeroUsize;
use std::path::Path;

use serde_json::{Value, json};
use tidegate_sim::Scenario;
use tidegate_sim::batch::Seeds;
use tidegate_sim::study::Grid;

/// Runs the study of `text` and compares it with the file of that name; `TIDEGATE_BLESS=1` writes it.
fn golden(name: &str, text: &str) -> Value {
    let Ok((scenario, _)) = Scenario::parse(text, name, &|_| None) else { unreachable!("{text}") };
    let Some(study) = scenario.study.as_ref().and_then(|s| s.breaker()) else { unreachable!("{text}") };
    let threads = NonZeroUsize::MIN.saturating_add(1);
    let grids = study.run(Seeds { first: 1, count: scenario.seeds }, threads, &mut |_, _, _| {});
    let found = json!(grids.iter().map(Grid::json).collect::<Vec<_>>());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.json"));
    let text = format!("{found:#}\n");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        assert!(std::fs::write(&path, &text).is_ok(), "{}", path.display());
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{} differs: TIDEGATE_BLESS=1 cargo test -p tidegate-sim --test studies", path.display());
    found
}

#[test]
fn pulses_of_an_hour() {
    let text = "seeds: 1\nstudy: { pulse: { duration: 30m, small: 3, middle: 8, large: 0 } }";
    let found = golden("study-pulse", text);
    for row in found[1]["rows"].as_array().unwrap() {
        assert!(row["adaptive"].as_f64().unwrap() <= row["5_in_a_row"].as_f64().unwrap() + 6.1, "{row}");
    }
}

#[test]
fn detection_at_two_per_second() {
    let found = golden("study-detection", "seeds: 3\nstudy: { detection: { max_rate: 2 } }");
    let first = &found[0]["rows"][0];
    assert!(first["open_p50"].as_f64().unwrap() <= 1.0, "refused connections at 2 per second: {first}");
}

#[test]
fn recovery_of_a_warm_engine() {
    let found = golden("study-recovery", "seeds: 2\nstudy: { recovery: { quick: true } }");
    for row in found[0]["rows"].as_array().unwrap() {
        assert!(row["full_s_p99"].as_f64().is_some_and(|s| s <= 0.8), "{row}");
    }
}

#[test]
fn a_study_is_exactly_one() {
    for text in ["study: {}", "study: { pulse: {}, detection: {} }", "study: { recovery: { quick: 3 } }"] {
        assert!(Scenario::parse(text, "s.yaml", &|_| None).is_err(), "{text}");
    }
}
