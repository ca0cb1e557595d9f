//! Every file in examples/ is good to copy: it loads without a problem, warnings included.

#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

use std::path::{Path, PathBuf};
use tidegate_config::Config;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_example_loads_without_a_warning() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        seen += 1;
        match Config::load(&path) {
            Ok((_, problems)) | Err(problems) => {
                let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
                assert!(problems.is_empty(), "{}", shown.join("\n"));
            }
        }
    }
    assert!(seen > 0);
}

#[test]
fn the_example_says_what_it_seems_to_say() {
    let (config, _) = Config::load(&root().join("examples/three-engines.yaml")).unwrap();
    assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:8080");
    assert_eq!(config.route("/v1/chat/completions", Some("llama"), "", |_| None).unwrap().name, "chat");
    let pool = config.pool("chat").unwrap();
    assert_eq!(pool.endpoints.len(), 3);
    assert_eq!(pool.core().policy.label(), "adaptive");
    assert_eq!(pool.core_endpoints()[2].name, "http://127.0.0.1:8003");
    assert_eq!(pool.health.as_ref().unwrap().jitter, 0.1);
    assert_eq!(pool.max_load, None, "no source of load, no gate");
}

#[test]
fn a_file_that_is_not_there_is_a_problem_without_a_place() {
    let problems = Config::load(Path::new("/nonexistent/gw.yaml")).unwrap_err();
    assert_eq!((problems[0].line, problems[0].kind.code()), (0, "unreadable"));
    assert!(problems[0].to_string().starts_with("error: /nonexistent/gw.yaml\n  found:   "));
}

#[test]
fn the_reference_page_is_current() {
    let path = root().join("docs/config.md");
    let page = tidegate_config::docs();
    if std::env::var_os("TIDEGATE_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/config.md is out of date: TIDEGATE_WRITE_DOCS=1 cargo test -p tidegate-config");
}

/// The text of `gateway.yaml` in a ConfigMap, without its indentation.
fn embedded(manifest: &str) -> String {
    let block = manifest.split_once("  gateway.yaml: |\n").unwrap().1;
    block.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_config_in_deploy_loads_without_a_warning() {
    let read = |path: &str| std::fs::read_to_string(root().join("deploy").join(path)).unwrap();
    let environment = |name: &str| (name == "TIDEGATE_ADMIN_TOKEN").then(|| "token".to_owned());
    for (path, text) in [
        ("systemd/gateway.yaml", read("systemd/gateway.yaml")),
        ("container/gateway.yaml", read("container/gateway.yaml")),
        ("kubernetes/configmap.yaml", embedded(&read("kubernetes/configmap.yaml"))),
    ] {
        match Config::parse(&text, path, &environment) {
            Ok((_, problems)) | Err(problems) => {
                let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
                assert!(problems.is_empty(), "{}", shown.join("\n"));
            }
        }
    }
}

#[test]
fn what_deploy_promises_fits_together() {
    let read = |path: &str| std::fs::read_to_string(root().join("deploy").join(path)).unwrap();
    let environment = |_: &str| Some("token".to_owned());
    let config = |text: &str| Config::parse(text, "t", &environment).unwrap().0;
    let number_after = |text: &str, key: &str| -> u64 {
        let rest = text.split_once(key).unwrap().1.trim_start();
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    let unit = config(&read("systemd/gateway.yaml"));
    let drain = unit.shutdown.delay + unit.shutdown.drain_timeout;
    assert!(number_after(&read("systemd/tidegate.service"), "TimeoutStopSec=") > drain.as_secs());
    let socket = read("systemd/tidegate.socket");
    assert!(socket.contains(&format!("ListenStream={}", unit.listeners[0].address)));
    let pod = config(&embedded(&read("kubernetes/configmap.yaml")));
    let deployment = read("kubernetes/deployment.yaml");
    let before = number_after(&deployment, "sleep: { seconds:");
    let grace = number_after(&deployment, "terminationGracePeriodSeconds:");
    assert!(grace > before + pod.shutdown.drain_timeout.as_secs());
    let pods = number_after(&deployment, "  replicas:");
    assert_eq!(pod.pools[0].core().replicas, pods as f64);
}
