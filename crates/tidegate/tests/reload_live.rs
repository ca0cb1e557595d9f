//! A process that takes another config: by file, signal and admin call; and one that is told why it does not.
#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

mod lifecycle;

use lifecycle::{Folder, Process, ask};
use serde_json::json;

fn text(watch: &str, pools: &str) -> String {
    format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\nadmin: {{ address: '127.0.0.1:0' }}\nthreads: 1\nreload: {{ watch: {watch} }}\n{pools}"
    )
}

fn pool(port: u16, policy: &str) -> String {
    format!("pools: {{ p: {{ policy: {policy}, endpoints: [{{ url: 'http://127.0.0.1:{port}' }}] }} }}\n")
}

#[test]
fn a_changed_file_a_signal_and_an_operator_put_a_config_in_force() {
    let folder = Folder::new("reload");
    let file = folder.write("gw.yaml", &text("100ms", &pool(1, "round_robin")));
    let process = Process::start(&file, &[]);
    let policy = || process.get("/api/pools")["pools"][0]["policy"].clone();
    assert_eq!((process.generation(), policy()), (1, json!("round_robin")));
    folder.write("gw.yaml", &text("100ms", &pool(1, "least_connections")));
    process.reaches(2);
    assert_eq!(
        (process.get("/api/config")["loaded_by"].clone(), policy()),
        (json!("file"), json!("least_connections"))
    );
    // From now on only when asked for.
    folder.write("gw.yaml", &text("off", &pool(2, "random")));
    process.reaches(3);
    folder.write("gw.yaml", &text("off", &pool(2, "hybrid")));
    process.signal("HUP");
    process.reaches(4);
    assert_eq!(process.get("/api/config")["loaded_by"], json!("signal"));
    let (status, view) = process.post("/api/config/reload");
    assert_eq!((status, &view["generation"], &view["loaded_by"]), (200, &json!(5), &json!("admin")));
    assert_eq!(process.metric("tidegate_config_generation"), Some(5.0));
    assert_eq!(process.metric("tidegate_config_reloads_total{result=\"applied\"}"), Some(4.0));
    let page = ask(process.admin, "GET /metrics HTTP/1.1\r\nhost: localhost\r\n").1;
    assert!(
        page.contains("http://127.0.0.1:2\"") && !page.contains("http://127.0.0.1:1\""),
        "series of the old are gone"
    );
}

#[test]
fn a_faulty_file_changes_nothing_and_says_where_and_what_was_meant() {
    let folder = Folder::new("rejected");
    let file = folder.write("gw.yaml", &text("off", &pool(1, "round_robin")));
    let process = Process::start(&file, &[]);
    folder.write("gw.yaml", &text("off", &pool(1, "round_robin").replace("policy", "polcy")));
    let (status, answer) = process.post("/api/config/reload");
    let problem = &answer["error"]["problems"][0];
    assert_eq!((status, &answer["error"]["code"]), (422, &json!("config_rejected")));
    assert_eq!((&problem["line"], &problem["code"]), (&json!(5), &json!("unknown_key")));
    assert!(problem["hint"].as_str().unwrap().contains("policy"), "{problem}");
    let said = process.says("the config is rejected");
    assert!(said.contains("gw.yaml:5") && said.contains("polcy"), "{said}");
    let view = process.get("/api/config");
    assert_eq!((&view["generation"], &view["rejected"]["problems"][0]["line"]), (&json!(1), &json!(5)));
    assert_eq!(process.metric("tidegate_config_rejected"), Some(1.0));
    assert_eq!(process.metric("tidegate_config_reloads_total{result=\"rejected\"}"), Some(1.0));
    assert_eq!(process.get("/api/pools")["pools"][0]["policy"], json!("round_robin"), "the one in force stays");
    // What needs a restart is named, and the rest is taken.
    folder.write("gw.yaml", &text("off", &pool(1, "random")).replace("threads: 1", "threads: 2"));
    let (status, view) = process.post("/api/config/reload");
    assert_eq!((status, &view["needs_restart"], &view["rejected"]), (200, &json!(["threads"]), &json!(null)));
    assert_eq!(process.get("/api/pools")["pools"][0]["policy"], json!("random"));
    assert_eq!(process.metric("tidegate_config_rejected"), Some(0.0));
}
