//! One request's way to an endpoint that answers: admit, attempt, and elsewhere again while nothing went downstream.
//!
//! A second attempt is made where it can help and cannot hurt: the body can be sent again, no attempt has begun to answer, one is left of
//! `retry.max_attempts`, the pool's budget has one, and there is time for it. It goes to an endpoint that was not tried. An answer that
//! would be tried elsewhere (429, 5xx) is kept until a place elsewhere is sure, so that a client sees the engine's own words otherwise.
//!
//! A hedge is a second attempt beside a first that is slow to begin; it comes out of the same budget.

use crate::gateway::Core;
use crate::request::asked::Asked;
use crate::request::attempt::{Begun, Miss, attempt};
use crate::request::error::ProxyError;
use crate::request::lease::Lease;
use crate::request::turn::{Placement, Turn};
use crate::socket::buffers::Piece;
use crate::state::pool::PoolHandle;
use crate::upstream::connection::Upstream;
use crate::upstream::endpoint_handle::EndpointHandle;
use http_body::Frame;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::explain::Explain;
use tidegate_core::id::EndpointId;
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::pool::Decision;
use tidegate_core::time::Instant;

/// An attempt that has less time than this is not made.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);

/// An answer whose head has arrived.
pub(crate) struct Answer {
    pub(crate) head: http::response::Parts,
    /// The first piece of a stream, which is waited for: only then has the answer begun, and until then it can be had elsewhere.
    pub(crate) first: Option<Frame<Piece>>,
    /// What the head says, and the first piece where it has to be asked.
    pub(crate) verdict: Verdict,
    pub(crate) upstream: Upstream,
    pub(crate) lease: Lease,
}

impl Answer {
    fn new(lease: Lease, begun: Begun) -> Self {
        let Begun { upstream, head, first, verdict } = begun;
        Self { head, first, verdict, upstream, lease }
    }

    /// Whether the engine asks not to be asked again, in the word that OpenAI's clients know.
    fn is_final(&self) -> bool {
        self.head.headers.get("x-should-retry").is_some_and(|v| v == "false")
    }
}

/// What is known of the way so far, whether it ended well or not.
#[derive(Default)]
pub(crate) struct Way {
    /// Which rule decided, as in `x-tidegate-reason`.
    pub(crate) reason: String,
    pub(crate) attempted: Vec<EndpointId>,
    /// The endpoint of the last attempt that came to nothing.
    pub(crate) failed: Option<Arc<EndpointHandle>>,
    pub(crate) attempts: u32,
    /// Seconds spent in the pool's queue.
    pub(crate) queued_s: f64,
}

/// Why another attempt is made, for `x-tidegate-reason`.
#[derive(Clone, Copy)]
enum Again {
    Failed(Failure),
    Hung,
    Throttled,
}

impl Again {
    fn as_str(self) -> &'static str {
        match self {
            Self::Failed(failure) => failure.as_str(),
            Self::Hung => "hung",
            Self::Throttled => "throttled",
        }
    }
}

/// A dispatch that was admitted: its lease, and the rule that chose.
struct Placed {
    lease: Lease,
    rule: &'static str,
    detail: &'static str,
}

