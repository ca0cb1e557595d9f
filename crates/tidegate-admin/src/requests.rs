//! `/api/requests`: the last records, and look-ups by request id.

use crate::admin::Shared;
use crate::answer::Refusal;
use http::StatusCode;
use serde_json::{Value, json};
use tidegate_telemetry::{Kept, RECENT_RECORDS};

/// Records shown where `?limit=` does not say.
const DEFAULT_LIMIT: usize = 100;

/// The newest records, the newest first.
pub(crate) fn newest(shared: &Shared, query: Option<&str>) -> Result<Value, Refusal> {
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let limit = match pairs.filter(|(key, _)| *key == "limit").map(|(_, n)| n.parse::<usize>()).next() {
        None => DEFAULT_LIMIT,
        Some(Ok(n)) if n <= RECENT_RECORDS => n,
        Some(_) => {
            let message = format!("limit is a whole number up to {RECENT_RECORDS}");
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_limit", message));
        }
    };
    Ok(list(&shared.telemetry.recent(limit)))
}

/// The records of one request id: more than one if the client used it again.
pub(crate) fn find(shared: &Shared, id: &str) -> Result<Value, Refusal> {
    let found = shared.telemetry.find(id);
    if found.is_empty() {
        let message = format!("no request {id} among the last {RECENT_RECORDS} that ended");
        return Err(Refusal::not_found(message));
    }
    Ok(list(&found))
}

fn list(kept: &[Kept]) -> Value {
    json!({ "requests": kept.iter().map(show).collect::<Vec<_>>() })
}

fn show(kept: &Kept) -> Value {
    let r = &kept.record;
    json!({
        "number": kept.number,
        "ended_unix_s": kept.ended_unix_s,
        "request_id": r.request_id,
        "method": r.method,
        "path": r.path,
        "tenant": &*r.tenant,
        "pool": &*r.pool,
        "endpoint": &*r.endpoint,
        "reason": r.reason,
        "model": r.model,
        "stream": r.stream,
        "status": r.status,
        "outcome": r.outcome,
        "attempts": r.attempts,
        "prompt_tokens": r.prompt_tokens,
        "output_events": r.output_events,
        "output_tokens": r.output_tokens,
        "queued_s": r.queued_s,
        "bytes_out": r.bytes_out,
        // No first byte is no time, not the shortest one.
        "ttft_s": (r.ttft_s > 0.0).then_some(r.ttft_s),
        "total_s": r.total_s,
    })
}
