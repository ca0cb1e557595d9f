//! A user's own trace and fleet as a scenario.

use std::fmt::Write as _;
use std::path::Path;

/// The line, from 1, on which a fleet file has a workload of its own.
pub(super) fn own_workload(fleet: &str) -> Option<usize> {
    let is_key = |line: &str| line.strip_prefix("workload").is_some_and(|rest| rest.trim_start().starts_with(':'));
    fleet.lines().position(is_key).map(|at| at + 1)
}

/// The fleet file with the trace as its workload, which is added at its end, so that its line numbers hold in messages.
pub(super) fn scenario(
    fleet: &str,
    trace: &Path,
    load: Option<&str>,
    speed: Option<f64>,
    spread: Option<&str>,
) -> String {
    let file = trace.display().to_string().replace('\'', "''");
    let mut text = fleet.trim_end().to_owned();
    // Writing to a string cannot fail.
    let _ = write!(text, "\nworkload: {{ stream: true, trace: {{ file: '{file}'");
    if let Some(load) = load {
        let _ = write!(text, ", load: {load}");
    }
    if let Some(speed) = speed {
        let _ = write!(text, ", speed: {speed}");
    }
    if let Some(spread) = spread {
        let _ = write!(text, ", spread: {spread}");
    }
    text.push_str(" } }\n");
    if !fleet.lines().any(|l| l.starts_with("seeds:")) {
        text.push_str("seeds: 1\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::Scenario;

    #[test]
    fn a_fleet_and_a_trace_make_a_scenario() {
        let text =
            scenario("fleet: [{ llm: { preset: a100-8b } }]\n", Path::new("it's.csv"), Some("75%"), None, Some("3s"));
        let (scenario, warnings) = Scenario::parse(&text, "fleet.yaml", &|_| None).unwrap();
        assert!(warnings.is_empty() && scenario.seeds == 1 && scenario.rows().len() > 10);
    }
}
