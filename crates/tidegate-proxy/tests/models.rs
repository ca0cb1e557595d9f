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
    assert!(
        text.contains("`mistral`") && text.contains("`llama`, `qwen`") && text.contains("\"param\":\"model\""),
        "{text}"
    );
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

#[tokio::test]
async fn a_refusal_names_the_model_whatever_it_is_called_and_only_what_the_tenant_may_ask_for() {
    let e = Scripted::answering("e", "ok").await;
    let key = |key: &str| tidegate_proxy::digest(key).iter().map(|b| format!("{b:02x}")).collect::<String>();
    let yaml = format!(
        "tenants: {{ identify: [{{ api_key: {{}} }}], named: {{ a: {{ keys: ['sha256:{}'] }}, b: {{ keys: ['sha256:{}'], models: ['open-*'] }} }} }}\n\
         routes:\n  - {{ match: {{ tenants: [a], models: ['secret-*'] }}, pool: own }}\n  - {{ match: {{ models: ['open-*', 'shared-*'] }}, pool: shared }}\n\
         pools:\n  own: {{ endpoints: [{{ url: '{url}', models: [secret-1, secret-2] }}] }}\n  \
         shared: {{ endpoints: [{{ url: '{url}', models: [open-8b, open-70b, shared-1, hidden] }}] }}",
        key("key-a"),
        key("key-b"),
        url = e.url()
    );
    let t = Running::from_yaml(&yaml);
    let of = async |model: &str, tenant: &str| {
        let body = serde_json::json!({ "model": model, "prompt": "x" }).to_string();
        let reply = ask(&t, &body, &format!("authorization: Bearer key-{tenant}\r\n")).await;
        let answer: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON whatever was asked for");
        (reply.status, answer["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let (status, message) = of("open-80b", "b").await;
    assert_eq!(
        (status, message.as_str()),
        (404, "The model `open-80b` does not exist; served by the pool shared: `open-70b`, `open-8b`")
    );
    let (_, message) = of("open-80b", "a").await;
    assert!(message.ends_with("`open-70b`, `open-8b`, `shared-1`"), "no route leads to the fourth: {message}");
    let (_, message) = of("secret-3", "a").await;
    assert!(message.ends_with("`secret-1`, `secret-2`"), "{message}");
    let odd = format!("open-\r\nx-forged: 1\u{2028}\"}}`{}", "x".repeat(900));
    let (status, message) = of(&odd, "b").await;
    assert!(
        status == 404 && message.chars().count() < 250 && !message.contains(['\r', '\n', '\u{2028}']),
        "{message:?}"
    );
    // Limits and records keep names, so names have a bound; where a body is opaque it may be something else.
    let (status, message) = of(&format!("open-{}", "x".repeat(1020)), "b").await;
    assert_eq!((status, message.as_str()), (400, "the name of the model is longer than 1024 bytes"));
    let mut client = t.client().await;
    let body = format!("{{\"model\":\"shared-{}\"}}", "x".repeat(1020));
    client.post("/render", &format!("{JSON}authorization: Bearer key-a\r\n"), &body).await;
    let reply = client.reply().await;
    assert!(reply.status == 404 && reply.text().contains("no_route"), "{}", reply.text());
}
