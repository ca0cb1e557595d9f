//! What every policy is given, and what it answers.

use crate::endpoint::{Endpoint, Endpoints, Gate};
use crate::event::EndpointEvent;
use crate::explain::Explain;
use crate::id::EndpointId;
use crate::pool::Prediction;
use crate::pool::config::PoolConfig;
use crate::request::Request;
use crate::rng::Rng;
use crate::time::Instant;
use alloc::vec::Vec;

/// The context of one decision.
pub struct Cx<'a> {
    /// The time.
    pub now: Instant,
    /// The generator.
    pub rng: &'a mut Rng,
    /// Filled when somebody asked why.
    pub explain: Option<&'a mut Explain>,
}

impl Cx<'_> {
    /// Notes the number compared for a candidate, if somebody asked.
    pub fn note(&mut self, id: EndpointId, score: f64) {
        if let Some(ex) = self.explain.as_deref_mut() {
            ex.candidates.push((id, score));
        }
    }
}

/// A choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// What in the policy decided: a short stable word for `x-tidegate-reason`.
    pub reason: &'static str,
}

impl Pick {
    /// A choice and its reason.
    pub const fn of(endpoint: EndpointId, reason: &'static str) -> Self {
        Self { endpoint, reason }
    }
}

/// A balancing policy.
pub trait Picker: Send {
    /// Chooses among `usable`, which is never empty. `None` refuses the request.
    fn pick(&mut self, cx: &mut Cx<'_>, req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick>;

    /// What is to be expected of `req` at `id`, to be learned from when it has happened. Asked for every dispatch, also for those that
    /// affinity or a trial placed: else a pool full of sessions would learn nothing.
    fn predict(&self, _now: Instant, _id: EndpointId, _req: &Request<'_>, _endpoints: &Endpoints) -> Prediction {
        Prediction::None
    }

    /// Seconds until the first byte of `req` at `id` as far as is learned; `None` where nothing is.
    fn first_byte_s(&self, _now: Instant, _id: EndpointId, _req: &Request<'_>, _endpoints: &Endpoints) -> Option<f64> {
        None
    }

    /// Seconds that one more request would wait at `id` for something else than work, such as a place in the engine's batch.
    fn wait_s(&self, _now: Instant, _id: EndpointId, _endpoints: &Endpoints) -> f64 {
        0.0
    }

    /// Seconds between two tokens of one more stream at `id` as far as is learned; `None` where nothing is.
    fn token_s(&self, _now: Instant, _id: EndpointId, _endpoints: &Endpoints) -> Option<f64> {
        None
    }

    /// Takes new parameters and keeps what it has learned. `false`: it cannot, and a fresh picker takes its place.
    fn reconfigure(&mut self, _cfg: &PoolConfig) -> bool {
        false
    }

    /// What it has learned of an endpoint, or of the pool (`None`), for another process; empty where that is all in [`Endpoints`].
    fn learned(&self, _id: Option<EndpointId>) -> Vec<f64> {
        Vec::new()
    }

    /// Takes over what [`Picker::learned`] told in another process; numbers that it would not tell are ignored.
    fn relearn(&mut self, _id: Option<EndpointId>, _numbers: &[f64]) {}

    /// Something happened at endpoint `id`; `endpoints` is up to date with it.
    fn on_event(&mut self, _now: Instant, _id: EndpointId, _event: &EndpointEvent<'_>, _endpoints: &Endpoints) {}
}

/// The endpoints that may be picked for one request.
#[derive(Clone, Copy)]
pub struct Usable<'a> {
    pub(crate) ids: &'a [EndpointId],
    pub(crate) gate: Gate,
    pub(crate) left_out_of: &'a [u64],
    pub(crate) decision: u64,
    /// Everything known of all endpoints, usable or not.
    pub endpoints: &'a Endpoints,
    /// Sum of the weights of all usable endpoints of the pool.
    pub total_weight: f64,
    /// Requests in flight in the whole pool.
    pub total_in_flight: u32,
}

impl<'a> Usable<'a> {
    /// Only `ids` of them, for rules that look at nothing but ids.
    pub fn only<'b>(&self, ids: &'b [EndpointId]) -> Usable<'b>
    where
        'a: 'b,
    {
        Usable { ids, ..*self }
    }

    /// How many; at least 1.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Never true for a pick.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Their ids, in no meaningful order.
    pub fn ids(&self) -> &'a [EndpointId] {
        self.ids
    }

    /// Their dense parts, in no meaningful order.
    pub fn iter(&self) -> impl Iterator<Item = &'a Endpoint> + use<'a> {
        let endpoints = self.endpoints;
        self.ids.iter().map(move |id| endpoints.get(*id))
    }

    /// One of them, uniformly.
    pub fn random(&self, rng: &mut Rng) -> EndpointId {
        self.ids[rng.below(self.ids.len())]
    }

    /// Two different ones, uniformly; the same one twice if there is only one.
    pub fn two(&self, rng: &mut Rng) -> (EndpointId, EndpointId) {
        let a = rng.below(self.ids.len());
        let b = if self.ids.len() > 1 { rng.below(self.ids.len() - 1) } else { 0 };
        let b = if b >= a && self.ids.len() > 1 { b + 1 } else { b };
        (self.ids[a], self.ids[b])
    }

    /// Whether `id` may be picked, in constant time.
    pub fn contains(&self, id: EndpointId) -> bool {
        self.endpoints.get(id).gate == self.gate && self.left_out_of[id.index()] != self.decision
    }
}
