//! Which models endpoints serve: what they are asked, and where LoRA adapters are.

use crate::key::Table;
use crate::load::polled::{self, Polled};
use crate::reader::{Reader, Section};

/// The `models` table: the page that tells an endpoint's models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Models(pub Polled);

/// The words of [`ModelList`].
pub(crate) const MODEL_LISTS: &[&str] = &["merged", "engine"];

/// Who answers `GET /v1/models`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelList {
    /// The gateway, with what all endpoints serve, where it is known.
    #[default]
    Merged,
    /// The endpoint it goes to, as any request.
    Engine,
}

impl ModelList {
    /// The one called `word`.
    pub(crate) fn named(word: &str) -> Self {
        if word == "engine" { Self::Engine } else { Self::Merged }
    }
}

impl Section for Models {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.models",
        summary: "Asks every endpoint which models it serves, as OpenAI's API lists them; with LoRA adapters (those with a `parent`) and the longest \
                  context (`max_model_len`) where the engine tells. A request then goes only where its model is served and it fits. What an \
                  endpoint's own `models`, `adapters` and `max_context` say goes before; until an endpoint has answered, it gets only what no \
                  other is known to serve.",
        keys: &[polled::path("/v1/models"), polled::every("10s"), polled::within("2s")],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self(Polled::read(r))
    }
}