/// Brings `asked` to an endpoint of `pool` that answers.
pub(crate) async fn exchange(
    core: &Core,
    pool: &Arc<PoolHandle>,
    asked: &Asked,
    way: &mut Way,
    mut explain: Option<&mut Explain>,
) -> Result<Answer, ProxyError> {
    let mut placed = admit(pool, asked, way, asked.deadline, explain.as_deref_mut()).await?;
    let mut again: Option<Again> = None;
    loop {
        let Placed { lease, rule, detail } = placed;
        way.attempts += 1;
        way.reason = reason(again, rule, detail, way.queued_s > 0.0);
        let (lease, result) = hedged(core, pool, asked, way, lease).await;
        let (id, endpoint) = (lease.id(), Arc::clone(lease.endpoint()));
        let failure = match result {
            Ok(begun) => {
                let answer = Answer::new(lease, begun);
                let Some(why) = may_go_elsewhere(core, pool, asked, &answer) else { return Ok(answer) };
                way.attempted.push(id);
                // The answer at hand is better than a wait.
                match admit(pool, asked, way, Some(core.shared.clock.now()), explain.as_deref_mut()).await {
                    Ok(next) => {
                        answer.lease.settle(Outcome::new(answer.verdict));
                        (placed, again) = (next, Some(why));
                        continue;
                    }
                    Err(_) => {
                        way.attempted.pop();
                        return Ok(answer);
                    }
                }
            }
            Err(Miss::Client(error)) => return Err(error),
            Err(Miss::Hung) => {
                lease.settle(Outcome::new(Verdict::Failed(Failure::FirstByteTimeout)));
                again = Some(Again::Hung);
                Failure::FirstByteTimeout
            }
            Err(Miss::Endpoint(failure)) => {
                lease.settle(Outcome::new(Verdict::Failed(failure)));
                again = Some(Again::Failed(failure));
                failure
            }
        };
        way.attempted.push(id);
        way.failed = Some(Arc::clone(&endpoint));
        let hung = matches!(again, Some(Again::Hung));
        let retryable = hung || matches!(failure, Failure::Connect | Failure::Reset | Failure::Malformed);
        if !retryable || !asked.is_replayable() || !has_time(core, asked) {
            return Err(upstream_error(&endpoint, failure));
        }
        let next = admit(pool, asked, way, asked.deadline, explain.as_deref_mut()).await;
        placed = next.map_err(|_| upstream_error(&endpoint, failure))?;
    }
}

/// An attempt, and a second one beside it when the first has not begun to answer after the pool's quantile. The first that begins well
/// counts; the other is dropped, which cancels it.
async fn hedged(
    core: &Core,
    pool: &Arc<PoolHandle>,
    asked: &Asked,
    way: &mut Way,
    lease: Lease,
) -> (Lease, Result<Begun, Miss>) {
    let patience = if asked.is_replayable() && pool.settings().retry.hedge.is_some() {
        pool.with(|p, _| p.hedge_after())
    } else {
        None
    };
    match patience {
        // Boxed: few pools hedge, and every request would carry room for two attempts.
        Some(patience) => Box::pin(race(core, pool, asked, way, lease, patience)).await,
        None => attempt(core, asked, lease).await,
    }
}

async fn race(
    core: &Core,
    pool: &Arc<PoolHandle>,
    asked: &Asked,
    way: &mut Way,
    lease: Lease,
    patience: Duration,
) -> (Lease, Result<Begun, Miss>) {
    let id = lease.id();
    let first = attempt(core, asked, lease);
    let mut first = std::pin::pin!(first);
    if let Ok(done) = tokio::time::timeout(patience, &mut first).await {
        return done;
    }
    way.attempted.push(id);
    // Not waited for in a queue: a second attempt that has to wait is no help.
    let placed = admit(pool, asked, way, Some(core.shared.clock.now()), None).await;
    way.attempted.pop();
    let Ok(Placed { lease, rule, detail }) = placed else { return first.await };
    way.attempts += 1;
    let second = attempt(core, asked, lease);
    let mut second = std::pin::pin!(second);
    let well = |result: &Result<Begun, Miss>| matches!(result, Ok(begun) if !matches!(begun.verdict, Verdict::Failed(_) | Verdict::Throttled { .. }));
    tokio::select! {
        biased;
        done = &mut first => {
            if well(&done.1) { return done; }
            let other = second.await;
            if !well(&other.1) { return done; }
            settle_miss(done, way);
            way.reason = format!("hedge;{}", reason(None, rule, detail, false));
            other
        }
        done = &mut second => {
            if well(&done.1) {
                way.reason = format!("hedge;{}", reason(None, rule, detail, false));
                return done;
            }
            settle_miss(done, way);
            first.await
        }
    }
}

