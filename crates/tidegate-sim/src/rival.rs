//! Rules of other gateways, as published, to be compared with on the same engines: baselines, not policies one can configure.
//!
//! Each is written from its formula in the notes (algorithms, section 2; peers, section 1.13) and gets what it would have: the newest report
//! of each engine, what this replica sent since, and the same prefix index. None gets the learned speeds or the other replicas' share, which
//! the published rules lack; [`Rival::LmetricOurs`] shows one with them.

mod board;
mod rules;

use tidegate_core::balance::Picker;
use tidegate_core::pool::config::PoolConfig;

/// A published rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// SMG's `least_load`: tokens ahead over one throughput for all, and a barrier before KV memory is full.
    SmgLeastLoad,
    /// LMETRIC: tokens to compute times the batch, both of the newest report.
    Lmetric,
    /// The same product on Tidegate's work ahead and requests present.
    LmetricOurs,
    /// llm-d's scorers: queue 2, KV memory 2, prefix 3.
    LlmD,
    /// Dynamo's cost: prefill blocks and decode blocks.
    Dynamo,
    /// agentgateway's score, the better of two drawn.
    Agentgateway,
}

impl Rival {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::SmgLeastLoad, Self::Lmetric, Self::LmetricOurs, Self::LlmD, Self::Dynamo, Self::Agentgateway];

    /// The label of its row.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SmgLeastLoad => "smg least_load",
            Self::Lmetric => "lmetric",
            Self::LmetricOurs => "lmetric, our W and N",
            Self::LlmD => "llm-d 2:2:3",
            Self::Dynamo => "dynamo",
            Self::Agentgateway => "agentgateway",
        }
    }

    /// Its picker for a pool of this configuration.
    pub fn picker(self, cfg: &PoolConfig) -> Box<dyn Picker> {
        Box::new(rules::Rule::new(self, cfg))
    }
}
