//! What users may ask an engine for.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;
use tidegate_core::hash::hash_bytes;
use tidegate_sim::engine::EngineRequest;

use super::body::{Break, EngineBody, TokenStream};
use super::clock::unix_s;
use super::embeddings::EmbeddingRequest;
use super::metrics;
use super::openai::{CompletionRequest, error, estimate_tokens, respond, respond_bytes};
use super::sse::{Answered, Shape, Sse};
use super::state::{Held, Shared};

/// Longest request body, bytes.
const LIMIT_BYTES: usize = 16 << 20;
/// Fixes the answer's length, tokens; for replaying traces.
pub const OUTPUT_TOKENS: &str = "x-engine-output-tokens";
/// Fixes the prompt's length, tokens, so that a replayed trace need not send the text.
pub const PROMPT_TOKENS: &str = "x-engine-prompt-tokens";
/// Largest value of the two headers.
const MAX_TOKENS: u32 = 10_000_000;

type Answer = Response<EngineBody>;

pub(super) async fn answer(shared: Rc<Shared>, request: Request<Incoming>) -> io::Result<Answer> {
    shared.while_hung().await;
    let path = request.uri().path().to_owned();
    Ok(match (request.method(), path.as_str()) {
        (&Method::GET, "/health") => health(&shared),
        (&Method::GET, "/status") => status(&shared),
        (&Method::GET, "/metrics") => {
            let page =
                metrics::render(&shared.status(), shared.stats(|s| s.cached_tokens), &shared.config.served_model);
            respond_bytes(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page.into())
        }
        (&Method::GET, "/v1/models") => models(&shared),
        (&Method::GET | &Method::POST, "/infer") => infer(&shared, request).await,
        (&Method::POST, "/v1/chat/completions") => complete(&shared, request, Shape::Chat).await,
        (&Method::POST, "/v1/completions") => complete(&shared, request, Shape::Text).await,
        (&Method::POST, "/v1/embeddings") => embeddings(&shared, request).await,
        (
            method,
            "/health"
            | "/status"
            | "/metrics"
            | "/v1/models"
            | "/infer"
            | "/v1/chat/completions"
            | "/v1/completions"
            | "/v1/embeddings",
        ) => {
            let message = format!("{method} is not allowed on {path}");
            error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &message)
        }
        (method, _) => error(StatusCode::NOT_FOUND, "not_found", &format!("unknown path: {method} {path}")),
    })
}

fn health(shared: &Shared) -> Answer {
    shared.stats(|s| s.health_checks += 1);
    respond(StatusCode::OK, &json!({"status": "ok"}))
}

fn status(shared: &Shared) -> Answer {
    let status = shared.status();
    respond(StatusCode::OK, &json!({"response_time": status.response_time_s, "current_load": status.load}))
}

fn models(shared: &Shared) -> Answer {
    let model = json!({"id": shared.config.served_model, "object": "model", "created": 0, "owned_by": "tidegate"});
    respond(StatusCode::OK, &json!({"object": "list", "data": [model]}))
}

/// A request that the model is to compute.
struct Taken {
    held: Held,
    headers: HeaderMap,
    body: Bytes,
}

/// Counts the request in, reads its body, lets a fault refuse it.
async fn take(shared: &Rc<Shared>, request: Request<Incoming>) -> Result<Taken, Answer> {
    let request_id = request.headers().get("x-request-id").and_then(|v| v.to_str().ok()).map(str::to_owned);
    let mut held = Held::new(shared, request_id);
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, LIMIT_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => {
            return Err(refuse(&mut held, StatusCode::PAYLOAD_TOO_LARGE, "bad_body", "body too long or broken", None));
        }
    };
    shared.while_hung().await;
    if let Some((status, retry_after)) = shared.fault_rejects() {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        return Err(refuse(&mut held, status, "fault", "set by POST /fault", retry_after));
    }
    Ok(Taken { held, headers: head.headers, body })
}

