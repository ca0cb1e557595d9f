//! One request, from its head to the head of its answer.

use crate::downstream::guard::{Turned, Watch};
use crate::downstream::http2;
use crate::downstream::peer::Peer;
use crate::downstream::tunnel::{Handover, Tunnel};
use crate::gateway::Core;
use crate::request::asked::Asked;
use crate::request::budget::Budget;
use crate::request::client_key;
use crate::request::error::ProxyError;
use crate::request::exchange::{Answer, Way, exchange};
use crate::request::explained::{self, EXPLAIN};
use crate::request::goal;
use crate::request::grpc;
use crate::request::headers::{forwarded_for, is_event_stream, strip_hop_by_hop, wants_trailers};
use crate::request::model_list::{self, Asker};
use crate::request::orca;
use crate::request::prompt_blocks;
use crate::request::relay::{Download, End, Relay};
use crate::request::sniff::{self, Fields, Sniffed};
use crate::socket::buffers::Piece;
use crate::state::governor::{self, Left, Need};
use crate::state::phase::Phase;
use crate::state::pool::PoolHandle;
use crate::state::snapshot::{Routed, Snapshot};
use crate::upstream::endpoint_handle::EndpointHandle;
use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderName, HeaderValue, RETRY_AFTER, TE, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use std::borrow::Cow;
use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tidegate_config::Protocol;
use tidegate_core::explain::Explain;
use tidegate_core::hash::hash_bytes;
use tidegate_core::outcome::Verdict;
use tidegate_core::placement::NO_MODEL;
use tidegate_core::time::Instant;
use tidegate_telemetry::Record;

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static ENDPOINT: HeaderName = HeaderName::from_static("x-tidegate-endpoint");
static REASON: HeaderName = HeaderName::from_static("x-tidegate-reason");
static PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Longest request id taken from a client.
const MAX_REQUEST_ID: usize = 128;
/// Longest name of a model, bytes.
const MAX_MODEL: usize = 1024;

/// A record that is written even if the request's future is dropped: then the client has left.
struct Open {
    core: Rc<Core>,
    watch: Rc<Watch>,
    arrived: Instant,
    id: HeaderValue,
    record: Option<Record>,
}

impl Open {
    fn record(&mut self) -> &mut Record {
        self.record.get_or_insert_default()
    }

    fn close(mut self, status: u16, outcome: &'static str) {
        self.end(status, outcome);
    }

    fn end(&mut self, status: u16, outcome: &'static str) {
        if let Some(mut record) = self.record.take() {
            record.total_s = self.core.shared.clock.now().secs_since(self.arrived);
            (record.status, record.outcome) = (status, outcome);
            self.core.shared.sink.on_record(&record);
            self.watch.on_answered();
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end(499, Verdict::Cancelled.as_str());
    }
}

/// What the requests of one connection share: its core, its time-outs, its client, and what it may turn into.
pub(crate) type Own = (Rc<Core>, Rc<Watch>, Rc<Peer>, Handover);

/// Serves the `n`-th request of a connection; 0 where requests are not in a row.
pub(crate) async fn serve(own: Own, n: u64, mut request: Request<Incoming>) -> Result<Response<Download>, Infallible> {
    let (core, watch, peer, handover) = own;
    let arrived = core.shared.clock.now();
    let snapshot = core.shared.current.load();
    let id = request_id(&core, request.headers());
    let record = Some(Record::default());
    let mut open = Open { arrived, id: id.clone(), record, core: Rc::clone(&core), watch: Rc::clone(&watch) };
    let record = open.record();
    record.request_id = id.to_str().unwrap_or_default().to_owned();
    record.method = name_of(request.method());
    record.path = request.uri().path().to_owned();
    let asked = explained::wanted(request.headers_mut());
    let mut way = Way::default();
    let is_call = grpc::is_call(request.headers());
    let checked = watch.refusal_of(n).map_or_else(|| http2::check(&mut request, &snapshot.limits), Err);
    let (mut explain, asked) = asked.map_or_else(|fault| (None, Err(fault)), |explain| (explain, Ok(())));
    let checked = checked.and(asked);
    let result = match checked {
        Err(fault) => Err(fault),
        Ok(()) => {
            let answer =
                std::pin::pin!(answer(&core, &snapshot, request, &peer, &mut open, &mut way, explain.as_mut()));
            unless_cut(answer, &watch).await
        }
    };
    open.record().attempts = way.attempts;
    open.record().queued_s = way.queued_s;
    open.record().reason.clone_from(&way.reason);
    let wants_pool = explain.is_some();
    let pool = snapshot.pools.iter().find(|p| wants_pool && p.name == open.record().pool).map(Arc::clone);
    let mut response = match result {
        Ok(Came::FromEngine(answer, budget)) => relay(&core, open, answer, budget, &handover),
        Ok(Came::Own(body, left)) => tell(open, body, left.as_ref()),
        Err(error) => {
            let mut response = refuse(open, &error, way.failed.as_deref());
            if is_call {
                grpc::refuse(&mut response, &error);
                *response.body_mut() = Download::Own(None);
            }
            response
        }
    };
    // HTTP/2, whose requests are not in a row, has a word of its own; and a connection that was upgraded is no more ours to close.
    let tells = n > 0 && response.status() != StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    if let Some((explain, pool)) = explain.zip(pool) {
        headers.insert(EXPLAIN.clone(), explained::header(&explain, &pool));
    }
    headers.insert(REQUEST_ID.clone(), id);
    if tells && watch.phase.get().is_stopping() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Ok(reason) = HeaderValue::try_from(way.reason)
        && !reason.is_empty()
    {
        headers.insert(REASON.clone(), reason);
    }
    Ok(response)
}

/// Where an answer comes from.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are the large one, and boxing it would cost each an allocation"
)]
enum Came {
    FromEngine(Answer, Budget),
    /// The gateway's own, and what is left of the tightest limit.
    Own(Bytes, Option<Left>),
}

