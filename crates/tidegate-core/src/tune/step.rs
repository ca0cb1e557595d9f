//! What a rule does to its target: one step, and the bounds it never leaves.

use libm::{ceil, fabs, floor};

/// One step, in the target's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Multiplies by a factor (above 0, not 1).
    Scale(f64),
    /// Adds, or takes away (not 0).
    Add(f64),
    /// Sets to a value.
    Set(f64),
}

/// What a target may be, in its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// At least.
    pub min: f64,
    /// At most; infinite without a bound.
    pub max: f64,
    /// Whether only whole numbers make sense, as of requests in flight.
    pub whole: bool,
}

impl Step {
    /// The value after one step from `before`, `None` where that would change nothing. A step never goes against its own direction: where
    /// the target is already beyond the bound it would be held at, it is left alone.
    pub fn after(self, before: f64, bounds: &Bounds) -> Option<f64> {
        let wanted = match self {
            Self::Scale(factor) => before * factor,
            Self::Add(amount) => before + amount,
            Self::Set(value) => value,
        };
        moved(before, wanted, bounds)
    }

    /// The value after one step back from `before` towards `configured`, never beyond it: a factor is divided by, an amount taken back,
    /// a value that was set goes back at once. `None` where that would change nothing.
    pub fn back(self, before: f64, configured: f64, bounds: &Bounds) -> Option<f64> {
        let wanted = match self {
            Self::Scale(factor) => before / factor,
            Self::Add(amount) => before - amount,
            Self::Set(_) => configured,
        };
        let towards = (wanted > before) == (configured > before);
        if !towards || same(configured, before) {
            return None;
        }
        let held = if configured > before { wanted.min(configured) } else { wanted.max(configured) };
        let held = if same(held, configured) { configured } else { held };
        // The configured value may lie outside of the rule's own bounds: it is the way home, and the only bound of it.
        let home = Bounds { min: configured.min(before), max: configured.max(before), ..*bounds };
        moved(before, held, &home)
    }
}

/// Whether two values are the same but for rounding: a limit of so much a minute is kept by the second.
pub(super) fn same(a: f64, b: f64) -> bool {
    fabs(a - b) <= 1e-9 * fabs(a).max(fabs(b))
}

fn moved(before: f64, wanted: f64, bounds: &Bounds) -> Option<f64> {
    if !wanted.is_finite() || same(wanted, before) {
        return None;
    }
    let rises = wanted > before;
    // Rounded in the direction of the step, so that a small number does not round back to itself for ever.
    let rounded = match (bounds.whole, rises) {
        (true, true) => ceil(wanted),
        (true, false) => floor(wanted),
        (false, _) => wanted,
    };
    let after = rounded.max(bounds.min).min(bounds.max);
    (!same(after, before) && (after > before) == rises).then_some(after)
}
