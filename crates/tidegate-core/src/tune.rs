//! Auto-tuning: rules that change a limit when a metric stays on the wrong side of a bound, and how they are bounded themselves.

mod condition;
mod rule;
mod step;
#[cfg(test)]
mod tests;

pub use condition::{Condition, Op, Side};
pub use rule::{Change, Revert, Rule, RuleConfig, State, Why};
pub use step::{Bounds, Step};
