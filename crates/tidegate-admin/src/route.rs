//! Paths: which there are, who may ask for them, and with which method.

use crate::access;
use crate::admin::Shared;
use crate::answer::{Answer, Refusal, json, whole};
use crate::control::{self, Change};
use crate::{config, events, limits, metrics, page, policies, pools, requests, rules};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::json;
use std::sync::Arc;
use tidegate_telemetry::Exposition;

/// A path that exists.
#[derive(Debug, PartialEq)]
enum Route {
    Asset(&'static page::Asset),
    Health,
    Ready,
    Metrics,
    Pools,
    Policies,
    Requests,
    Request(String),
    Events,
    Config,
    Reload,
    Limits,
    Limit(String),
    Rules,
    Rule(String),
    RevertRule(String),
    Change { pool: String, endpoint: String, change: Change },
}

impl Route {
    fn find(path: &str) -> Result<Option<Self>, Refusal> {
        if let Some(asset) = page::find(path) {
            return Ok(Some(Self::Asset(asset)));
        }
        let segments: Vec<String> = path.split('/').skip(1).map(decode).collect::<Result<_, _>>()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        Ok(Some(match segments[..] {
            ["healthz"] => Self::Health,
            ["readyz"] => Self::Ready,
            ["metrics"] => Self::Metrics,
            ["api", "pools"] => Self::Pools,
            ["api", "policies"] => Self::Policies,
            ["api", "requests"] => Self::Requests,
            ["api", "requests", id] => Self::Request(id.to_owned()),
            ["api", "events"] => Self::Events,
            ["api", "config"] => Self::Config,
            ["api", "config", "reload"] => Self::Reload,
            ["api", "limits"] => Self::Limits,
            ["api", "limits", name] => Self::Limit(name.to_owned()),
            ["api", "rules"] => Self::Rules,
            ["api", "rules", name] => Self::Rule(name.to_owned()),
            ["api", "rules", name, "revert"] => Self::RevertRule(name.to_owned()),
            ["api", "pools", pool, "endpoints", endpoint, ref verb @ ..] => {
                let change = match verb {
                    ["drain"] => Change::Drain,
                    ["weight"] => Change::Weight,
                    ["actions", name] => Change::Action((*name).to_owned()),
                    _ => return Ok(None),
                };
                Self::Change { pool: pool.to_owned(), endpoint: endpoint.to_owned(), change }
            }
            _ => return Ok(None),
        }))
    }

    /// Whether anybody may ask: what holds no secret, and what load balancers and kubelets ask without one.
    fn is_open(&self) -> bool {
        matches!(self, Self::Asset(_) | Self::Health | Self::Ready)
    }

    fn allows(&self, method: &Method) -> bool {
        match self {
            Self::Change { .. } | Self::Limit(_) | Self::Rule(_) | Self::RevertRule(_) | Self::Reload => {
                method == Method::POST
            }
            Self::Events => method == Method::GET,
            _ => method == Method::GET || method == Method::HEAD,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::Change { .. } | Self::Limit(_) | Self::Rule(_) | Self::RevertRule(_) | Self::Reload => "POST",
            Self::Events => "GET",
            _ => "GET, HEAD",
        }
    }
}

pub(crate) async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Answer {
    try_answer(shared, request).await.unwrap_or_else(Answer::from)
}

async fn try_answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Result<Answer, Refusal> {
    access::check_host(shared.address, request.headers())?;
    let path = request.uri().path();
    let route = Route::find(path)?;
    if !route.as_ref().is_some_and(Route::is_open) {
        let token = shared.token.lock().clone();
        access::check_token(token.as_ref(), request.headers())?;
    }
    let route = route.ok_or_else(|| Refusal::not_found(format!("there is no {path}")))?;
    if !route.allows(request.method()) {
        return Err(Refusal::method(request.method(), path, route.allow()));
    }
    Ok(match route {
        Route::Asset(asset) => asset.answer(),
        Route::Health => json(StatusCode::OK, &json!({ "status": "ok" })),
        Route::Ready => ready(shared),
        Route::Metrics => {
            let page = metrics::render(&shared.current.load().pools, &shared.telemetry);
            whole(StatusCode::OK, Exposition::CONTENT_TYPE, page)
        }
        Route::Pools => json(StatusCode::OK, &pools::snapshot(shared)),
        Route::Policies => json(StatusCode::OK, &json!({ "policies": policies::all() })),
        Route::Requests => json(StatusCode::OK, &requests::newest(shared, request.uri().query())?),
        Route::Request(id) => json(StatusCode::OK, &requests::find(shared, &id)?),
        Route::Events => events::follow(shared)?,
        Route::Config => json(StatusCode::OK, &config::view(shared)?),
        Route::Reload => {
            access::check_change(request.headers())?;
            config::reload(shared).await?
        }
        Route::Limits => json(StatusCode::OK, &limits::snapshot(shared)),
        Route::Limit(name) => {
            access::check_change(request.headers())?;
            let new: limits::NewRate = control::read(request, limits::EXAMPLE).await?;
            json(StatusCode::OK, &limits::set(shared, &name, &new)?)
        }
        Route::Rules => json(StatusCode::OK, &rules::snapshot(shared)),
        Route::Rule(name) => {
            access::check_change(request.headers())?;
            let wanted: rules::Switch = control::read(request, rules::EXAMPLE).await?;
            json(StatusCode::OK, &rules::switch(shared, &name, &wanted)?)
        }
        Route::RevertRule(name) => {
            access::check_change(request.headers())?;
            json(StatusCode::OK, &rules::revert(shared, &name)?)
        }
        Route::Change { pool, endpoint, change } => control::change(shared, &pool, &endpoint, &change, request).await?,
    })
}

/// Ready means: this process could serve somebody. So one dead pool does not take the others out of a load balancer, and an endpoint that
/// is merely busy still counts.
fn ready(shared: &Shared) -> Answer {
    let reason = if !(shared.ready)() {
        Some("the gateway does not take requests: it is starting or draining")
    } else if !shared.current.load().pools.iter().any(|p| pools::may_serve(p)) {
        Some("no pool has an endpoint that may serve: all are unhealthy, open, drained or of weight 0")
    } else {
        None
    };
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &json!({ "ready": reason.is_none(), "reason": reason }))
}

/// Percent-decoding of one segment.
fn decode(segment: &str) -> Result<String, Refusal> {
    let wrong = || Refusal::new(StatusCode::BAD_REQUEST, "bad_path", "the path holds a % that is no escape of UTF-8");
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digit = |d: u8| char::from(d).to_digit(16).ok_or_else(wrong);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_named_by_its_escaped_url() {
        let route = Route::find("/api/pools/chat/endpoints/http%3A%2F%2F127.0.0.1%3a8001/drain").unwrap();
        let endpoint = "http://127.0.0.1:8001".to_owned();
        assert_eq!(route, Some(Route::Change { pool: "chat".to_owned(), endpoint, change: Change::Drain }));
    }

    #[test]
    fn broken_escapes_are_refused_and_unknown_paths_are_none() {
        for path in
            ["/api/requests/%", "/api/requests/%4", "/api/requests/%zz", "/api/requests/%ff", "/api/requests/%+1"]
        {
            assert!(Route::find(path).is_err(), "{path}");
        }
        for path in
            ["/api", "/api/", "/metrics/", "//metrics", "/api/pools/p/endpoints/0", "/api/pools/p/endpoints/0/actions"]
        {
            assert_eq!(Route::find(path).unwrap(), None, "{path}");
        }
    }
}
