//! Models, adapters and contexts: requests go where they can be served, and hear it plainly where they cannot.

mod common;

use common::Running;
use tidegate_core::hash::hash_bytes;
use tidegate_core::id::EndpointId;
use tidegate_core::placement::Serves;
use tidegate_testkit::{Reply, Scripted};

const JSON: &str = "content-type: application/json\r\n";

async fn ask(t: &Running, body: &str, headers: &str) -> Reply {
    let mut client = t.client().await;
    client.post("/v1/completions", &format!("{JSON}{headers}"), body).await;
    client.reply().await
}

fn of(model: &str) -> String {
    format!("{{\"model\":\"{model}\",\"prompt\":\"a short one\"}}")
}

#[tokio::test]
async fn a_request_goes_where_its_model_is_and_one_that_nobody_has_is_404() {
    let (a, b) = (Scripted::answering("a", "ok").await, Scripted::answering("b", "ok").await);
    let folder = std::env::temp_dir().join(format!("tidegate-models-{}", std::process::id()));
    let endpoints = [
        format!("{{ url: '{}', models: [llama] }}", a.url()),
        format!("{{ url: '{}', models: qwen, adapters: [qwen-de], max_context: 4096 }}", b.url()),
    ];
    let journal = format!("journal: {{ folder: '{}' }}", folder.display());
    let t = Running::with(&endpoints, "policy: adaptive, adapter_load: 500ms", &journal);
    for _ in 0..10 {
        for (model, url) in [("llama", a.url()), ("qwen", b.url()), ("qwen-de", b.url())] {
            let reply = ask(&t, &of(model), "").await;
            assert_eq!((reply.status, reply.header("x-tidegate-endpoint")), (200, Some(url.as_str())), "{model}");
        }
    }
    let reply = ask(&t, &of("mistral"), "").await;
    assert_eq!(reply.status, 404, "{}", reply.text());
    let text = reply.text();
    assert!(text.contains("\"code\":\"model_not_found\"") && text.contains("invalid_request_error"), "{text}");
    assert_eq!(reply.header("retry-after"), None, "waiting does not help");
    // What they say themselves is heard where the settings say nothing, and is in the journal.
    let pool = &t.gateway.pools()[0];
    let told = Serves { adapters: vec![hash_bytes(b"llama-fr")], ..Serves::default() };
    pool.with_endpoints(|p, now, _| p.on_serves(now, EndpointId(0), &told));
    assert_eq!(ask(&t, &of("llama-fr"), "").await.header("x-tidegate-endpoint"), Some(a.url().as_str()));
    assert!(t.gateway.stop(tidegate_testkit::PATIENCE).await);
    let file = std::fs::File::open(folder.join("p.jsonl")).unwrap();
    let again = tidegate_telemetry::replay(std::io::BufReader::new(file)).unwrap();
    assert_eq!((again.decisions, again.mismatch), (32, None));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn prompts_and_answers_that_do_not_fit_go_where_they_do() {
    let (small, large) = (Scripted::answering("s", "ok").await, Scripted::answering("l", "ok").await);
    let endpoints = [
        format!("{{ url: '{}', max_context: 1000 }}", small.url()),
        format!("{{ url: '{}', max_context: 100000 }}", large.url()),
    ];
    let t = Running::with(&endpoints, "policy: round_robin", "");
    let long = format!("{{\"prompt\":\"{}\"}}", "word ".repeat(800));
    for body in [long.as_str(), "{\"prompt\":\"hi\",\"max_tokens\":2000}", "{\"prompt\":\"hi\",\"max_tokens\":200000}"]
    {
        for _ in 0..3 {
            assert_eq!(ask(&t, body, "").await.header("x-tidegate-endpoint"), Some(large.url().as_str()));
        }
    }
    let short = [ask(&t, &of("m"), "").await, ask(&t, &of("m"), "").await];
    let went = |url: &str| short.iter().any(|r| r.header("x-tidegate-endpoint") == Some(url));
    assert!(went(&small.url()) && went(&large.url()), "short ones go anywhere");
}
