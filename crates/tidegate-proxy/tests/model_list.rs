//! `GET /v1/models`: one list of all that who asks can ask for.

mod common;

use common::Running;
use serde_json::{Value, json};
use tidegate_config::ListedModel;
use tidegate_core::hash::hash_bytes;
use tidegate_core::id::EndpointId;
use tidegate_core::placement::Serves;
use tidegate_testkit::{Reply, Scripted, eventually};

async fn get(t: &Running, path: &str, headers: &str) -> Reply {
    let mut client = t.client().await;
    client.get(path, headers).await;
    client.reply().await
}

/// The names in a list, in their order.
fn names(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let list: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    assert_eq!(list["object"], "list");
    let entries = list["data"].as_array().into_iter().flatten();
    entries.map(|m| m["id"].as_str().unwrap_or("no name").to_owned()).collect()
}

fn key(key: &str) -> String {
    tidegate_proxy::digest(key).iter().map(|b| format!("{b:02x}")).collect()
}

#[tokio::test]
async fn one_list_has_what_all_endpoints_serve_each_once() {
    let e = Scripted::answering("e", "its own list").await;
    let f = Scripted::answering("f", "its own list").await;
    let endpoints = [
        format!("{{ url: '{}', models: [llama, org/qwen], max_context: 4096 }}", e.url()),
        format!("{{ url: '{}', models: [llama], adapters: [llama-de], max_context: 8192 }}", f.url()),
    ];
    let t = Running::with(
        &endpoints,
        "policy: adaptive",
        "rate_limits: [{ name: calls, limit: 3 requests/h }, { name: words, limit: 1 tokens/h }]",
    );
    let reply = get(&t, "/v1/models", "x-tidegate-explain: 1\r\n").await;
    assert_eq!(names(&reply), ["llama", "org/qwen", "llama-de"]);
    assert_eq!(reply.header("x-tidegate-reason"), Some("models;merged"));
    assert_eq!(reply.header("x-tidegate-endpoint"), None, "no endpoint was asked");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert!(reply.header("ratelimit-remaining").is_some() && reply.header("x-request-id").is_some());
    let list: Value = serde_json::from_slice(&reply.body).unwrap();
    let llama = &list["data"][0];
    assert_eq!(
        (&llama["object"], &llama["owned_by"], &llama["max_model_len"]),
        (&json!("model"), &json!("tidegate"), &json!(8192))
    );
    assert!(llama["created"].as_u64().is_some_and(|s| s > 1_700_000_000) && llama.get("parent").is_none(), "{llama}");
    assert_eq!(list["data"][2]["parent"], "llama", "the only model there");
    for path in ["/v1/models/org/qwen", "/v1/models/org%2Fqwen"] {
        let one: Value = serde_json::from_slice(&get(&t, path, "").await.body).unwrap();
        assert_eq!((&one["id"], &one["max_model_len"]), (&json!("org/qwen"), &json!(4096)), "{path}");
    }
    let missing = get(&t, "/v1/models/lama", "").await;
    assert_eq!(missing.status, 404);
    assert!(
        missing.text().contains("model_not_found")
            && missing.text().contains("`lama` does not exist; served: `llama`, "),
        "{}",
        missing.text()
    );
    assert_eq!(e.connections() + f.connections(), 0, "no engine was asked");
    eventually("all are recorded", || t.records.len() == 4).await;
    let records = t.records();
    assert_eq!(
        (records[0].outcome, records[0].status, &*records[0].pool, &*records[0].endpoint),
        ("success", 200, "p", "")
    );
    assert!(records[0].ttft_s == 0.0 && records[0].total_s > 0.0, "no time of an engine: {records:?}");
    assert!(records[0].bytes_out > 100 && records[3].outcome == "model_not_found", "{records:?}");
    // Three answers were counted by the limit on requests, and no token by the other.
    assert_eq!(t.gateway.governor().with(|limits, _| limits.outstanding()), 0, "nothing stays reserved");
    let refused = get(&t, "/v1/models", "").await;
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("`calls`"), "{}", refused.text());
}

