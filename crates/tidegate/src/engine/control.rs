//! The control address: `POST /fault`, `GET /fault`, `GET /stats`. Faults never touch it.

use std::convert::Infallible;
use std::rc::Rc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tidegate_sim::fault::{Fault, FaultKind};

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

/// The fault as it was sent; `Err` says what is wrong with it.
fn read(body: &[u8]) -> Result<Fault, String> {
    let fault: Fault = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let sent: Value = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let used: &[&str] = match fault.kind {
        FaultKind::Slow => &["factor", "for_s"],
        FaultKind::Status => &["status", "rate", "retry_after_s", "for_s"],
        FaultKind::Cut => &["rate", "for_s"],
        FaultKind::None | FaultKind::Refuse | FaultKind::Reset | FaultKind::Hang | FaultKind::NoProgress => &["for_s"],
    };
    let has_meaning = |name: &str| name == "kind" || used.contains(&name);
    if let Some(name) = sent.as_object().and_then(|fields| fields.keys().find(|k| !has_meaning(k))) {
        return Err(format!("{name} has no meaning for kind {}, which takes {}", sent["kind"], used.join(", ")));
    }
    fault.check().map(|()| fault)
}

async fn set_fault(shared: &Shared, request: Request<Incoming>) -> Response<EngineBody> {
    let Ok(body) = Limited::new(request.into_body(), LIMIT_BYTES).collect().await else {
        return error(StatusCode::BAD_REQUEST, "bad_body", "the body did not arrive whole");
    };
    match read(&body.to_bytes()) {
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
