//! How new endpoints come in.

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section, Switch};
use crate::units::show_seconds;
use crate::walk::Place;
use std::time::Duration;
use tidegate_core::pool::config::WarmUpStep;

/// Warm-up of new endpoints.
#[derive(Clone, Debug, PartialEq)]
pub enum WarmUp {
    /// Not said: the default steps, unless the policy warms up by itself.
    Default,
    /// Switched off: a new endpoint takes its full share at once.
    Off,
    /// These steps, ascending in time and share; the first at 0 s, the last with share 1.
    Steps(Vec<WarmUpStep>),
}

impl WarmUp {
    /// The key that says it, of a pool.
    pub const KEY: Key = Key {
        name: "warm_up",
        kind: Kind::TableOr(Steps::TABLE, "off"),
        absent: Absent::Means("a quarter at once, half after 30s, all after 1m, unless the policy warms up by itself"),
        summary: "How a new endpoint comes in.",
        example: "{ steps: [{ at: 0s, share: 0.25 }, { at: 30s, share: 1 }] }",
    };

    /// Reads it where it stands among the keys of a pool.
    pub fn read(r: &mut Reader<'_, '_>) -> Self {
        match r.switch::<Steps>(Self::KEY.name) {
            Switch::On(Steps(steps)) => Self::Steps(steps),
            Switch::Off => Self::Off,
            Switch::Absent => Self::Default,
        }
    }

    /// What core is told.
    pub fn core(&self) -> Option<Vec<WarmUpStep>> {
        match self {
            Self::Default => None,
            Self::Off => Some(vec![WarmUpStep { at: Duration::ZERO, share: 1.0 }]),
            Self::Steps(steps) => Some(steps.clone()),
        }
    }
}

/// The `warm_up` table.
struct Steps(Vec<WarmUpStep>);

/// One step.
struct Step(WarmUpStep);

impl Section for Step {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.warm_up.steps[]",
        summary: "From `at` on, an endpoint takes `share`.",
        keys: &[
            Key {
                name: "at",
                kind: Kind::Duration { min: 0.0, max: 86_400.0, word: None },
                absent: Absent::Required,
                summary: "Time since the first healthy check.",
                example: "30s",
            },
            Key {
                name: "share",
                kind: Kind::Fraction { min: 0.001, max: 1.0, word: None },
                absent: Absent::Required,
                summary: "Share of the endpoint's weight and of its max_in_flight.",
                example: "0.5",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let step = WarmUpStep { at: r.duration("at"), share: r.number("share") };
        if r.all_good(&["at", "share"]) {
            r.mark("step at", "at", String::new());
            r.mark("step share", "share", String::new());
        }
        Self(step)
    }
}

impl Section for Steps {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.warm_up",
        summary: "How a new endpoint comes in.",
        keys: &[Key {
            name: "steps",
            kind: Kind::List(Step::TABLE),
            absent: Absent::Required,
            summary: "Steps, ascending in time and share; the first at 0s, the last with share 1.",
            example: "[{ at: 0s, share: 0.25 }, { at: 30s, share: 0.5 }, { at: 60s, share: 1 }]",
        }],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let before = r.walk.marks.len();
        let steps: Vec<WarmUpStep> = r.list::<Step>("steps").into_iter().map(|s| s.0).collect();
        let marks: Vec<_> = r.walk.marks.drain(before..).map(|m| m.place).collect();
        // Two marks per step, unless one of them could not be read: then nothing is compared.
        if marks.len() == steps.len() * 2 && r.all_good(&["steps"]) {
            check_steps(r, &steps, &marks);
        }
        Self(steps)
    }
}

fn check_steps(r: &mut Reader<'_, '_>, steps: &[WarmUpStep], places: &[Place]) {
    let mut complain = |index: usize, found: String, allowed: &str| {
        let complaint = crate::walk::Complaint {
            found,
            allowed: allowed.to_owned(),
            hint: "for example: `steps: [{ at: 0s, share: 0.25 }, { at: 30s, share: 0.5 }, { at: 60s, share: 1 }]`"
                .to_owned(),
        };
        if let Some(place) = places.get(index) {
            r.walk.error(crate::problem::ProblemKind::Contradiction, place, complaint);
        }
    };
    let at = |s: &WarmUpStep| show_seconds(s.at.as_secs_f64());
    if let Some(first) = steps.first().filter(|s| !s.at.is_zero()) {
        complain(0, format!("a first step at {}", at(first)), "a first step at 0s");
    }
    for (i, pair) in steps.windows(2).enumerate() {
        let [a, b] = pair else { continue };
        if b.at <= a.at {
            complain(2 * i + 2, format!("{} after {}", at(b), at(a)), "steps that ascend in time");
        }
        if b.share < a.share {
            complain(2 * i + 3, format!("share {} after {}", b.share, a.share), "shares that ascend");
        }
    }
    if let Some(last) = steps.last().filter(|s| s.share < 1.0) {
        complain(2 * steps.len() - 1, format!("a last step with share {}", last.share), "a last step with share 1");
    }
    if steps.is_empty() {
        r.missing("steps");
    }
}
