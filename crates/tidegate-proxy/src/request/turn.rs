//! Waiting for a turn in a pool's queue, as a value: dropping it means that the client left, and its place is free at once.

use crate::state::live_pool::{Endpoints, LivePool};
use crate::upstream::endpoint_handle::EndpointHandle;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_core::pool::{Decision, Shed};
use tidegate_core::queue::{Waiter, WaiterId};
use tokio::sync::oneshot;

/// Who is to be told that its turn has come. Bounded by the places of the pool's queue.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<WaiterId, oneshot::Sender<()>>>);

impl Turns {
    /// To be called under the pool's lock with the waiter just made, so that no turn is told before somebody listens.
    pub(crate) fn listen(&self, id: WaiterId) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        self.0.lock().insert(id, tell);
        told
    }

    /// The decision about `id` lies ready.
    pub(crate) fn tell(&self, id: WaiterId) {
        if let Some(tell) = self.0.lock().remove(&id) {
            let _ = tell.send(());
        }
    }
}

/// A decision, and where the endpoint is that it names: both of one moment, as places are used again.
pub(crate) struct Placement {
    pub(crate) decision: Decision,
    pub(crate) endpoint: Option<Arc<EndpointHandle>>,
}

impl Placement {
    /// To be called under the pool's lock.
    pub(crate) fn of(decision: Decision, endpoints: &Endpoints) -> Self {
        let endpoint = match &decision {
            Decision::Send { ticket, .. } => endpoints.get(ticket.endpoint().index()).map(Arc::clone),
            _ => None,
        };
        Self { decision, endpoint }
    }
}

/// A place in the queue.
pub(crate) struct Turn {
    pool: Arc<LivePool>,
    waiter: Option<Waiter>,
    told: oneshot::Receiver<()>,
}

impl Turn {
    pub(crate) fn new(pool: Arc<LivePool>, waiter: Waiter, told: oneshot::Receiver<()>) -> Self {
        Self { pool, waiter: Some(waiter), told }
    }

    /// Waits for the decision, and where its endpoint is. The pool decides in time: it knows the deadline.
    pub(crate) async fn decision(mut self) -> Placement {
        let _ = (&mut self.told).await;
        match self.waiter.take() {
            Some(waiter) => self.pool.with(|pool, now, endpoints| Placement::of(pool.claim(now, waiter), endpoints)),
            None => Placement::of(Decision::Shed { why: Shed::QueueTimeout, retry_after: None }, &Vec::new()),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.pool.turns.0.lock().remove(&waiter.id());
            self.pool.with(|pool, now, _| pool.leave(now, waiter));
        }
    }
}
