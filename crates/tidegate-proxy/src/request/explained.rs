//! The answer to `x-tidegate-explain: 1`.

use crate::state::pool::PoolHandle;
use http::HeaderValue;
use serde_json::{Map, Value, json};
use tidegate_core::explain::Explain;
use tidegate_core::id::EndpointId;

/// Most endpoints named in one header: a header must stay a header.
const MOST: usize = 32;

/// Candidates with their scores, endpoints that could not be used with the reason, and those held back for this request only.
pub(crate) fn header(explain: &Explain, pool: &PoolHandle) -> HeaderValue {
    let endpoints = pool.live.endpoints();
    let url = |id: EndpointId| endpoints.get(id.index()).map(|e| e.url.to_string()).unwrap_or_default();
    let candidates: Map<String, Value> =
        explain.candidates.iter().take(MOST).map(|&(id, score)| (url(id), json!(score))).collect();
    let excluded: Map<String, Value> =
        explain.excluded.iter().take(MOST).map(|&(id, gate)| (url(id), json!(gate.as_str()))).collect();
    let held_back: Vec<String> = explain.held_back.iter().take(MOST).map(|&id| url(id)).collect();
    let text = json!({
        "policy": pool.settings().core().policy.label(),
        "candidates": candidates,
        "excluded": excluded,
        "held_back": held_back,
    });
    HeaderValue::try_from(text.to_string()).unwrap_or(HeaderValue::from_static("{}"))
}