/// What `answer` comes to, or the word that time is up; the connection polls once more when it is.
fn unless_cut<T>(
    mut answer: Pin<&mut impl Future<Output = Result<T, ProxyError>>>,
    watch: &Watch,
) -> impl Future<Output = Result<T, ProxyError>> {
    std::future::poll_fn(move |cx| match watch.phase.get() {
        Phase::Cutting => Poll::Ready(Err(ProxyError::Stopping)),
        _ => answer.as_mut().poll(cx),
    })
}

async fn answer(
    core: &Rc<Core>,
    snapshot: &Snapshot,
    request: Request<Incoming>,
    peer: &Peer,
    open: &mut Open,
    way: &mut Way,
    explain: Option<&mut Explain>,
) -> Result<Came, ProxyError> {
    let (mut head, body) = request.into_parts();
    let tenant = snapshot.tenants.identify(&mut head.headers, peer)?;
    let body = sniff::read(&head.headers, body, &snapshot.limits).await?;
    let openai = head.uri.path().starts_with("/v1/");
    let fields = fields_of(&head.headers, &body, openai)?;
    let model = model_of(&fields, openai)?;
    let header = |name: &str| head.headers.get(name).and_then(|v| v.to_str().ok());
    let routed = snapshot.route(head.uri.path(), model.as_deref(), &tenant.name, header);
    let asker = Asker { snapshot, tenant: &tenant, headers: &head.headers };
    if let Some(own) = listed(core, &asker, routed, &head, open.record(), way).await? {
        return Ok(own);
    }
    let routed = routed.ok_or(ProxyError::NoRoute)?;
    let pool = Arc::clone(&routed.pool);
    let record = open.record();
    record.tenant = Arc::clone(&tenant.name);
    record.pool = Arc::clone(&pool.name);
    record.model = model.map(std::borrow::Cow::into_owned).unwrap_or_default();
    tenant.may_use(&pool.name, Some(&record.model).filter(|m| !m.is_empty()).map(String::as_str))?;
    let prompt_tokens = fields.prompt_tokens();
    record.prompt_tokens = prompt_tokens.unwrap_or(0);
    let key =
        |source: &Option<_>| source.as_ref().and_then(|s| client_key::find(s, &head.headers, tenant.hash, &fields));
    let (hash_key, affinity_key) = (key(&pool.hash_key), key(&pool.affinity_key));
    let model = if record.model.is_empty() { NO_MODEL } else { hash_bytes(record.model.as_bytes()) };
    let max_output = fields.max_tokens().unwrap_or(0);
    let need = need_of(core, record, &routed.name, &fields);
    let (prefix, block_tokens) = prompt_blocks::of(&fields, &pool);
    drop(fields);
    let goals = goal::take(&mut head.headers, &tenant, &pool, open.record())?;
    let id = Some(open.id.clone());
    let upgrade = upgrade_of(&head, &body, &pool)?;
    let (method, uri, mut headers) = upstream_head(head, &body, peer, id);
    orca::ask(&mut headers, &pool);
    let total = pool.settings().timeouts.total;
    let asked = Asked {
        method,
        uri,
        headers,
        moved: body.moved(),
        body: RefCell::new(body),
        upgrade,
        hash_key,
        affinity_key,
        model,
        max_output,
        prompt_tokens,
        prefix,
        block_tokens,
        goals,
        tenant: tenant.hash,
        tenant_weight: tenant.weight,
        priority: routed.priority.unwrap_or_else(|| governor::priority(&tenant, &pool)),
        class: routed.class,
        cost: need.prompt_tokens + need.output_tokens,
        deadline: total.map(|t| open.arrived + t),
    };
    let asker = Asker { snapshot, tenant: &tenant, headers: &asked.headers };
    let came = send(core, &pool, &asked, need, way, explain).await;
    came.map_err(|error| asker.explained(error, &open.record().model, routed))
}

