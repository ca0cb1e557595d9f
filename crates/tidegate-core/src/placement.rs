//! What each endpoint can serve at all: models by name, LoRA adapters among them, and the longest context it takes.
//!
//! A request that names a model goes only where that model is served; one whose prompt and answer would not fit goes only where they do. An
//! endpoint of which nothing is known serves anything. Told by the config, or by the engines themselves where they are asked.

mod adapters;

pub(crate) use adapters::Adapters;

use crate::id::EndpointId;
use crate::request::Request;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The hash of no model: a request that names none.
pub const NO_MODEL: u64 = 0;
/// Part of a prompt's estimated length by which it may be longer in truth when it is compared with what an endpoint takes.
const MARGIN: f64 = 0.25;
/// Models whose endpoints are remembered; of those named beyond that, nothing is known.
const MAX_MODELS: usize = 10_000;

/// What one endpoint serves. Models stand here by [`crate::hash::hash_bytes`] of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Serves {
    /// The models it serves, adapters not counted; `None`: any.
    pub models: Option<Vec<u64>>,
    /// LoRA adapters it can serve, by the name a request asks for them.
    pub adapters: Vec<u64>,
    /// Adapters it holds at a time, at least 1; `None`: unknown, which counts as 1.
    pub max_adapters: Option<u32>,
    /// Adapters it said are in use; `None`: it does not say.
    pub adapters_in_use: Option<Vec<u64>>,
    /// Longest context it takes, tokens of prompt and answer together; `None`: any.
    pub max_context: Option<u32>,
    /// It is asked what it serves and has not answered yet.
    pub is_unread: bool,
}

impl Serves {
    /// Of an endpoint that has not answered yet.
    pub(crate) fn unread() -> Self {
        Self { is_unread: true, ..Self::default() }
    }

    /// This, and `other` where nothing is said here.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            is_unread: self.is_unread || (self.models.is_none() && other.is_unread),
            models: self.models.or_else(|| other.models.clone()),
            adapters: if self.adapters.is_empty() { other.adapters.clone() } else { self.adapters },
            max_adapters: self.max_adapters.or(other.max_adapters),
            adapters_in_use: self.adapters_in_use.or_else(|| other.adapters_in_use.clone()),
            max_context: self.max_context.or(other.max_context),
        }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One bit for each endpoint.
#[derive(Clone, Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, id: EndpointId) -> bool {
        self.0.get(id.index() / 64).is_some_and(|word| word >> (id.index() % 64) & 1 == 1)
    }

    fn set(&mut self, id: EndpointId, to: bool) {
        let word = id.index() / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let bit = 1 << (id.index() % 64);
        self.0[word] = if to { self.0[word] | bit } else { self.0[word] & !bit };
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

/// Who serves what, in one pool.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    serves: Vec<Serves>,
    present: Bits,
    /// Endpoints that serve any model.
    any: Bits,
    /// Endpoints of which nobody knows yet.
    unread: Bits,
    by_model: BTreeMap<u64, Bits>,
    /// Endpoints by adapter they can serve.
    adapters: BTreeMap<u64, u32>,
    /// Endpoints by the context they take.
    contexts: BTreeMap<u32, u32>,
    /// Endpoints that do not serve every model.
    particular: u32,
}

/// Counts `key` up or down.
fn count<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K, up: bool) {
    if up {
        *counts.entry(key).or_default() += 1;
    } else if let Some(n) = counts.get_mut(&key) {
        *n -= 1;
        if *n == 0 {
            counts.remove(&key);
        }
    }
}

/// One request's needs, looked up once: who may serve it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'a> {
    placement: &'a Placement,
    /// `None`: the request names no model.
    model: Option<Option<&'a Bits>>,
    /// Tokens that must fit; 0: they do everywhere.
    context: u32,
}

impl Placement {
    /// Whether any endpoint is more particular than to take everything.
    pub(crate) fn is_active(&self) -> bool {
        self.particular > 0 || !self.contexts.is_empty()
    }

    /// Whether a request for `model` asks for an adapter.
    pub(crate) fn is_adapter(&self, model: u64) -> bool {
        self.adapters.contains_key(&model)
    }

