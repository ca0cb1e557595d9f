//! Auto-tuning: when a metric stays beyond a bound, a limit is stepped, within bounds of its own.

mod action;
mod expression;
mod source;
mod target;
mod when;

pub(crate) use expression::expression;
pub use expression::{Expression, Function};
pub(crate) use source::page_url;
pub use source::{Asked, PageUrl, Source};
pub use target::Target;
pub use when::When;

pub(crate) use target::Targets;

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section, Switch};
use crate::walk::{Place, Walk};
use action::Action;
use std::time::Duration;
use tidegate_core::tune;

/// Most rules of a file.
const MAX_RULES: usize = 100;
/// Samples that may be missed before what was seen counts for nothing, in intervals.
const STALE_INTERVALS: u32 = 3;

/// One of `rules`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// When it acts.
    pub when: When,
    /// What it changes.
    pub target: Target,
    /// Whether it only says what it would do.
    pub dry_run: bool,
    core: tune::RuleConfig,
}

impl Rule {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// What core is told; numbers of the target are in the unit in which the file writes them.
    pub fn core(&self) -> &tune::RuleConfig {
        &self.core
    }
}

/// A rule as written, before it is known what its target is.
pub(crate) struct Draft {
    name: String,
    when: When,
    action: Option<Action>,
    revert: Option<Back>,
    dry_run: bool,
    place: Place,
}

/// The way back.
struct Back {
    value: Option<f64>,
    hold: Option<Duration>,
}

impl Section for Back {
    const TABLE: &'static Table = &Table {
        place: "rules[].revert",
        summary: "The way back, by the same steps, never beyond the configured value.",
        keys: &[
            Key {
                name: "value",
                kind: Kind::Reading,
                absent: Absent::Means("the value of `when`"),
                summary: "The metric has to be on the calm side of this; between it and the value of `when` nothing moves.",
                example: "400ms",
            },
            Key {
                name: "for",
                kind: Kind::Duration { min: 0.0, max: 86_400.0, word: None },
                absent: Absent::Means("`for` of `when`"),
                summary: "How long, before each step back.",
                example: "2m",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { value: r.value("value", crate::scalar::reading), hold: r.duration_or_none("for") }
    }
}

impl Section for Draft {
    const TABLE: &'static Table = &Table {
        place: "rules[]",
        summary: "A rule that steps a limit when a metric stays beyond a bound. A metric that is missing never acts.",
        keys: &[
            Key {
                name: "name",
                kind: Kind::Name,
                absent: Absent::Required,
                summary: "What logs, metrics and the admin API call it.",
                example: "shed-on-latency",
            },
            Key {
                name: "when",
                kind: Kind::Table(When::TABLE),
                absent: Absent::Required,
                summary: "The metric, and when it is beyond its bound.",
                example: "{ metric: p99(tidegate_ttft_seconds), op: \">\", value: 500ms, for: 30s }",
            },
            Key {
                name: "do",
                kind: Kind::Table(Action::TABLE),
                absent: Absent::Required,
                summary: "What is changed, how far at once, and how far at most.",
                example: "{ scale: 0.8, target: rate_limits.all, min: 10 }",
            },
            Key {
                name: "revert",
                kind: Kind::TableOr(Back::TABLE, "off"),
                absent: Absent::Means("what was changed stays"),
                summary: "The way back once the condition is gone.",
                example: "{ value: 400ms, for: 2m }",
            },
            Key {
                name: "dry_run",
                kind: Kind::Bool,
                absent: Absent::Default("false"),
                summary: "Only say what would be done.",
                example: "true",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let name = r.text("name").unwrap_or_default();
        r.mark("rule", "name", name.clone());
        let when = r.table_or_default::<When>("when");
        let action = r.table::<Action>("do");
        let revert = match r.switch::<Back>("revert") {
            Switch::On(back) => Some(back),
            Switch::Off | Switch::Absent => None,
        };
        if let Some(clear) = revert.as_ref().and_then(|b| b.value)
            && when.op.holds(clear, when.value)
        {
            let found = format!("{clear}, where the condition {} {} still holds", when.op.as_str(), when.value);
            r.contradiction("revert", found, "a value on the other side of that of `when`", String::new());
        }
        Self { name, when, action, revert, dry_run: r.bool("dry_run"), place: r.place() }
    }
}

/// The rules of a file, once its limits and pools are known.
pub(crate) fn resolve(walk: &mut Walk<'_>, drafts: Vec<Draft>, targets: &Targets<'_>) -> Vec<Rule> {
    if let Some(draft) = drafts.get(MAX_RULES) {
        let complaint = crate::walk::Complaint {
            found: format!("{} rules", drafts.len()),
            allowed: format!("at most {MAX_RULES} rules"),
            hint: String::new(),
        };
        walk.error(crate::problem::ProblemKind::OutOfRange, &draft.place, complaint);
    }
    drafts.into_iter().filter_map(|draft| draft.resolve(walk, targets)).collect()
}

impl Draft {
    fn resolve(self, walk: &mut Walk<'_>, targets: &Targets<'_>) -> Option<Rule> {
        let action = self.action?;
        let found = targets.find(walk, &action.target, &action.place)?;
        let bounds = tune::Bounds {
            min: action.min.unwrap_or(0.0).max(found.target.floor()),
            max: action.max.unwrap_or(f64::INFINITY),
            whole: found.target.is_whole(),
        };
        let clear = self.revert.as_ref().and_then(|b| b.value).unwrap_or(self.when.value);
        let hold = self.when.hold;
        let core = tune::RuleConfig {
            name: self.name,
            target: action.target,
            when: tune::Condition { op: self.when.op, value: self.when.value, clear },
            hold,
            stale_after: self.when.source.every() * STALE_INTERVALS,
            step: action.step?,
            bounds,
            cooldown: action.cooldown,
            revert: self.revert.map(|b| tune::Revert { hold: b.hold.unwrap_or(hold) }),
            configured: found.configured,
        };
        Some(Rule { when: self.when, target: found.target, dry_run: self.dry_run, core })
    }
}
