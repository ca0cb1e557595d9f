//! `tidegate sim --report`: one page that needs nothing else.
#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

use std::process::Command;

#[test]
fn a_report_is_one_page_with_a_plot_per_figure() {
    let page = std::env::temp_dir().join(format!("tidegate-report-{}.html", std::process::id()));
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/article.yaml");
    let run = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["sim", scenario, "--seeds", "2", "--policy", "adaptive", "--policy", "random", "--report"])
        .arg(&page)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let html = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    let count = |what: &str| html.matches(what).count();
    // Distribution, latency against success, and the loads under each of the two policies.
    assert_eq!((count("<figure>"), count("<svg"), count("</svg>")), (4, 4, 4));
    assert_eq!(html.replace("http://www.w3.org/2000/svg", "").matches("http").count(), 0, "nothing is fetched");
    assert!(count("<polyline") > 6, "curves are drawn");
    assert!(html.contains("adaptive minus") && !html.contains("round 1, s"));
    assert!(html.contains("<td>adaptive</td>") && html.contains("<td>random</td>"));
}

#[test]
fn rounds_and_their_ideal_are_a_table() {
    let page = std::env::temp_dir().join(format!("tidegate-report-rounds-{}.html", std::process::id()));
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/two-servers.yaml");
    let run = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["sim", scenario, "--seeds", "2", "--variant", "queue", "--policy", "round_robin", "--report"])
        .arg(&page)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let html = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    for part in ["<th>round 1, s</th>", "<th>ideal</th>", "<td>56.80</td>", "<td>106.50</td>"] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("minus"), "one policy has no other to be compared with");
}