/// Brings `asked` to an engine within its limits and its time.
async fn send(
    core: &Rc<Core>,
    pool: &Arc<PoolHandle>,
    asked: &Asked,
    need: Need,
    way: &mut Way,
    explain: Option<&mut Explain>,
) -> Result<Came, ProxyError> {
    let going = async {
        let budget = core.shared.governor.reserve(need).await?;
        Ok(Came::FromEngine(exchange(core, pool, asked, way, explain).await?, budget))
    };
    match pool.settings().timeouts.total {
        Some(limit) => tokio::time::timeout(limit, going).await.map_err(|_| ProxyError::TotalTimeout)?,
        None => going.await,
    }
}

/// The list of models, where it is asked for and ours to give: it counts as one request and no token.
async fn listed(
    core: &Core,
    asker: &Asker<'_>,
    routed: Option<&Routed>,
    head: &Parts,
    record: &mut Record,
    way: &mut Way,
) -> Result<Option<Came>, ProxyError> {
    let Some(wanted) = model_list::wanted(&head.method, head.uri.path()) else { return Ok(None) };
    record.tenant = Arc::clone(&asker.tenant.name);
    record.pool = routed.map_or_else(Arc::default, |r| Arc::clone(&r.name));
    let Some(own) = asker.answer(&wanted, routed)? else { return Ok(None) };
    let (tenant, route) = (Arc::clone(&record.tenant), own.route);
    let (prompt_tokens, output_tokens, asks_no_engine) = (0.0, 0.0, true);
    let need = Need { tenant, model: String::new(), route, prompt_tokens, output_tokens, asks_no_engine };
    let mut budget = core.shared.governor.reserve(need).await?;
    way.reason.push_str("models;merged");
    record.bytes_out = own.body.len() as u64;
    budget.on_end(None, 0, true);
    Ok(Some(Came::Own(own.body, budget.left())))
}

/// What the request needs of the limits.
fn need_of(core: &Core, record: &Record, route: &Arc<str>, fields: &Fields<'_>) -> Need {
    let (tenant, model, prompt) = (&record.tenant, &record.model, record.prompt_tokens);
    let expected = |max| core.shared.governor.expected_output(tenant, model, prompt, max);
    Need {
        tenant: Arc::clone(&record.tenant),
        model: record.model.clone(),
        route: Arc::clone(route),
        prompt_tokens: f64::from(record.prompt_tokens),
        output_tokens: if fields.generates() { expected(fields.max_tokens()) } else { 0.0 },
        asks_no_engine: false,
    }
}

/// The protocol that the client wants to go on with, if the pool can do that. HTTP/1.0 has no upgrade (RFC 9110, 7.8), and a body that is
/// still on its way would end up in the tunnel.
fn upgrade_of(head: &Parts, body: &Sniffed, pool: &PoolHandle) -> Result<Option<HeaderValue>, ProxyError> {
    let can = head.version == Version::HTTP_11 && matches!(body, Sniffed::Whole(..));
    let wanted = crate::request::headers::upgrade(&head.headers).filter(|_| can).cloned();
    if wanted.is_some() && pool.settings().protocol == Protocol::H2 {
        return Err(ProxyError::BadRequest {
            code: "upgrade_not_supported",
            message: "this pool's endpoints speak HTTP/2 only, which has no Upgrade",
            status: 501,
        });
    }
    Ok(wanted)
}

