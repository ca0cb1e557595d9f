//! What a gateway hands to the process that takes its place: plain data, so that it can be written down by whoever carries it.
//!
//! Instants are nanoseconds of the clock of the process that saved; the one that restores goes on counting from there. What is in flight
//! stays with the old process, so nothing here speaks of requests. Evidence of the last seconds is not carried either: an endpoint that is
//! out comes back by probe and trial, one that is suspected is suspected anew.

use alloc::string::String;
use alloc::vec::Vec;

/// The limits of a process.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SavedLimits {
    /// When, in nanoseconds.
    pub at: u64,
    /// Its rules on rates, in their order.
    pub rules: Vec<SavedRule>,
}

/// The balances of one rule.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SavedRule {
    /// Its name.
    pub name: String,
    /// The name of what it counts.
    pub quantity: String,
    /// Tokens in the bucket of each name, negative while in debt.
    pub buckets: Vec<(String, f64)>,
    /// When all that was let through has leaked out, in nanoseconds, by name.
    pub leaks: Vec<(String, u64)>,
    /// When the shares last changed by time, in nanoseconds.
    pub ticked: u64,
    /// The nodes of the shares, the root first.
    pub shares: Vec<SavedShare>,
}

/// One node of the shares of a rate.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SavedShare {
    /// Names from the top; empty: the root.
    pub path: Vec<String>,
    /// Tokens it holds, negative while in debt.
    pub balance: f64,
    /// Tokens of that debt that were admitted beyond its balance.
    pub owed: f64,
}

/// One pool.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SavedPool {
    /// The name of its policy, and what that has learned of the pool.
    pub policy: (String, Vec<f64>),
    /// Its endpoints.
    pub endpoints: Vec<SavedEndpoint>,
    /// Keys of session affinity, and the places of their endpoints in `endpoints`.
    pub keys: Vec<(u64, u32)>,
}

/// One endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SavedEndpoint {
    /// Its name.
    pub name: String,
    /// What its checks say.
    pub healthy: Option<bool>,
    /// An operator drains it.
    pub draining: bool,
    /// Its weight as configured, and as an operator or a rule set it.
    pub weight: (f64, f64),
    /// When its warm-up began, in nanoseconds, while that lasts.
    pub warms_since: Option<u64>,
    /// Requests dispatched, succeeded, failed, throttled, neutral.
    pub counts: [u64; 5],
    /// The last response times and times to first byte in seconds, the oldest first.
    pub response_times: Vec<f32>,
    /// See `response_times`.
    pub first_bytes: Vec<f32>,
    /// When it was last answered, in nanoseconds.
    pub answered_at: u64,
    /// Its breakers by route class.
    pub breakers: Vec<(u8, SavedBreaker)>,
    /// What the policy has learned of it.
    pub learned: Vec<f64>,
    /// What it said itself that it serves.
    #[cfg_attr(feature = "serde", serde(default))]
    pub told: crate::placement::Serves,
}

/// One breaker.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SavedBreaker {
    /// It is open or half-open.
    pub is_out: bool,
    /// No trial before, in nanoseconds.
    pub hold_until: u64,
    /// Doublings of the hold.
    pub doublings: u32,
    /// Usual time to first byte and to the end in seconds.
    pub pace: (Option<f64>, Option<f64>),
    /// Rate of failures ever (0..1).
    pub own_rate: f64,
    /// Times to first byte, by bucket.
    pub histogram: Vec<u16>,
}
