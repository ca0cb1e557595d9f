//! `/api/rules`: what auto-tuning rules see, what they did, switching them, and taking back what they did.
//!
//! The rules themselves run in the binary, beside what they look at; here is only what of them can be seen and asked for.

use crate::admin::Shared;
use crate::answer::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The rules as an operator sees and handles them.
pub trait RuleBook: Send + Sync {
    /// All of them as they are now, in the order of the config.
    fn rules(&self) -> Vec<RuleView>;
    /// Lets a rule act, or not; `false` if there is none of that name.
    fn set_enabled(&self, name: &str, enabled: bool) -> bool;
    /// Brings a rule's target back to its configured value; `false` if there is none of that name.
    fn revert(&self, name: &str) -> bool;
}

/// One rule. Values of the target are in the unit of the config; times in seconds; `null` is "not known" or "not so".
#[derive(Clone, Debug, Serialize)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// What it looks at.
    pub metric: String,
    /// When it acts, such as `> 0.5`.
    pub condition: String,
    /// What it changes.
    pub target: String,
    /// Whether it may act.
    pub enabled: bool,
    /// Whether it only says what it would do.
    pub dry_run: bool,
    /// The last sample, unless it is stale.
    pub value: Option<f64>,
    /// Why there is none, or why the last question failed.
    pub problem: Option<String>,
    /// How long the condition holds on every sample.
    pub holds_for_s: Option<f64>,
    /// How long it is gone on every sample.
    pub gone_for_s: Option<f64>,
    /// Time to the next change, if the metric goes on as it does.
    pub next_change_in_s: Option<f64>,
    /// The target's value now.
    pub present: Option<f64>,
    /// The target's value in the config.
    pub configured: f64,
    /// Its lowest value by this rule.
    pub min: f64,
    /// Its highest value by this rule; `null` without a bound.
    pub max: Option<f64>,
    /// The last changes, the newest first.
    pub changes: Vec<ChangeView>,
}

/// One change.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeView {
    /// How long ago.
    pub ago_s: f64,
    /// `condition`, `revert` or `operator`.
    pub why: &'static str,
    /// The target's value before.
    pub before: f64,
    /// The target's value after.
    pub after: f64,
    /// The sample that led to it.
    pub metric: Option<f64>,
    /// Whether it was only said and not done.
    pub dry_run: bool,
}

/// Whether a rule may act.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Switch {
    enabled: bool,
}

/// What the body of a switch looks like.
pub(crate) const EXAMPLE: &str = r#"{"enabled": false}"#;

pub(crate) fn snapshot(shared: &Shared) -> Value {
    json!({ "rules": shared.rules.as_ref().map(|book| book.rules()).unwrap_or_default() })
}

pub(crate) fn switch(shared: &Shared, name: &str, wanted: &Switch) -> Result<RuleView, Refusal> {
    let found = shared.rules.as_ref().is_some_and(|book| book.set_enabled(name, wanted.enabled));
    view(shared, name, found).inspect(|_| {
        tracing::info!(rule = name, enabled = wanted.enabled, "operator switches a rule");
    })
}

pub(crate) fn revert(shared: &Shared, name: &str) -> Result<RuleView, Refusal> {
    let found = shared.rules.as_ref().is_some_and(|book| book.revert(name));
    view(shared, name, found)
}

fn view(shared: &Shared, name: &str, found: bool) -> Result<RuleView, Refusal> {
    let all = shared.rules.as_ref().filter(|_| found).map(|book| book.rules()).unwrap_or_default();
    all.into_iter().find(|r| r.name == name).ok_or_else(|| Refusal::not_found(format!("there is no rule {name}")))
}
