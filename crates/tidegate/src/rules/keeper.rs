//! One rule with what is kept of it: its target, what is wrong with its metric, and what it did.

use std::collections::VecDeque;

use super::levers::Levers;
use tidegate_admin::{ChangeView, RuleView};
use tidegate_config::Target;
use tidegate_core::time::Instant;
use tidegate_core::tune::{Change, Rule};
use tidegate_telemetry::Telemetry;

/// Changes kept of a rule.
const MAX_CHANGES: usize = 50;

/// A rule under way.
pub(super) struct Kept {
    /// What it was made from.
    pub(super) settings: tidegate_config::Rule,
    pub(super) rule: Rule,
    pub(super) target: Target,
    /// What it looks at.
    pub(super) metric: String,
    /// Why the last question gave no number.
    pub(super) problem: Option<String>,
    /// The last of these that was logged.
    pub(super) said: Option<String>,
    /// Of a dry run: the value its target would have.
    pub(super) pretended: Option<f64>,
    /// The oldest first.
    pub(super) changes: VecDeque<Change>,
}

impl Kept {
    /// A rule that has seen nothing.
    pub(super) fn new(rule: &tidegate_config::Rule) -> Self {
        Self {
            settings: rule.clone(),
            rule: Rule::new(rule.core().clone()),
            target: rule.target.clone(),
            metric: super::metrics::shown(&rule.when.source),
            problem: None,
            said: None,
            pretended: rule.dry_run.then(|| rule.core().configured),
            changes: VecDeque::new(),
        }
    }

    /// The value the rule's next step begins at.
    pub(super) fn present(&self, levers: &Levers) -> Option<f64> {
        self.pretended.or_else(|| levers.present(&self.target))
    }

    /// Remembers why there is no number. A metric that comes and goes for the same reason is logged once.
    pub(super) fn note(&mut self, problem: Option<String>) {
        if problem.is_some() && problem != self.said {
            let why = problem.as_deref();
            tracing::info!(
                rule = self.rule.config().name,
                metric = self.metric,
                why,
                "the metric of a rule is not known"
            );
            self.said.clone_from(&problem);
        }
        self.problem = problem;
    }

    /// Does what core decided, logs and counts it. A dry run only says it.
    pub(super) fn carry_out(&mut self, place: usize, change: Change, levers: &Levers, telemetry: &Telemetry) {
        let dry_run = self.pretended.is_some();
        if dry_run {
            self.pretended = Some(change.after);
        } else if levers.set(&self.target, change.after) {
            telemetry.on_rule_change(place);
        } else {
            return self.note(Some(format!("{} is not there any more", change.target)));
        }
        let (rule, target, why) = (&*change.rule, &*change.target, change.why.as_str());
        let (before, after, metric) = (change.before, change.after, change.metric);
        if dry_run {
            tracing::warn!(rule, target, why, before, after, metric, "a rule would change its target (dry run)");
        } else {
            tracing::warn!(rule, target, why, before, after, metric, "a rule changes its target");
        }
        if self.changes.len() == MAX_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    /// As the admin API shows it.
    pub(super) fn view(&self, now: Instant, levers: &Levers) -> RuleView {
        let (cfg, state) = (self.rule.config(), self.rule.state_at(now));
        let ago = |at: Instant| now.secs_since(at);
        let change = |c: &Change| ChangeView {
            ago_s: ago(c.at),
            why: c.why.as_str(),
            before: c.before,
            after: c.after,
            metric: c.metric,
            dry_run: self.pretended.is_some(),
        };
        RuleView {
            name: cfg.name.clone(),
            metric: self.metric.clone(),
            condition: format!("{} {}", cfg.when.op.as_str(), cfg.when.value),
            target: cfg.target.clone(),
            enabled: state.enabled,
            dry_run: self.pretended.is_some(),
            value: state.value,
            problem: self.problem.clone(),
            holds_for_s: state.holds_since.map(ago),
            gone_for_s: state.gone_since.map(ago),
            next_change_in_s: state.next_change_at.map(|at| at.secs_since(now)),
            present: self.present(levers),
            configured: cfg.configured,
            min: cfg.bounds.min,
            max: Some(cfg.bounds.max).filter(|max| max.is_finite()),
            changes: self.changes.iter().rev().map(change).collect(),
        }
    }
}
