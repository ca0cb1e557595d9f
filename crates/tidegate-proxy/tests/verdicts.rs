//! One verdict per stream, at its end, and what its client reads.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failed expectation is a failed test")]

mod common;

use common::Running;
use tidegate_testkit::{Scripted, eventually};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const LAST: &str = "0\r\n\r\n";

/// How a stream of `chunks` that then gets `after` on its connection ends: what its client reads, whether it ended in order, and its outcome.
async fn ends(
    path: &'static str,
    chunks: &'static [&'static str],
    after: &'static str,
    pool: &str,
) -> (String, bool, &'static str) {
    let endpoint = Scripted::start(move |mut c| async move {
        if c.request().await.is_none() {
            // A probe that only connects.
            return;
        }
        c.send(HEAD).await;
        for chunk in chunks {
            c.send_chunk(chunk).await;
        }
        c.send(after).await;
        if after.is_empty() {
            // Neither a byte nor an end.
            c.closed().await;
        }
    })
    .await;
    let t = Running::with(&[endpoint.url()], &format!("policy: round_robin, {pool}"), "");
    let mut client = t.client().await;
    client.post(path, "content-type: application/json\r\n", "{\"stream\":true}").await;
    client.read_until("\r\n\r\n").await;
    let mut text = String::new();
    let whole = loop {
        match client.chunk().await {
            Ok(Some(chunk)) => text.push_str(std::str::from_utf8(&chunk).unwrap()),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    eventually("one record", || t.outcomes().len() == 1).await;
    assert_eq!(t.in_flight(), 0);
    (text, whole, t.outcomes()[0])
}

const CHAT: &str = "/v1/chat/completions";
const ONE: &str = "data: {\"n\":1}\n\n";

#[tokio::test]
async fn a_whole_stream_ends_as_its_engine_ended_it() {
    let whole = ends(CHAT, &[ONE, "data: [DONE]\n\n"], LAST, "").await;
    assert_eq!(whole, (format!("{ONE}data: [DONE]\n\n"), true, "success"));
}

#[tokio::test]
async fn a_clean_end_without_the_marker_is_told_and_never_looks_complete() {
    let (text, whole, outcome) = ends(CHAT, &[ONE], LAST, "").await;
    assert_eq!((whole, outcome), (false, "truncated"));
    let error = text.strip_prefix(ONE).unwrap();
    assert!(
        error.starts_with("event: error\ndata: {\"error\":") && error.contains("\"code\":\"stream_truncated\""),
        "{error}"
    );
    assert!(error.ends_with("\n\n"));
}

#[tokio::test]
async fn a_connection_that_breaks_between_events_is_told() {
    let (text, whole, outcome) = ends(CHAT, &[ONE], "x", "").await;
    assert_eq!((whole, outcome), (false, "truncated"));
    assert!(text.contains("\"code\":\"stream_truncated\""), "{text}");
}

#[tokio::test]
async fn within_an_event_nothing_is_put() {
    // What would follow half an event would be read as its other half.
    let (text, whole, outcome) = ends(CHAT, &[ONE, "data: {\"n\""], LAST, "").await;
    assert_eq!((text.as_str(), whole, outcome), ("data: {\"n\":1}\n\ndata: {\"n\"", false, "truncated"));
}

#[tokio::test]
async fn a_stream_that_said_it_is_over_is_whole_however_its_connection_ends() {
    let whole = ends(CHAT, &[ONE, "data: [DONE]\n\n"], "x", "").await;
    assert_eq!(whole, (format!("{ONE}data: [DONE]\n\n"), true, "success"));
    let whole = ends(CHAT, &[ONE, "data: [DONE]\n\n"], "", "timeouts: { between_tokens: 200ms }").await;
    assert_eq!(whole, (format!("{ONE}data: [DONE]\n\n"), true, "success"));
}

#[tokio::test]
async fn an_error_in_the_stream_is_passed_on_and_counts() {
    let error = "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n";
    let (text, whole, outcome) =
        ends(CHAT, &[ONE, "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n"], LAST, "").await;
    assert_eq!((text, whole, outcome), (format!("{ONE}{error}"), true, "in_band_error"));
}

#[tokio::test]
async fn a_stall_is_told() {
    let (text, whole, outcome) = ends(CHAT, &[ONE], "", "timeouts: { between_tokens: 200ms }").await;
    assert_eq!((whole, outcome), (false, "stalled"));
    assert!(text.contains("\"code\":\"stream_stalled\""), "{text}");
}

#[tokio::test]
async fn streams_that_promise_no_end_just_end() {
    assert_eq!(ends("/events", &[ONE], LAST, "").await, (ONE.to_owned(), true, "success"));
    assert_eq!(ends(CHAT, &[ONE], LAST, "stream_end: any").await, (ONE.to_owned(), true, "success"));
    let messages = &["event: message_stop\ndata: {}\n\n"];
    assert_eq!(ends("/v1/messages", messages, LAST, "").await, (messages[0].to_owned(), true, "success"));
}
