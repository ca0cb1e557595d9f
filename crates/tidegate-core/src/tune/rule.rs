//! One rule: a metric's samples in, changes of a target out.
//!
//! The condition must hold on every sample for `hold` before the rule acts; afterwards that time begins anew and `cooldown` passes too, so
//! a rule sees what its last step did before it takes another. An alternative would be a controller that follows the metric; a step with
//! bounds is what an operator can predict and check by hand. A sample that is missing or not finite proves nothing and begins the time
//! anew, and so does a gap of more than `stale_after` between two samples: nobody acts on what was not seen. O(1) a sample.

use super::condition::{Condition, Side};
use super::step::{Bounds, Step, same};
use crate::time::{Duration, Instant};
use alloc::string::String;

/// Settings of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleConfig {
    /// Its name.
    pub name: String,
    /// What it changes, as written in the config.
    pub target: String,
    /// When it acts.
    pub when: Condition,
    /// How long the condition holds before it does.
    pub hold: Duration,
    /// Time between two samples from which what was seen before counts for nothing.
    pub stale_after: Duration,
    /// What it does.
    pub step: Step,
    /// What the target may become, in its unit.
    pub bounds: Bounds,
    /// Shortest time between two changes.
    pub cooldown: Duration,
    /// The way back; absent: what was changed stays.
    pub revert: Option<Revert>,
    /// The target's value in the config, in its unit.
    pub configured: f64,
}

/// The way back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Revert {
    /// How long the condition has been gone before each step back.
    pub hold: Duration,
}

/// Why a target changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The condition held.
    Condition,
    /// It was gone.
    Revert,
    /// An operator asked for the configured value.
    Operator,
}

impl Why {
    /// The word in logs and in the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Condition => "condition",
            Self::Revert => "revert",
            Self::Operator => "operator",
        }
    }
}

/// One change of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The rule.
    pub rule: String,
    /// What it changed.
    pub target: String,
    /// When.
    pub at: Instant,
    /// Why.
    pub why: Why,
    /// The target's value before, in its unit.
    pub before: f64,
    /// The target's value after, in its unit.
    pub after: f64,
    /// The sample that led to it; `None` if an operator did.
    pub metric: Option<f64>,
}

/// What a rule is at, for an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// The last sample, if it is not stale.
    pub value: Option<f64>,
    /// Since when the condition holds on every sample.
    pub holds_since: Option<Instant>,
    /// Since when it is gone on every sample.
    pub gone_since: Option<Instant>,
    /// When the next change can come, if the metric goes on as it does; `None` if nothing leads to one.
    pub next_change_at: Option<Instant>,
    /// Whether it may act.
    pub enabled: bool,
}

/// A rule under way.
#[derive(Clone, Debug)]
pub struct Rule {
    cfg: RuleConfig,
    enabled: bool,
    last: Option<(Instant, f64)>,
    /// The side of every sample since then.
    side: Option<(Side, Instant)>,
    /// No change before this.
    free_at: Instant,
}

impl Rule {
    /// A rule that has seen nothing.
    pub fn new(cfg: RuleConfig) -> Self {
        Self { cfg, enabled: true, last: None, side: None, free_at: Instant::ORIGIN }
    }

    /// Its settings.
    pub fn config(&self) -> &RuleConfig {
        &self.cfg
    }

    /// A sample: `None` if the metric is not there. `present` is the target's value, in its unit. What is returned is to be carried out.
    pub fn on_sample(&mut self, now: Instant, value: Option<f64>, present: f64) -> Option<Change> {
        let Some(value) = value.filter(|v| v.is_finite()) else {
            (self.last, self.side) = (None, None);
            return None;
        };
        if self.last.is_none_or(|(at, _)| now.since(at) > self.cfg.stale_after) {
            self.side = None;
        }
        self.last = Some((now, value));
        let side = self.cfg.when.side(value);
        let since = match self.side {
            Some((before, since)) if before == side => since,
            _ => now,
        };
        self.side = Some((side, since));
        if !self.enabled || now < self.free_at || !present.is_finite() {
            return None;
        }
        let (why, after) = match (side, self.cfg.revert) {
            (Side::Holds, _) if now.since(since) >= self.cfg.hold => {
                (Why::Condition, self.cfg.step.after(present, &self.cfg.bounds))
            }
            (Side::Gone, Some(revert)) if now.since(since) >= revert.hold => {
                (Why::Revert, self.cfg.step.back(present, self.cfg.configured, &self.cfg.bounds))
            }
            _ => return None,
        };
        let change = self.change(now, why, present, after?, Some(value));
        Some(change)
    }

    /// An operator wants the configured value back. `None` if the target has it.
    pub fn on_operator(&mut self, now: Instant, present: f64) -> Option<Change> {
        let configured = self.cfg.configured;
        (!same(present, configured)).then(|| self.change(now, Why::Operator, present, configured, None))
    }

    /// Lets it act, or not. It goes on looking; what it saw while it might not act counts for nothing afterwards.
    pub fn set_enabled(&mut self, enabled: bool) {
        if enabled != self.enabled {
            (self.enabled, self.side) = (enabled, None);
        }
    }

    /// What it is at.
    pub fn state_at(&self, now: Instant) -> State {
        let last = self.last.filter(|(at, _)| now.since(*at) <= self.cfg.stale_after);
        let side = self.side.filter(|_| last.is_some());
        let since = |wanted: Side| side.filter(|(s, _)| *s == wanted).map(|(_, since)| since);
        let (holds_since, gone_since) = (since(Side::Holds), since(Side::Gone));
        let ready = match (holds_since, gone_since, self.cfg.revert) {
            (Some(at), ..) => Some(at + self.cfg.hold),
            (_, Some(at), Some(revert)) => Some(at + revert.hold),
            _ => None,
        };
        State {
            value: last.map(|(_, value)| value),
            holds_since,
            gone_since,
            next_change_at: ready.filter(|_| self.enabled).map(|at| at.max(self.free_at).max(now)),
            enabled: self.enabled,
        }
    }

    fn change(&mut self, now: Instant, why: Why, before: f64, after: f64, metric: Option<f64>) -> Change {
        self.free_at = now + self.cfg.cooldown;
        self.side = self.side.map(|(side, _)| (side, now));
        let (rule, target) = (self.cfg.name.clone(), self.cfg.target.clone());
        Change { rule, target, at: now, why, before, after, metric }
    }
}