    /// What `id` serves from now on; `None`: it is gone.
    pub(crate) fn set(&mut self, id: EndpointId, serves: Option<Serves>) {
        if self.serves.len() <= id.index() {
            self.serves.resize(id.index() + 1, Serves::default());
        }
        let old = core::mem::take(&mut self.serves[id.index()]);
        self.enter(id, &old, false);
        self.present.set(id, serves.is_some());
        self.any.set(id, serves.as_ref().is_some_and(|s| s.models.is_none() && !s.is_unread));
        self.unread.set(id, serves.as_ref().is_some_and(|s| s.is_unread));
        if let Some(new) = serves {
            self.enter(id, &new, true);
            self.serves[id.index()] = new;
        }
    }

    fn enter(&mut self, id: EndpointId, serves: &Serves, comes: bool) {
        for model in serves.models.iter().flatten().chain(&serves.adapters) {
            if comes && (self.by_model.len() < MAX_MODELS || self.by_model.contains_key(model)) {
                self.by_model.entry(*model).or_default().set(id, true);
            } else if let Some(bits) = self.by_model.get_mut(model) {
                bits.set(id, false);
                if bits.is_empty() {
                    self.by_model.remove(model);
                }
            }
        }
        serves.adapters.iter().for_each(|adapter| count(&mut self.adapters, *adapter, comes));
        if let Some(context) = serves.max_context {
            count(&mut self.contexts, context, comes);
        }
        if serves.models.is_some() || serves.is_unread {
            self.particular = if comes { self.particular + 1 } else { self.particular - 1 };
        }
    }

    /// Who may serve `req`. A prompt that seems too long for everybody goes where most fits, as its length is an estimate and the engine
    /// judges better.
    pub(crate) fn needs(&self, req: &Request<'_>) -> Needs<'_> {
        let model = (req.model != NO_MODEL).then(|| self.by_model.get(&req.model));
        let mut needs = Needs { placement: self, model, context: 0 };
        let asked = f64::from(req.prompt_tokens.unwrap_or(0)) * (1.0 + MARGIN) + f64::from(req.max_output);
        let asked = libm::ceil(asked) as u32;
        if self.contexts.first_key_value().is_some_and(|(shortest, _)| asked > *shortest) {
            let longest = needs.served_by().map(|id| self.max_context(id)).max().unwrap_or(u32::MAX);
            needs.context = asked.min(longest);
        }
        needs
    }

    fn max_context(&self, id: EndpointId) -> u32 {
        self.serves[id.index()].max_context.unwrap_or(u32::MAX)
    }

    /// What `id` serves, as far as is known.
    pub(crate) fn serves(&self, id: EndpointId) -> Option<&Serves> {
        self.serves.get(id.index())
    }
}

impl<'a> Needs<'a> {
    /// Whether `id` serves the model, and the request fits.
    pub(crate) fn are_met(self, id: EndpointId) -> bool {
        self.is_model_at(id) && (self.context == 0 || self.context <= self.placement.max_context(id))
    }

    /// Tokens that must fit, as far as that keeps anybody out.
    pub(crate) fn context(self) -> u32 {
        self.context
    }

    fn is_model_at(self, id: EndpointId) -> bool {
        let placement = self.placement;
        let known = |bits: Option<&Bits>| bits.is_some_and(|b| b.has(id)) || placement.any.has(id);
        let model = |bits| known(bits) || (placement.unread.has(id) && !self.is_known());
        self.model.is_none_or(model) && placement.present.has(id)
    }

    /// Everybody who serves the model.
    fn served_by(self) -> impl Iterator<Item = EndpointId> + use<'a> {
        (0..self.placement.serves.len() as u32).map(EndpointId).filter(move |id| self.is_model_at(*id))
    }

    /// Whether anybody is known to serve the model, or any.
    fn is_known(self) -> bool {
        self.model.flatten().is_some_and(|bits| !bits.is_empty()) || !self.placement.any.is_empty()
    }

    /// Whether nobody serves the model, however long one waits.
    pub(crate) fn is_unknown_model(self) -> bool {
        self.model.is_some() && !self.is_known() && self.placement.unread.is_empty()
    }
}
