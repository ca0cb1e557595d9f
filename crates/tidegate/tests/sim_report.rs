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
    // Distribution, latency against success, and the loads and requests in flight under each of the two policies; nothing waits there.
    assert_eq!((count("<figure>"), count("<svg"), count("</svg>")), (6, 6, 6));
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

/// The report of a scenario, as a folder: page and text.
fn folder(name: &str, scenario: &str, more: &[&str]) -> (String, String) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let run = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["sim", scenario, "--seeds", "1"])
        .args(more)
        .arg("--report")
        .arg(&folder)
        .current_dir(root)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    (read("report.html"), read("report.md"))
}

#[test]
fn a_folder_has_the_page_and_its_numbers_as_text() {
    let (page, text) = folder("report-tenants", "scenarios/promotion-day.yaml", &[]);
    for part in [
        "Share of the whole answers that each tenant got",
        "against goodput",
        "Load: ordinary, promotion",
        "prefers-color-scheme",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(page.replace("http://www.w3.org/2000/svg", "").matches("http").count(), 0, "nothing is fetched");
    for part in [
        "# promotion-day",
        "### Tenants",
        "| ours | quiet (5) |",
        "### Time to first token",
        "### Mean latency against load",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // Every table is one: its lines have as many cells as its head.
    let mut cells = 0;
    for line in text.lines() {
        let here = line.matches('|').count();
        assert!(here == 0 || cells == 0 || here == cells, "{line}");
        cells = here;
    }
}

#[test]
fn variants_of_other_engines_have_no_curve_against_load() {
    let (page, text) = folder("report-rounds", "scenarios/three-servers.yaml", &["--policy", "random"]);
    assert!(!page.contains("against load") && !text.contains("against load"));
    assert!(text.contains("### Total time of each round") && !text.contains("Tenants"));
}

#[test]
fn a_fleet_that_changes_is_shown_over_time() {
    let scenario = "duration: 60s\nworkload: { arrivals: { rate: 20 } }\npolicies: [{ policy: random }, { policy: adaptive }]\n\
        fleet: [{ name: e, fixed: { delay: 400ms, slots: 2 }, cold_start: { min: 5s }, autoscale: { in_flight: 2, max: 6, settle: 10s } }]\n";
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-scaled.yaml");
    std::fs::write(&path, scenario).unwrap();
    let (page, text) = folder("report-scaled", path.to_str().unwrap(), &[]);
    for part in [
        "What the fleet cost",
        "Endpoints that serve over time, first seed",
        "Requests in flight at each endpoint over time",
        "Requests waiting in each endpoint over time",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Per policy: loads, in flight, waiting; for both: two distributions of which one has no streams, the fleet, latency against success.
    assert_eq!(page.matches("<svg").count(), 2 * 3 + 3, "{}", page.matches("<svg").count());
    for part in [
        "### What the fleet cost",
        "### Endpoints over time",
        "| policy | serve | start |",
        "### Requests waiting in each endpoint",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
