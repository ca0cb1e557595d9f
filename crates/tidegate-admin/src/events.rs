//! `/api/events`: the pools every second, as server-sent events, for as long as the client listens.
//!
//! The body itself is the timer: it is asked for the next event only when the last one is on its way, so a slow client gets fewer events
//! and never a backlog, and a client that left takes everything with it.

use crate::admin::Shared;
use crate::answer::{AdminBody, Answer, Refusal, answer};
use crate::pools;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderValue};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, MissedTickBehavior};

/// Time between two events.
const EVERY: Duration = Duration::from_secs(1);

/// The events of one follower.
pub(crate) struct Events {
    shared: Arc<Shared>,
    every: Interval,
    _place: OwnedSemaphorePermit,
}

impl Events {
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        self.every.poll_tick(cx).map(|_| {
            let text = serde_json::to_string(&pools::snapshot(&self.shared)).unwrap_or_default();
            Bytes::from(format!("event: pools\ndata: {text}\n\n"))
        })
    }
}

/// Follows the pools, if there is a place left.
pub(crate) fn follow(shared: &Arc<Shared>) -> Result<Answer, Refusal> {
    let place = Arc::clone(&shared.subscribers).try_acquire_owned().map_err(|_| {
        let message = "too many follow the events already; close another page or poll /api/pools";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_subscribers", message)
    })?;
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = Events { shared: Arc::clone(shared), every, _place: place };
    let mut answer = answer(StatusCode::OK, "text/event-stream", AdminBody::Events(events));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}
