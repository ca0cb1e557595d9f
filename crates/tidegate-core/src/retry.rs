//! Sending a request again, elsewhere, before its first byte.

mod budget;

pub use budget::RetryBudget;