/// Settles an attempt whose answer nobody takes as what it was.
fn settle_miss((lease, result): (Lease, Result<Begun, Miss>), way: &mut Way) {
    way.attempted.push(lease.id());
    let verdict = match result {
        Ok(begun) => begun.verdict,
        Err(Miss::Endpoint(failure)) => Verdict::Failed(failure),
        Err(Miss::Hung) => Verdict::Failed(Failure::FirstByteTimeout),
        Err(Miss::Client(_)) => Verdict::Cancelled,
    };
    lease.settle(Outcome::new(verdict));
}

/// Why an answer should be had elsewhere, if it should: the engine is full or failed, or the request was a trial of ours.
fn may_go_elsewhere(core: &Core, pool: &PoolHandle, asked: &Asked, answer: &Answer) -> Option<Again> {
    let why = match answer.verdict {
        Verdict::Failed(failure) => Again::Failed(failure),
        Verdict::Throttled { .. } => Again::Throttled,
        _ => return None,
    };
    // A trial is ours, not the client's: it must not pay for our curiosity.
    let wanted = answer.lease.is_trial() || (pool.settings().retry.on_status && !answer.is_final());
    (wanted && asked.is_replayable() && has_time(core, asked)).then_some(why)
}

fn has_time(core: &Core, asked: &Asked) -> bool {
    asked.deadline.is_none_or(|at| at.since(core.shared.clock.now()) >= SHORTEST_ATTEMPT)
}

/// A place for the request: at once, or after its turn in the queue, waited for until `deadline`.
async fn admit(
    pool: &Arc<PoolHandle>,
    asked: &Asked,
    way: &mut Way,
    deadline: Option<Instant>,
    explain: Option<&mut Explain>,
) -> Result<Placed, ProxyError> {
    let (placement, told) = pool.live.with(|p, now, endpoints| {
        let decision = p.admit(now, &asked.request(&way.attempted, deadline), explain);
        let told = match &decision {
            Decision::Wait { waiter, .. } => Some((pool.live.turns.listen(waiter.id()), now)),
            _ => None,
        };
        (Placement::of(decision, endpoints), told)
    });
    let Placement { decision, endpoint } = match (placement, told) {
        (Placement { decision: Decision::Wait { waiter, .. }, .. }, Some((told, since))) => {
            let placement = Turn::new(Arc::clone(&pool.live), waiter, told).decision().await;
            way.queued_s += pool.live.now().secs_since(since).max(1e-9);
            placement
        }
        (placement, _) => placement,
    };
    match (decision, endpoint) {
        (Decision::Send { ticket, rule, detail }, Some(endpoint)) => {
            Ok(Placed { lease: Lease::new(Arc::clone(pool), ticket, endpoint), rule, detail })
        }
        (Decision::Shed { why, retry_after }, _) => {
            Err(ProxyError::Shed { why, pool: pool.name.to_string(), retry_after })
        }
        (Decision::Wait { .. } | Decision::Send { .. }, _) => Err(ProxyError::TotalTimeout),
    }
}

fn upstream_error(endpoint: &EndpointHandle, failure: Failure) -> ProxyError {
    ProxyError::Upstream { failure, endpoint: endpoint.url.to_string() }
}

fn reason(again: Option<Again>, rule: &str, detail: &str, queued: bool) -> String {
    let mut text = String::with_capacity(32);
    if let Some(again) = again {
        text.push_str("retry;endpoint_");
        text.push_str(again.as_str());
        text.push(';');
    }
    if queued {
        text.push_str("queued;");
    }
    text.push_str(rule);
    if !detail.is_empty() && detail != rule {
        text.push(';');
        text.push_str(detail);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_short_and_stable() {
        assert_eq!(reason(None, "adaptive", "price", false), "adaptive;price");
        assert_eq!(reason(None, "affinity", "affinity", false), "affinity");
        let reset = Some(Again::Failed(Failure::Reset));
        assert_eq!(reason(reset, "round_robin", "", true), "retry;endpoint_reset;queued;round_robin");
    }
}
