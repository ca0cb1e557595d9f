//! What is remembered of prompts, for engines that keep what they computed.

mod events;

pub(crate) use events::publisher_url;
pub use events::{CacheEvents, PublisherUrl};

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section, Switch};
use tidegate_core::prefix::PrefixConfig;

/// The `prefix_cache` table.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixCache {
    /// KV memory of an endpoint, tokens.
    pub tokens: u64,
    /// Bound on what is remembered, bytes.
    pub memory: usize,
    /// Tokens of a block.
    pub block: u32,
    /// Where engines tell what they store and remove; `None`: nobody listens.
    pub events: Option<CacheEvents>,
}

impl PrefixCache {
    /// What core is told.
    pub fn core(&self) -> PrefixConfig {
        PrefixConfig { tokens: self.tokens, memory: self.memory }
    }
}

impl Section for PrefixCache {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.prefix_cache",
        summary: "What is remembered of the prompts sent to each endpoint, so that those that begin alike find what is computed already; adaptive, \
                  least_work and prefix_affinity go by it.",
        keys: &[
            Key {
                name: "tokens",
                kind: Kind::Integer { min: 1000, max: 1_000_000_000, word: None },
                absent: Absent::Default("430_000"),
                summary: "Tokens that an endpoint's KV memory holds: its blocks by their size.",
                example: "430_000",
            },
            Key {
                name: "memory",
                kind: Kind::Size { min: 64 << 10, max: 16 << 30 },
                absent: Absent::Default("64MiB"),
                summary: "Bound on what is remembered, of the whole pool.",
                example: "64MiB",
            },
            Key {
                name: "block",
                kind: Kind::Integer { min: 16, max: 4096, word: None },
                absent: Absent::Default("256"),
                summary: "Tokens of a block, at four bytes each; prompts are compared block by block, 512 of them at most.",
                example: "256",
            },
            Key {
                name: "events",
                kind: Kind::TableOr(CacheEvents::TABLE, "off"),
                absent: Absent::Means("nobody listens: what engines hold is known by their answers alone"),
                summary: "Listen to what engines tell of their caches.",
                example: "{ url: 'tcp://{host}:5557' }",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let memory = usize::try_from(r.size("memory")).unwrap_or(usize::MAX);
        let events = match r.switch("events") {
            Switch::On(events) => Some(events),
            Switch::Off | Switch::Absent => None,
        };
        let block = u32::try_from(r.integer("block")).unwrap_or(u32::MAX);
        Self { tokens: r.integer("tokens"), memory, block, events }
    }
}
