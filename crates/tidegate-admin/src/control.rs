//! What an operator may change: drain, weight, and the actions of the binary.

use crate::access;
use crate::action::Target;
use crate::admin::Shared;
use crate::answer::{Answer, Refusal, json};
use crate::pools::PoolView;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_proxy::PoolHandle;

/// Bound on a body, in bytes.
const LIMIT_BYTES: usize = 64 << 10;
/// Longest time for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest weight, as in the config.
const MAX_WEIGHT: f64 = 1e6;

/// What is to be changed.
#[derive(Debug, PartialEq)]
pub(crate) enum Change {
    Drain,
    Weight,
    /// By name.
    Action(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drain {
    draining: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Weight {
    weight: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    on: bool,
}

/// Makes the change and answers with the endpoint as it is then.
pub(crate) async fn change(
    shared: &Shared,
    pool: &str,
    endpoint: &str,
    change: &Change,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    access::check_change(request.headers())?;
    let pools = &shared.current.load().pools;
    let (target, url) = find(pools, pool, endpoint)?;
    let handle = &pools[target.pool];
    let id = EndpointId(target.endpoint as u32);
    match change {
        Change::Drain => {
            let Drain { draining } = read(request, r#"{"draining": true}"#).await?;
            handle.on_event(Event::Drain { endpoint: id, draining });
            tracing::info!(pool, endpoint = &*url, draining, "operator drains");
        }
        Change::Weight => {
            let Weight { weight } = read(request, r#"{"weight": 2}"#).await?;
            if !(0.0..=MAX_WEIGHT).contains(&weight) {
                let message = format!("weight is a number from 0 to {MAX_WEIGHT}");
                return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_weight", message));
            }
            handle.on_event(Event::Weight { endpoint: id, weight });
            tracing::info!(pool, endpoint = &*url, weight, "operator sets a weight");
        }
        Change::Action(name) => act(shared, target, name, request).await?,
    }
    let view = PoolView::read(handle).endpoints.into_iter().find(|e| e.index == target.endpoint);
    Ok(json(StatusCode::OK, &view))
}

async fn act(shared: &Shared, target: Target, name: &str, request: Request<Incoming>) -> Result<(), Refusal> {
    let action = shared.actions.iter().find(|a| a.name == name);
    let action = action.ok_or_else(|| Refusal::not_found(format!("there is no action {name}")))?;
    let Switch { on } = read(request, r#"{"on": true}"#).await?;
    let failed = |message| Refusal::new(StatusCode::BAD_GATEWAY, "action_failed", message);
    (action.run)(target, on).await.map_err(failed)?;
    shared.switched.lock().insert((action.name, target), on);
    Ok(())
}

/// An endpoint by the name of its pool, and its index or URL in it; with its URL.
fn find(pools: &[Arc<PoolHandle>], pool: &str, endpoint: &str) -> Result<(Target, Arc<str>), Refusal> {
    let place = pools.iter().position(|p| &*p.name == pool);
    let place = place.ok_or_else(|| Refusal::not_found(format!("there is no pool {pool}")))?;
    let handle = &pools[place];
    let index = endpoint.parse().ok().or_else(|| handle.find(endpoint).map(EndpointId::index));
    let url = index.and_then(|index: usize| {
        handle.with_endpoints(|_, _, all| Some(Arc::clone(&all.get(index).filter(|e| !e.is_retired())?.url)))
    });
    let message =
        || format!("pool {pool} has no endpoint {endpoint}; name it by its index in /api/pools or by its URL, escaped");
    let (endpoint, url) = index.zip(url).ok_or_else(|| Refusal::not_found(message()))?;
    Ok((Target { pool: place, endpoint }, url))
}

/// The body as JSON; `example` is shown to who sent something else.
pub(crate) async fn read<T: DeserializeOwned>(request: Request<Incoming>, example: &str) -> Result<T, Refusal> {
    let body = tokio::time::timeout(BODY_TIMEOUT, Limited::new(request.into_body(), LIMIT_BYTES).collect()).await;
    let body = body.map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body did not come"))?;
    let body = body.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            let message = format!("the body is longer than {LIMIT_BYTES} bytes");
            return Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message);
        }
        Refusal::new(StatusCode::BAD_REQUEST, "bad_body", "the body broke off")
    })?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| {
        let message = format!("the body is not what is expected, for example {example}: {error}");
        Refusal::new(StatusCode::BAD_REQUEST, "bad_body", message)
    })
}
