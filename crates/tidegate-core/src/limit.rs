//! Who may enter, how much of it, and when: rates, shares, concurrency, and what a refusal says.

pub mod leaky;
pub mod token_bucket;
pub mod tree;

pub use leaky::Leaky;
pub use token_bucket::TokenBucket;
pub use tree::Tree;