fn refuse(held: &mut Held, status: StatusCode, code: &str, message: &str, retry_after: Option<Duration>) -> Answer {
    held.on_rejected();
    let mut response = error(status, code, message);
    if let Some(after) = retry_after {
        let seconds = after.as_secs_f64().ceil() as u64;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn arrive(held: &mut Held, request: &EngineRequest) -> Result<(), Box<Answer>> {
    held.arrive(request).map_err(|r| {
        let status = StatusCode::from_u16(r.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let message = match r.code {
            "overloaded" => "the engine is overloaded",
            _ => "prompt and answer do not fit the engine's memory",
        };
        Box::new(refuse(held, status, r.code, message, r.retry_after))
    })
}

fn tokens_header(headers: &HeaderMap, name: &str) -> Option<u32> {
    let n: u32 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
    Some(n.clamp(1, MAX_TOKENS))
}

async fn infer(shared: &Rc<Shared>, request: Request<Incoming>) -> Answer {
    let Taken { mut held, headers, .. } = match take(shared, request).await {
        Ok(taken) => taken,
        Err(answer) => return answer,
    };
    let request = EngineRequest {
        prompt_tokens: tokens_header(&headers, PROMPT_TOKENS).unwrap_or(1),
        cached_tokens: 0,
        query: None,
        output_tokens: tokens_header(&headers, OUTPUT_TOKENS).unwrap_or(1),
        stream: false,
    };
    if let Err(answer) = arrive(&mut held, &request) {
        return *answer;
    }
    let tokens = held.whole().await;
    let body =
        json!({"server_name": shared.config.name, "response_time": held.age_s(), "current_load": shared.status().load});
    finish(shared, held, tokens, &body)
}

async fn embeddings(shared: &Rc<Shared>, request: Request<Incoming>) -> Answer {
    let Taken { mut held, body, .. } = match take(shared, request).await {
        Ok(taken) => taken,
        Err(answer) => return answer,
    };
    let parsed = serde_json::from_slice::<EmbeddingRequest>(&body).map_err(|e| format!("not a valid request: {e}"));
    let parsed = parsed.and_then(|r| r.inputs().map(|i| (r, i)).map_err(str::to_owned));
    let (request, inputs) = match parsed {
        Ok(both) => both,
        Err(message) => return refuse(&mut held, StatusCode::BAD_REQUEST, "invalid_request", &message, None),
    };
    let prompt_tokens = inputs.prompt_tokens();
    let engine_request =
        EngineRequest { prompt_tokens, cached_tokens: 0, query: None, output_tokens: 1, stream: false };
    if let Err(answer) = arrive(&mut held, &engine_request) {
        return *answer;
    }
    let tokens = held.whole().await;
    let model = request.model.as_deref().unwrap_or(&shared.config.served_model);
    finish(shared, held, tokens, &inputs.answer(model))
}

async fn complete(shared: &Rc<Shared>, request: Request<Incoming>, shape: Shape) -> Answer {
    let Taken { mut held, headers, body } = match take(shared, request).await {
        Ok(taken) => taken,
        Err(answer) => return answer,
    };
    let (request, engine_request, answered) = match prepare(shared, &headers, &body, shape) {
        Ok(prepared) => prepared,
        Err(message) => return refuse(&mut held, StatusCode::BAD_REQUEST, "invalid_request", &message, None),
    };
    if let Err(answer) = arrive(&mut held, &engine_request) {
        return *answer;
    }
    if !engine_request.stream {
        let tokens = held.whole().await;
        return finish(shared, held, tokens, &answered.whole(tokens));
    }
    let cut_after = shared.fault_cuts(engine_request.output_tokens);
    let sse = Sse::new(answered, request.include_usage());
    let stream = TokenStream { held, sse, cut_after, breaking: Break::No, ended: false };
    let mut response = Response::new(EngineBody::Stream(Box::new(stream)));
    let media = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, media);
    response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Reads a completion request; `Err` says what is wrong with it.
fn prepare(
    shared: &Shared,
    headers: &HeaderMap,
    body: &[u8],
    shape: Shape,
) -> Result<(CompletionRequest, EngineRequest, Answered), String> {
    let request: CompletionRequest =
        serde_json::from_slice(body).map_err(|e| format!("the body is not a valid request: {e}"))?;
    let text = request.prompt_text(shape == Shape::Chat)?;
    let limit = request.max_tokens()?;
    let drawn = tokens_header(headers, OUTPUT_TOKENS).unwrap_or_else(|| {
        let drawn = shared.draw_output_tokens();
        limit.map_or(drawn, |limit| drawn.min(limit))
    });
    let said = estimate_tokens(&text);
    let prompt_tokens = tokens_header(headers, PROMPT_TOKENS).unwrap_or(said);
    // A text that stands for a longer prompt says nothing of what is in that.
    let cached_tokens = shared.find_cached(if said < prompt_tokens { "" } else { &text });
    let engine_request = EngineRequest {
        prompt_tokens,
        cached_tokens: cached_tokens.unwrap_or(0),
        query: None,
        output_tokens: shared.config.limit_events(drawn),
        stream: request.stream.unwrap_or(false),
    };
    let answered = Answered {
        shape,
        number: shared.stats(|s| s.requests),
        model: request.model.clone().unwrap_or_else(|| shared.config.served_model.clone()),
        created: unix_s() as u64,
        prompt_tokens,
        cached_tokens,
        first_word: (hash_bytes(text.as_bytes()) % 1024) as usize,
        finish_reason: if limit == Some(engine_request.output_tokens) { "length" } else { "stop" },
    };
    Ok((request, engine_request, answered))
}

/// An answer in one piece, or the first half of it if a fault cuts it.
fn finish(shared: &Shared, mut held: Held, tokens: u32, body: &serde_json::Value) -> Answer {
    let Some(_) = shared.fault_cuts(tokens) else {
        held.on_written(tokens);
        held.on_completed();
        return respond(StatusCode::OK, body);
    };
    held.on_aborted();
    let whole = Bytes::from(body.to_string());
    let mut response = Response::new(EngineBody::Broken(Break::No, Some(whole.slice(..whole.len() / 2))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(whole.len()));
    response
}
