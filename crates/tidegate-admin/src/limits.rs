//! `/api/limits`: how full every limit is, and changing one while it runs.

use crate::admin::Shared;
use crate::answer::Refusal;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

/// Names shown at most, of all limits together; a limit per tenant may count ten thousand.
const MAX_SHOWN: usize = 1000;

/// A new rate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRate {
    /// Units per second.
    rate: f64,
    /// Names from the top: of a plain limit the tenant, model or route; of shares the path. Empty: the whole limit.
    #[serde(default)]
    path: Vec<String>,
}

/// What the body of a change looks like.
pub(crate) const EXAMPLE: &str = r#"{"rate": 50, "path": ["acme"]}"#;

/// Every limit as it is now: balances, debts, what is reserved.
pub(crate) fn snapshot(shared: &Shared) -> Value {
    let Some(governor) = &shared.governor else { return json!({ "limits": [] }) };
    let limits: Vec<Value> = governor.with(|limits, now| {
        let all = limits.levels_at(now);
        let show = |l: &tidegate_core::limit::limits::Level<'_>| {
            json!({
                "name": l.rule,
                "quantity": l.quantity.map(|q| q.name()),
                "scope": l.scope.name(),
                "path": l.path,
                "rate_per_s": l.rate,
                "level": l.level,
                "depth": l.depth,
                "outstanding": l.outstanding,
            })
        };
        all.iter().take(MAX_SHOWN).map(show).collect()
    });
    json!({ "limits": limits })
}

/// Sets a rate; balances shrink with their depth and never rise.
pub(crate) fn set(shared: &Shared, name: &str, new: &NewRate) -> Result<Value, Refusal> {
    if !(new.rate.is_finite() && new.rate > 0.0) {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_rate", "rate is a number above 0, in units per second"));
    }
    let path: Vec<&str> = new.path.iter().map(String::as_str).collect();
    let set = shared.governor.as_ref().is_some_and(|g| g.with(|l, now| l.set_rate(now, name, &path, new.rate)));
    if !set {
        return Err(Refusal::not_found(format!("there is no limit {name}, or it has nothing of that path")));
    }
    tracing::info!(limit = name, ?path, rate_per_s = new.rate, "operator sets a limit");
    Ok(snapshot(shared))
}