#[tokio::test]
async fn what_engines_tell_is_listed_and_what_nobody_knows_is_asked_of_an_engine() {
    let (e, f) = (Scripted::answering("e", "its own list").await, Scripted::answering("f", "its own list").await);
    let yaml = |more: &str| {
        format!(
            "pools:\n  p: {{ endpoints: [{{ url: '{}' }}, {{ url: '{}' }}], models: {{}}{more} }}",
            e.url(),
            f.url()
        )
    };
    let t = Running::from_yaml(&yaml(""));
    assert_eq!(get(&t, "/v1/models", "").await.text(), "its own list", "nothing is known yet");
    // Anything but GET is the engines' own.
    let mut client = t.client().await;
    client.post("/v1/models", "", "{}").await;
    assert_eq!(client.reply().await.text(), "its own list");
    let pool = &t.gateway.pools()[0];
    let told = [
        ListedModel {
            root: Some("meta/llama".to_owned()),
            owned_by: Some("vllm".to_owned()),
            created: Some(1_700_000_123),
            max_model_len: Some(8192),
            ..ListedModel::named("llama", false)
        },
        ListedModel { parent: Some("llama".to_owned()), ..ListedModel::named("llama-de", true) },
    ];
    let serves = |names: &[&str]| Serves {
        models: Some(names.iter().map(|n| hash_bytes(n.as_bytes())).collect()),
        ..Serves::default()
    };
    pool.on_models(EndpointId(0), &told);
    pool.with_endpoints(|p, now, _| p.on_serves(now, EndpointId(0), &serves(&["llama", "llama-de"])));
    let list: Value = serde_json::from_slice(&get(&t, "/v1/models", "").await.body).unwrap();
    let expected = json!([
        { "id": "llama", "object": "model", "created": 1_700_000_123, "owned_by": "vllm", "root": "meta/llama", "max_model_len": 8192 },
        { "id": "llama-de", "object": "model", "created": list["data"][1]["created"], "owned_by": "tidegate", "parent": "llama" },
    ]);
    assert_eq!(list["data"], expected);
    // The second endpoint may serve anything still.
    assert_eq!(get(&t, "/v1/models/other", "").await.text(), "its own list");
    pool.on_models(EndpointId(1), &[ListedModel::named("qwen", false)]);
    assert_eq!(names(&get(&t, "/v1/models", "").await), ["llama", "llama-de", "qwen"]);
    assert_eq!(get(&t, "/v1/models/other", "").await.status, 404);
    // What an endpoint served that gets no requests is not there to be asked for.
    let weight = |weight: f64| tidegate_core::event::Event::Weight { endpoint: EndpointId(0), weight };
    pool.on_event(weight(0.0));
    assert_eq!(names(&get(&t, "/v1/models", "").await), ["qwen"]);
    pool.on_event(weight(1.0));
    assert_eq!(names(&get(&t, "/v1/models", "").await), ["llama", "llama-de", "qwen"]);
    t.reload(&yaml(", model_list: engine"));
    assert_eq!(get(&t, "/v1/models", "").await.text(), "its own list", "switched off");
    t.reload(&yaml(""));
    assert_eq!(names(&get(&t, "/v1/models", "").await), ["llama", "llama-de", "qwen"], "known through reloads");
    t.reload(&yaml("").replace(", models: {}", ""));
    assert_eq!(get(&t, "/v1/models", "").await.text(), "its own list", "nobody asks any more");
}

#[tokio::test]
async fn who_asks_sees_what_it_can_ask_for_and_nothing_else() {
    let e = Scripted::answering("e", "its own list").await;
    let yaml = format!(
        "tenants: {{ identify: [{{ api_key: {{}} }}], named: {{ a: {{ keys: ['sha256:{}'] }}, b: {{ keys: ['sha256:{}'], models: ['llama*', 'bge'] }}, c: {{ keys: ['sha256:{}'], pools: [chat] }} }} }}\n\
         routes:\n  \
         - {{ match: {{ path: /v1/embeddings }}, pool: embed }}\n  \
         - {{ match: {{ path: /other/v1/ }}, pool: other }}\n  \
         - {{ match: {{ tenants: [a], models: ['private-*'] }}, pool: own }}\n  \
         - {{ match: {{ models: ['llama*'] }}, pool: chat }}\n  \
         - {{ match: {{ headers: {{ x-tier: gold }}, models: ['gold-*'] }}, pool: gold }}\n\
         pools:\n  \
         own: {{ endpoints: [{{ url: '{url}', models: [private-1, unreached] }}] }}\n  \
         chat: {{ endpoints: [{{ url: '{url}', models: [llama, private-2, qwen] }}] }}\n  \
         gold: {{ endpoints: [{{ url: '{url}', models: [gold-1] }}] }}\n  \
         other: {{ endpoints: [{{ url: '{url}', models: [elsewhere] }}] }}\n  \
         embed: {{ endpoints: [{{ url: '{url}', models: [bge] }}] }}",
        key("key-a"),
        key("key-b"),
        key("key-c"),
        url = e.url()
    );
    let t = Running::from_yaml(&yaml);
    let of = async |who: &str, headers: &str| {
        names(&get(&t, "/v1/models", &format!("authorization: Bearer key-{who}\r\n{headers}")).await)
    };
    assert_eq!(of("a", "").await, ["bge", "private-1", "llama"]);
    assert_eq!(of("a", "x-tier: gold\r\n").await, ["bge", "private-1", "llama", "gold-1"]);
    assert_eq!(of("b", "").await, ["bge", "llama"]);
    assert_eq!(of("c", "").await, ["llama"]);
    let stranger = get(&t, "/v1/models", "authorization: Bearer wrong\r\n").await;
    assert_eq!(stranger.status, 401, "{}", stranger.text());
    assert!(get(&t, "/v1/models", "").await.text().contains("missing_credentials"));
    let one = get(&t, "/v1/models/private-1", "authorization: Bearer key-b\r\n").await;
    assert!(one.status == 404 && !one.text().contains("`private-1`,"), "{}", one.text());
    assert!(!one.text().contains("gold"), "{}", one.text());
}

#[tokio::test]
async fn whose_tokens_are_used_up_still_sees_what_there_is() {
    let e = Scripted::answering("e", "an answer").await;
    let endpoints = [format!("{{ url: '{}', models: [llama] }}", e.url())];
    let t = Running::with(&endpoints, "policy: adaptive", "rate_limits: [{ name: words, limit: 20 tokens/h }]");
    let body = json!({ "model": "llama", "prompt": "a".repeat(60), "max_tokens": 1 }).to_string();
    let ask = async || {
        let mut client = t.client().await;
        client.post("/v1/completions", "content-type: application/json\r\n", &body).await;
        client.reply().await
    };
    assert_eq!(ask().await.status, 200);
    let refused = ask().await;
    assert!(refused.status == 429 && refused.text().contains("`words`"), "{}", refused.text());
    assert_eq!(names(&get(&t, "/v1/models", "").await), ["llama"]);
}
