//! The answer to `x-tidegate-explain: 1`.

use crate::request::error::ProxyError;
use crate::request::own_header::OwnHeader;
use crate::state::pool::PoolHandle;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use tidegate_core::endpoint::Gate;
use tidegate_core::explain::Explain;
use tidegate_core::id::EndpointId;

/// The header that asks, and the one that answers.
pub(crate) static EXPLAIN: HeaderName = HeaderName::from_static("x-tidegate-explain");

static ASKED: OwnHeader =
    OwnHeader { name: HeaderName::from_static("x-tidegate-explain"), min: 0, max: 1, is: "1 or 0" };

/// Most endpoints named in one header: a header must stay a header.
const MOST: usize = 32;

/// What is to be filled in, if a request asks for it. The header goes no further.
///
/// # Errors
/// If it asks in words that are not understood.
pub(crate) fn wanted(headers: &mut HeaderMap) -> Result<Option<Explain>, ProxyError> {
    Ok(ASKED.take(headers)?.filter(|asked| *asked == 1).map(|_| Explain::default()))
}

/// Candidates with their scores, endpoints that could not be used with the reason, and those held back for this request only.
pub(crate) fn header(explain: &Explain, pool: &PoolHandle) -> HeaderValue {
    let endpoints = pool.live.endpoints();
    let url = |id: EndpointId| endpoints.get(id.index()).map(|e| e.url.to_string()).unwrap_or_default();
    let candidates: Map<String, Value> =
        explain.candidates.iter().take(MOST).map(|&(id, score)| (url(id), json!(score))).collect();
    let why = |id: EndpointId| explain.unfit.iter().find(|(unfit, _)| *unfit == id).map(|(_, why)| why.as_str());
    let gate =
        |id: EndpointId, gate: Gate| why(id).map_or(gate.as_str().to_owned(), |w| format!("{}:{w}", gate.as_str()));
    let excluded: Map<String, Value> =
        explain.excluded.iter().take(MOST).map(|&(id, at)| (url(id), json!(gate(id, at)))).collect();
    let held_back: Vec<String> = explain.held_back.iter().take(MOST).map(|&id| url(id)).collect();
    let all = explain.candidates.len().max(explain.excluded.len()).max(explain.held_back.len());
    let beyond = |n: usize| n.saturating_sub(MOST);
    let mut text = json!({
        "policy": pool.settings().core().policy.label(),
        "candidates": candidates,
        "excluded": excluded,
        "held_back": held_back,
    });
    if all > MOST {
        text["left_out"] = json!({
            "candidates": beyond(explain.candidates.len()),
            "excluded": beyond(explain.excluded.len()),
            "held_back": beyond(explain.held_back.len()),
        });
    }
    HeaderValue::try_from(text.to_string()).unwrap_or(HeaderValue::from_static("{}"))
}
