//! What a metric is compared with.

/// How the metric is compared with the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Above.
    Above,
    /// At or above.
    AtLeast,
    /// Below.
    Below,
    /// At or below.
    AtMost,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Above, Self::AtLeast, Self::Below, Self::AtMost];

    /// As written in a config file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Above => ">",
            Self::AtLeast => ">=",
            Self::Below => "<",
            Self::AtMost => "<=",
        }
    }

    /// Whether `metric` stands so to `value`; a NaN on either side never does.
    pub fn holds(self, metric: f64, value: f64) -> bool {
        match self {
            Self::Above => metric > value,
            Self::AtLeast => metric >= value,
            Self::Below => metric < value,
            Self::AtMost => metric <= value,
        }
    }

    /// Whether it looks for metrics that are too high.
    pub const fn is_upper(self) -> bool {
        matches!(self, Self::Above | Self::AtLeast)
    }
}

/// When a rule acts, and when what it did may be taken back. Between `value` and `clear` neither holds: a metric that swings around one
/// bound does not make the target swing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// The comparison.
    pub op: Op,
    /// The bound, in the metric's unit.
    pub value: f64,
    /// The bound for the way back, on the calm side of `value` or equal to it, in the metric's unit.
    pub clear: f64,
}

/// On which side of a [`Condition`] a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The condition holds.
    Holds,
    /// Neither holds nor is gone.
    Between,
    /// The condition is gone, by the bound for the way back.
    Gone,
}

impl Condition {
    /// The side of a finite `metric`.
    pub fn side(&self, metric: f64) -> Side {
        if self.op.holds(metric, self.value) {
            Side::Holds
        } else if self.op.holds(metric, self.clear) {
            Side::Between
        } else {
            Side::Gone
        }
    }
}