/// The head as the engine gets it.
fn upstream_head(
    mut head: Parts,
    body: &Sniffed,
    peer: &Peer,
    id: Option<HeaderValue>,
) -> (http::Method, Uri, HeaderMap) {
    let trailers = wants_trailers(&head.headers);
    strip_hop_by_hop(&mut head.headers);
    if trailers {
        head.headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    head.headers.remove(EXPECT);
    forwarded_for(&mut head.headers, &peer.text);
    if peer.tls {
        head.headers.insert(PROTO.clone(), HeaderValue::from_static("https"));
    }
    if let Some(id) = id {
        head.headers.insert(REQUEST_ID.clone(), id);
    }
    if !matches!(body, Sniffed::Streamed { .. }) {
        // The library frames the body anew from its real length.
        head.headers.remove(CONTENT_LENGTH);
        if body.has_length() && needs_length(&head.method, body) {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
    }
    if let Some(authority) = head.uri.authority()
        && let Ok(host) = HeaderValue::try_from(authority.as_str())
    {
        // RFC 9112, 3.2.2: the target's own host counts, whatever the header says.
        head.headers.insert(http::header::HOST, host);
    }
    let uri = Uri::from(head.uri.into_parts().path_and_query.unwrap_or(PathAndQuery::from_static("/")));
    (head.method, uri, head.headers)
}

/// A body of no bytes still says so where the method has a body by nature.
fn needs_length(method: &http::Method, body: &Sniffed) -> bool {
    body.len() > 0 || matches!(*method, http::Method::POST | http::Method::PUT | http::Method::PATCH)
}

fn fields_of<'b>(headers: &HeaderMap, body: &'b Sniffed, openai: bool) -> Result<Fields<'b>, ProxyError> {
    let Sniffed::Whole(bytes, _) = body else { return Ok(Fields::default()) };
    let json =
        headers.get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().windows(4).any(|w| w.eq_ignore_ascii_case(b"json")));
    if bytes.is_empty() || !json {
        return Ok(Fields::default());
    }
    // An opaque path may hold any JSON: only where we claim to understand the body do we refuse what we cannot read.
    if openai { Fields::parse(bytes) } else { Ok(Fields::parse(bytes).unwrap_or_default()) }
}

/// The model that is asked for. Names are kept by limits and in records, so they have a bound.
fn model_of<'b>(fields: &Fields<'b>, openai: bool) -> Result<Option<Cow<'b, str>>, ProxyError> {
    match fields.text("model") {
        // Where we do not claim to understand the body it may be something else by that name.
        Some(name) if name.len() > MAX_MODEL && !openai => Ok(None),
        Some(name) if name.len() > MAX_MODEL => Err(ProxyError::BadRequest {
            code: "invalid_model",
            message: "the name of the model is longer than 1024 bytes",
            status: 400,
        }),
        name => Ok(name),
    }
}

/// Whether the header `name` says that the answer came from a cache.
fn cache_hit(headers: &HeaderMap, name: &str) -> Option<bool> {
    let value = headers.get(name)?.as_bytes().trim_ascii_start();
    let begins = |word: &[u8]| {
        let (begin, rest) = value.split_at(word.len().min(value.len()));
        begin.eq_ignore_ascii_case(word) && rest.first().is_none_or(|c| !c.is_ascii_alphanumeric())
    };
    if begins(b"hit") { Some(true) } else { begins(b"miss").then_some(false) }
}

