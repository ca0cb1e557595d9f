//! Queries of a vector index: those that read alike go to one endpoint, and what its cache spared is counted.

mod common;

use common::Running;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tidegate_testkit::{Scripted, eventually};

/// An index that keeps the queries it was asked, and says so in its own words.
async fn index() -> Scripted {
    let kept = Arc::new(parking_lot::Mutex::new(HashSet::new()));
    Scripted::start(move |mut c| {
        let kept = Arc::clone(&kept);
        async move {
            while let Some(asked) = c.request().await {
                let query: serde_json::Value = serde_json::from_slice(&asked.body).unwrap_or_default();
                let word = query["query"].as_str().unwrap_or_default().to_lowercase().replace(' ', "");
                let said = if kept.lock().insert(word) { "MISS from index" } else { "Hit" };
                c.send(format!("HTTP/1.1 200 OK\r\nx-cache: {said}\r\ncontent-length: 2\r\n\r\n[]")).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn queries_that_read_alike_find_what_was_kept_and_hits_are_recorded() {
    let indexes = [index().await, index().await, index().await];
    let urls: Vec<String> = indexes.iter().map(Scripted::url).collect();
    let t = Running::with(&urls, "policy: { name: consistent_hash, key: prompt }, cache_header: X-Cache", "");
    let mut client = t.client().await;
    let queries: Vec<String> = (0..30).map(|k| format!("how to  tie knot {k}")).collect();
    for query in queries.iter().chain(&queries) {
        for text in [query.clone(), query.to_uppercase().replace("  ", " ")] {
            client.post("/search", "content-type: application/json\r\n", &format!("{{\"query\":\"{text}\"}}")).await;
            assert_eq!(client.reply().await.status, 200);
        }
    }
    eventually("all are recorded", || t.records.len() == 120).await;
    let records = t.records();
    let hits = records.iter().filter(|r| r.cache_hit == Some(true)).count();
    assert_eq!((hits, records.iter().filter(|r| r.cache_hit == Some(false)).count()), (90, 30));
    let mut by_endpoint: BTreeMap<String, u32> = BTreeMap::new();
    records.iter().for_each(|r| *by_endpoint.entry(r.endpoint.to_string()).or_default() += 1);
    assert_eq!(by_endpoint.len(), 3, "{by_endpoint:?}");
}

#[tokio::test]
async fn a_header_that_says_neither_is_not_counted() {
    let e = Scripted::start(|mut c| async move {
        while c.request().await.is_some() {
            c.send("HTTP/1.1 200 OK\r\nx-cache: DYNAMIC\r\ncontent-length: 0\r\n\r\n").await;
        }
    })
    .await;
    let t = Running::with(&[e.url()], "cache_header: x-cache", "");
    let mut client = t.client().await;
    client.get("/", "").await;
    client.reply().await;
    eventually("it is recorded", || t.records.len() == 1).await;
    assert_eq!(t.records()[0].cache_hit, None);
}
