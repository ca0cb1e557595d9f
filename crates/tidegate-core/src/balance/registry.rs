//! The one list of policies.

use super::{
    Picker, adaptive, consistent_hash, fastest_recovery, health_score, hybrid, least_connections, least_response_time,
    least_work, peak_ewma, prefix_affinity, prequal, random, round_robin, weighted_round_robin,
};
use crate::descriptor::Descriptor;
use crate::pool::config::PoolConfig;
use alloc::boxed::Box;

static ALL: [&Descriptor; 14] = [
    &random::DESCRIPTOR,
    &round_robin::DESCRIPTOR,
    &weighted_round_robin::DESCRIPTOR,
    &least_connections::DESCRIPTOR,
    &health_score::DESCRIPTOR,
    &least_response_time::DESCRIPTOR,
    &fastest_recovery::DESCRIPTOR,
    &hybrid::DESCRIPTOR,
    &adaptive::DESCRIPTOR,
    &peak_ewma::DESCRIPTOR,
    &prequal::DESCRIPTOR,
    &least_work::DESCRIPTOR,
    &prefix_affinity::DESCRIPTOR,
    &consistent_hash::DESCRIPTOR,
];

/// Every policy, in the order in which docs list them.
pub fn all() -> &'static [&'static Descriptor] {
    &ALL
}

/// The policy called `name`.
pub fn find(name: &str) -> Option<&'static Descriptor> {
    ALL.iter().copied().find(|d| d.name == name)
}

/// The policy used where none is named.
pub fn default_policy() -> &'static Descriptor {
    &adaptive::DESCRIPTOR
}

/// Builds the picker a pool's configuration names.
pub fn build(cfg: &PoolConfig) -> Box<dyn Picker> {
    let params = &cfg.policy;
    match params.descriptor().name {
        "random" => Box::new(random::Random),
        "round_robin" => Box::new(round_robin::RoundRobin::default()),
        "weighted_round_robin" => Box::new(weighted_round_robin::WeightedRoundRobin::new(params)),
        "least_connections" => Box::new(least_connections::LeastConnections::new(params)),
        "health_score" => Box::new(health_score::HealthScore),
        "least_response_time" => Box::new(least_response_time::LeastResponseTime::new(params)),
        "fastest_recovery" => Box::new(fastest_recovery::FastestRecovery::new(params, cfg.max_load.unwrap_or(1.0))),
        "hybrid" => Box::new(hybrid::Hybrid::new(params, cfg)),
        "peak_ewma" => Box::new(peak_ewma::PeakEwmaPicker::new(params)),
        "prequal" => Box::new(prequal::Prequal::new(params)),
        "least_work" => Box::new(least_work::LeastWork::new(params, cfg)),
        "prefix_affinity" => Box::new(prefix_affinity::PrefixAffinity::new(params)),
        "consistent_hash" => Box::new(consistent_hash::ConsistentHash::new(params)),
        // The list above is closed: a descriptor can only come from `ALL`, and a test builds every one of them.
        _ => Box::new(adaptive::Adaptive::new(params, cfg)),
    }
}