/// Turns an endpoint's answer into ours and hands its body to the relay.
fn relay(
    core: &Rc<Core>,
    mut open: Open,
    answer: Answer,
    mut budget: Budget,
    handover: &Handover,
) -> Response<Download> {
    let Answer { mut head, first, verdict, upstream, lease } = answer;
    if verdict == Verdict::Success {
        lease.on_first_byte();
    }
    if head.headers.contains_key(http::header::TRANSFER_ENCODING) {
        // RFC 9112, 6.3: the coding frames the body, and a length beside it must not reach anybody who would believe it.
        head.headers.remove(CONTENT_LENGTH);
    }
    let upgraded = head.headers.get(UPGRADE).filter(|_| head.status == StatusCode::SWITCHING_PROTOCOLS).cloned();
    strip_hop_by_hop(&mut head.headers);
    orca::take(&mut head.headers, &lease, core.shared.clock.now());
    let endpoint = lease.endpoint();
    head.headers.insert(ENDPOINT.clone(), endpoint.header.clone());
    let stream = is_event_stream(&head.headers);
    let mut record = open.record.take().unwrap_or_default();
    record.endpoint = Arc::clone(&endpoint.url);
    record.status = head.status.as_u16();
    record.stream = stream;
    record.cache_hit = lease.pool().settings().cache_header.as_deref().and_then(|name| cache_hit(&head.headers, name));
    record.ttft_s = core.shared.clock.now().secs_since(open.arrived);
    if verdict == Verdict::Success {
        budget.on_begun(core.shared.clock.now().since(open.arrived));
    }
    if let Some(left) = budget.left() {
        tell_left(&mut head.headers, &left);
    }
    let watch = Rc::clone(&open.watch);
    let end = End { core: Rc::clone(core), watch, lease, verdict, record, budget, arrived: open.arrived };
    let download = match upgraded {
        None => {
            let is_open = !head.headers.contains_key(CONTENT_LENGTH);
            Download::Relayed(Box::new(Relay::new(first, upstream, is_open, end)))
        }
        Some(protocol) => {
            head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            head.headers.insert(UPGRADE, protocol);
            open.watch.turns_into.set(Turned::Tunnel);
            *handover.borrow_mut() = Some(Tunnel::new(upstream, end));
            Download::Own(None)
        }
    };
    let mut response = Response::new(download);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

/// An answer of our own that is no refusal. Its time says nothing of engines, so it is none to the first byte.
fn tell(open: Open, body: Bytes, left: Option<&Left>) -> Response<Download> {
    open.close(StatusCode::OK.as_u16(), Verdict::Success.as_str());
    let mut response = Response::new(Download::Own(Some(Piece::Shared(body))));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(left) = left {
        tell_left(headers, left);
    }
    response
}

/// Our own words: `last` is the endpoint that failed last, if one was tried.
fn refuse(mut open: Open, error: &ProxyError, last: Option<&EndpointHandle>) -> Response<Download> {
    if let Some(endpoint) = last {
        open.record().endpoint = Arc::clone(&endpoint.url);
    }
    open.close(error.status().as_u16(), error.code());
    let mut response = Response::new(Download::Own(Some(Piece::Shared(error.body()))));
    *response.status_mut() = error.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(endpoint) = last {
        headers.insert(ENDPOINT.clone(), endpoint.header.clone());
    }
    if let Some(left) = error.left() {
        tell_left(headers, left);
    }
    if !error.may_be_retried() {
        // What OpenAI's clients look for before they try the same again.
        headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
    }
    if let Some(wait) = error.retry_after() {
        // Rounded up: a client that comes back a moment too early is refused again.
        headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
    }
    response
}

/// What is left of the tightest limit, in the words of the `RateLimit` headers: whole units, seconds rounded up.
fn tell_left(headers: &mut HeaderMap, left: &Left) {
    let seconds = left.reset.as_secs() + u64::from(left.reset.subsec_nanos() > 0);
    for (name, value) in [
        ("ratelimit-limit", left.limit as u64),
        ("ratelimit-remaining", left.remaining as u64),
        ("ratelimit-reset", seconds),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
    }
}

fn name_of(method: &http::Method) -> Cow<'static, str> {
    match method.as_str() {
        "GET" => "GET".into(),
        "POST" => "POST".into(),
        other => other.to_owned().into(),
    }
}

/// The client's id if it is short and printable, else one of ours.
fn request_id(core: &Core, headers: &HeaderMap) -> HeaderValue {
    let theirs = headers.get(&REQUEST_ID).filter(|v| !v.is_empty() && v.len() <= MAX_REQUEST_ID && v.to_str().is_ok());
    theirs.cloned().unwrap_or_else(|| core.next_request_id())
}
