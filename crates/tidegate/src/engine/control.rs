//! The control address: `POST /fault`, `GET /fault`, `GET /stats`. Faults never touch it.

use std::convert::Infallible;
use std::rc::Rc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tidegate_sim::fault::Fault;

use super::body::EngineBody;
use super::openai::{error, respond};
use super::state::Shared;

/// Longest body of a control request, bytes.
const LIMIT_BYTES: usize = 64 * 1024;

pub(super) async fn answer(shared: Rc<Shared>, request: Request<Incoming>) -> Result<Response<EngineBody>, Infallible> {
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET, "/fault") => respond(StatusCode::OK, &fault(&shared)),
        (&Method::POST, "/fault") => set_fault(&shared, request).await,
        (&Method::GET, "/stats") => respond(StatusCode::OK, &stats(&shared)),
        (_, "/fault" | "/stats") => {
            error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "use GET or, for /fault, POST")
        }
        _ => error(StatusCode::NOT_FOUND, "not_found", "the control address has /fault and /stats"),
    })
}

/// The counts as JSON.
pub(super) fn stats(shared: &Shared) -> Value {
    shared.stats(|s| serde_json::to_value(&*s).unwrap_or_default())
}

fn fault(shared: &Shared) -> Value {
    let (fault, left_s) = shared.fault();
    let mut value = serde_json::to_value(fault).unwrap_or_default();
    if let Some(left_s) = left_s {
        value["left_s"] = json!(left_s);
    }
    value
}

async fn set_fault(shared: &Shared, request: Request<Incoming>) -> Response<EngineBody> {
    let Ok(body) = Limited::new(request.into_body(), LIMIT_BYTES).collect().await else {
        return error(StatusCode::BAD_REQUEST, "bad_body", "the body did not arrive whole");
    };
    let parsed = serde_json::from_slice::<Fault>(&body.to_bytes()).map_err(|e| e.to_string());
    match parsed.and_then(|fault| fault.check().map(|()| fault)) {
        Ok(new) => {
            shared.set_fault(new).await;
            respond(StatusCode::OK, &fault(shared))
        }
        Err(problem) => {
            let example = r#"example: {"kind": "slow", "factor": 4, "for_s": 30}"#;
            error(StatusCode::BAD_REQUEST, "bad_fault", &format!("{problem}; {example}"))
        }
    }
}
