//! Who may enter, how much of it, and when: rates, shares, concurrency, and what a refusal says.

pub mod concurrency;
mod directory;
pub mod gradient;
pub mod leaky;
pub mod limits;
pub mod output_estimate;
pub mod quantity;
pub mod token_bucket;
pub mod tree;

pub use leaky::Leaky;
pub use limits::{Charge, Headroom, Limited, Limits, Reservation};
pub use output_estimate::OutputEstimate;
pub use quantity::{Actual, Ask, Quantity, Scope};
pub use token_bucket::TokenBucket;
pub use tree::Tree;
