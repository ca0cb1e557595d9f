//! `do`: what a rule changes.

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use crate::walk::Place;
use std::time::Duration;
use tidegate_core::tune::Step;

/// A step and its bounds, in the unit of the target.
pub(super) struct Action {
    pub(super) target: String,
    /// Where the target is written.
    pub(super) place: Place,
    pub(super) step: Option<Step>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    pub(super) cooldown: Duration,
}

const AMOUNT: Kind = Kind::Number { min: 0.0, max: 1e15 };

impl Section for Action {
    const TABLE: &'static Table = &Table {
        place: "rules[].do",
        summary: "One step, in the unit the target is configured in. Exactly one of `scale`, `step` and `set`.",
        keys: &[
            Key {
                name: "target",
                kind: Kind::Text,
                absent: Absent::Required,
                summary: "rate_limits.NAME, rate_limits.NAME.TENANT, concurrency_limits.NAME, pools.POOL.rate_limits.NAME, pools.POOL.max_in_flight or pools.POOL.endpoints[N].weight.",
                example: "rate_limits.tokens.acme",
            },
            Key {
                name: "scale",
                kind: Kind::Number { min: 0.001, max: 1000.0 },
                absent: Absent::Means("another step"),
                summary: "Multiplies by it.",
                example: "0.8",
            },
            Key {
                name: "step",
                kind: Kind::Number { min: -1e15, max: 1e15 },
                absent: Absent::Means("another step"),
                summary: "Adds it; below 0 it is taken away.",
                example: "-100",
            },
            Key {
                name: "set",
                kind: AMOUNT,
                absent: Absent::Means("another step"),
                summary: "Sets it to this.",
                example: "200",
            },
            Key {
                name: "min",
                kind: AMOUNT,
                absent: Absent::Means("needed by steps that lower"),
                summary: "The rule never brings the target below it.",
                example: "100",
            },
            Key {
                name: "max",
                kind: AMOUNT,
                absent: Absent::Means("needed by steps that raise"),
                summary: "The rule never brings the target above it.",
                example: "1_000",
            },
            Key {
                name: "cooldown",
                kind: Kind::Duration { min: 0.0, max: 86_400.0, word: None },
                absent: Absent::Default("1m"),
                summary: "Shortest time between two changes by the rule.",
                example: "1m",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let (scale, add, set) = (r.number_or_none("scale"), r.number_or_none("step"), r.number_or_none("set"));
        let steps = [scale.map(Step::Scale), add.map(Step::Add), set.map(Step::Set)];
        let given = ["scale", "step", "set"].iter().filter(|n| r.is_set(n)).count();
        if given != 1 {
            let found = if given == 0 { "no step" } else { "more than one step" };
            let hint = "for example: `scale: 0.8`".to_owned();
            let at = if given == 0 { "target" } else { "scale" };
            r.contradiction(at, found.to_owned(), "one of scale, step, set", hint);
        }
        let step = steps.into_iter().flatten().next().filter(|_| given == 1);
        let action = Self {
            target: r.text("target").unwrap_or_default(),
            place: r.place_of("target"),
            step,
            min: r.number_or_none("min"),
            max: r.number_or_none("max"),
            cooldown: r.duration("cooldown"),
        };
        action.check(r);
        action
    }
}

impl Action {
    fn check(&self, r: &mut Reader<'_, '_>) {
        if let (Some(min), Some(max)) = (self.min, self.max)
            && min > max
        {
            let found = format!("min {min} over max {max}");
            r.contradiction("min", found, "min at most max", "lower min or raise max".to_owned());
        }
        let (at, lowers) = match self.step {
            Some(Step::Scale(1.0)) => return Self::still(r, "scale", "1"),
            Some(Step::Add(0.0)) => return Self::still(r, "step", "0"),
            Some(Step::Scale(factor)) => ("scale", factor < 1.0),
            Some(Step::Add(amount)) => ("step", amount < 0.0),
            Some(Step::Set(value)) => {
                let outside = self.min.is_some_and(|min| value < min) || self.max.is_some_and(|max| value > max);
                if outside {
                    let found = format!("{value}, outside of min and max");
                    r.contradiction("set", found, "a value from min to max", String::new());
                }
                return;
            }
            None => return,
        };
        let (bound, is_there) = if lowers { ("min", self.min.is_some()) } else { ("max", self.max.is_some()) };
        if !is_there && r.all_good(&[bound]) {
            let found = format!("`{at}` without `{bound}`");
            let allowed = "a step with the bound it goes towards";
            r.contradiction(at, found, allowed, format!("add `{bound}`, so that the rule ends somewhere"));
        }
    }

    fn still(r: &mut Reader<'_, '_>, at: &str, value: &str) {
        r.contradiction(at, value.to_owned(), "a step that changes something", "for example: `scale: 0.8`".to_owned());
    }
}
