//! What an endpoint serves, as a journal has it.

use serde::{Deserialize, Serialize};
use tidegate_core::placement::Serves;

/// Models by the hash of their names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Serving {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    models: Option<Vec<u64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    adapters: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_adapters: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    adapters_in_use: Option<Vec<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_context: Option<u32>,
}

impl Serving {
    pub(super) fn of(serves: &Serves) -> Self {
        let Serves { models, adapters, max_adapters, adapters_in_use, max_context } = serves.clone();
        Self { models, adapters, max_adapters, adapters_in_use, max_context }
    }

    pub(super) fn core(&self) -> Serves {
        let Self { models, adapters, max_adapters, adapters_in_use, max_context } = self.clone();
        Serves { models, adapters, max_adapters, adapters_in_use, max_context }
    }
}
