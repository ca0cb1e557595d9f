//! Requests in flight: one slot each, so memory is bounded by what is out, and events about ended requests find nothing.

use crate::id::{EndpointId, RequestKey};
use crate::time::Instant;
use alloc::vec::Vec;

/// What a policy predicted at dispatch, kept to be compared with what happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Prediction {
    /// Nothing.
    None,
    /// Work ahead of the request plus its own, in prompt tokens.
    Work(f64),
    /// The work as above, and the load of the endpoint, 0..1.
    WorkAndLoad(f64, f64),
    /// Own requests in flight at the endpoint when this one was sent, itself left out.
    InFlight(u32),
}

impl Prediction {
    /// Work ahead of the request plus its own, where that was predicted.
    pub fn work(self) -> Option<f64> {
        match self {
            Self::Work(x) | Self::WorkAndLoad(x, _) => Some(x),
            Self::None | Self::InFlight(_) => None,
        }
    }
}

/// One dispatch, from admission to settlement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dispatch {
    /// Where it went.
    pub endpoint: EndpointId,
    /// When.
    pub at: Instant,
    /// When the first byte came.
    pub first_byte_at: Option<Instant>,
    /// Work it brought, in prompt tokens the endpoint must compute.
    pub work: f64,
    /// Prompt tokens noted as sent to its endpoint before, trust left out.
    pub matched: f64,
    /// Hash of the model asked for; 0 if none is named.
    pub model: u64,
    /// Seconds it was to wait there for something else than work: an adapter, a place in the batch.
    pub start_s: f64,
    /// What the policy predicted.
    pub predicted: Prediction,
    /// Whether it is the trial of an endpoint whose breaker is half-open.
    pub trial: bool,
    /// Hash of the tenant who asks.
    pub tenant: u64,
    /// Requests in flight when it was sent, itself included: of the pool, and of its endpoint.
    pub beside: (u32, u32),
    /// What its breaker has to know of it.
    pub(crate) traced: Traced,
}

impl Dispatch {
    /// Of `ttft_s` seconds to the first byte, those spent behind work and in prefill: what it was to wait for else is left out, but a tenth
    /// stays, as that is an estimate.
    pub(crate) fn in_queue_s(&self, ttft_s: f64) -> f64 {
        (ttft_s - self.start_s).max(ttft_s * 0.1)
    }
}

/// What a breaker has to know of a dispatch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Traced {
    /// Place of its route class.
    pub(crate) class: u8,
    /// Its upstream connection; one of its own until the shell says so.
    pub(crate) connection: u64,
    /// Generation of the breaker at dispatch.
    pub(crate) generation: u32,
    /// Turn among those that wait at the endpoint.
    pub(crate) turn: u64,
    /// The last two endpoints where the request has failed.
    pub(crate) failed_at: [Option<EndpointId>; 2],
}

/// The right to settle one dispatch. Not `Clone`, and consumed by [`super::Pool::settle`]: settling twice does not compile.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a ticket that is not settled leaks an in-flight count"]
pub struct Ticket {
    pub(super) key: RequestKey,
    pub(super) endpoint: EndpointId,
    pub(super) trial: bool,
}

impl Ticket {
    /// The key events about this request carry.
    pub fn key(&self) -> RequestKey {
        self.key
    }

    /// Where the request goes.
    pub fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    /// Whether the request is the trial of a half-open endpoint: then any failure before the first byte is retried elsewhere.
    pub fn is_trial(&self) -> bool {
        self.trial
    }
}

/// All dispatches of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    slots: Vec<(u32, Option<Dispatch>)>,
    free: Vec<u32>,
}

impl InFlight {
    pub(super) fn insert(&mut self, dispatch: Dispatch) -> RequestKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.1 = Some(dispatch);
        RequestKey { slot, generation: entry.0 }
    }

    pub(super) fn get_mut(&mut self, key: RequestKey) -> Option<&mut Dispatch> {
        let (generation, dispatch) = self.slots.get_mut(key.slot as usize)?;
        if *generation == key.generation { dispatch.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, key: RequestKey) -> Option<Dispatch> {
        let (generation, dispatch) = self.slots.get_mut(key.slot as usize)?;
        if *generation != key.generation {
            return None;
        }
        *generation = generation.wrapping_add(1);
        self.free.push(key.slot);
        dispatch.take()
    }

    /// All that are out, in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Dispatch> {
        self.slots.iter().filter_map(|(_, dispatch)| dispatch.as_ref())
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
