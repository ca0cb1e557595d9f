//! One request over plain HTTP/1.1, on a connection that is used again.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue};
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tidegate_core::time::Instant;
use tokio::net::TcpStream;

use super::events::Events;
use super::plan::{Lengths, Plan};
use super::report::{Report, Sample};
use crate::engine::clock::Clock;
use crate::engine::{OUTPUT_TOKENS, PROMPT_TOKENS};

/// The header by which a gateway says which endpoint answered.
const ENDPOINT: &str = "x-tidegate-endpoint";
/// Bytes of an error body that are read for its code.
const ERROR_BODY_BYTES: usize = 64 * 1024;

type Sender = SendRequest<Full<Bytes>>;

/// Asks one service; shared by all requests of a plan.
pub(super) struct Client {
    plan: Plan,
    address: SocketAddr,
    target: Uri,
    host: HeaderValue,
    clock: Clock,
    idle: RefCell<Vec<Sender>>,
    /// Requests made so far.
    made: Cell<u64>,
    pub(super) report: Rc<RefCell<Report>>,
}

impl Client {
    /// Resolves the plan's host, once for all requests.
    pub(super) async fn new(plan: Plan, clock: Clock) -> anyhow::Result<Self> {
        let authority = plan.authority()?;
        let (name, port) = (authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80));
        let found = tokio::net::lookup_host((name, port)).await?.next();
        let address = found.ok_or_else(|| anyhow::anyhow!("{name} has no address"))?;
        let (target, host) = (plan.target().parse()?, HeaderValue::from_str(authority.as_str())?);
        let report = Rc::new(RefCell::new(Report::new(&plan.name)));
        Ok(Self { plan, address, target, host, clock, idle: RefCell::default(), made: Cell::default(), report })
    }

    /// Asks, reads the whole answer and says how it went, counting from `intended`. Times between tokens go straight into the
    /// report.
    pub(super) async fn ask(&self, intended: Instant, lengths: Lengths) -> Sample {
        let late_s = self.clock.now().secs_since(intended);
        let mut sample = Sample { late_s, ..Sample::default() };
        let asked = tokio::time::timeout(self.plan.timeout, self.exchange(intended, lengths, &mut sample)).await;
        sample.error = match asked {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some("timeout".to_owned()),
        };
        sample.total_s = self.clock.now().secs_since(intended);
        sample
    }

    async fn exchange(&self, intended: Instant, lengths: Lengths, sample: &mut Sample) -> Result<(), String> {
        let (response, sender) = self.send(lengths).await?;
        sample.endpoint = text(response.headers(), ENDPOINT);
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            return Err(self.refusal(head.status.as_u16(), body, sender).await);
        }
        let media = head.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        if media.starts_with(b"text/event-stream") {
            self.read_stream(intended, body, sample).await?;
        } else {
            read_whole(body).await?;
        }
        self.idle.borrow_mut().push(sender);
        Ok(())
    }

    /// Sends the request; once more on a new connection if the idle one turned out to be closed before it took the request.
    async fn send(&self, lengths: Lengths) -> Result<(Response<Incoming>, Sender), String> {
        let mut request = self.request(lengths)?;
        loop {
            let Some(mut sender) = self.take_idle().await else { break };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(describe(error.error())),
                },
            }
        }
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await.map_err(|e| describe(&e))?;
        Ok((response, sender))
    }

    async fn take_idle(&self) -> Option<Sender> {
        loop {
            let mut sender = self.idle.borrow_mut().pop()?;
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    async fn connect(&self) -> Result<Sender, String> {
        let stream = TcpStream::connect(self.address).await.map_err(|e| format!("connect: {}", e.kind()))?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| describe(&e))?;
        tokio::task::spawn_local(connection);
        Ok(sender)
    }

    fn request(&self, lengths: Lengths) -> Result<Request<Full<Bytes>>, String> {
        let post = self.plan.method == http::Method::POST;
        let number = self.made.replace(self.made.get() + 1);
        let body = if post { Full::from(self.plan.body(lengths, number)) } else { Full::default() };
        let mut request = Request::new(body);
        *request.method_mut() = self.plan.method.clone();
        *request.uri_mut() = self.target.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        if post {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, tokens) in [(PROMPT_TOKENS, lengths.prompt_tokens), (OUTPUT_TOKENS, lengths.output_tokens)] {
            if let Some(tokens) = tokens {
                headers.insert(name, HeaderValue::from(tokens));
            }
        }
        for (name, value) in &self.plan.headers {
            headers.insert(name.clone(), value.clone());
        }
        Ok(request)
    }

    async fn read_stream(&self, intended: Instant, mut body: Incoming, sample: &mut Sample) -> Result<(), String> {
        let mut events = Events::default();
        let (mut count, mut first, mut last) = (0u32, None, Instant::ORIGIN);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| format!("stream: {}", describe(&e)))?;
            let Some(data) = frame.data_ref() else { continue };
            let content = events.read(data);
            if content == 0 {
                continue;
            }
            let now = self.clock.now();
            let report = &mut *self.report.borrow_mut();
            report.events += u64::from(content);
            if first.is_none() {
                first = Some(now);
                sample.ttft_s = Some(now.secs_since(intended));
            } else {
                report.interval.record(now.secs_since(last));
            }
            // Events of one chunk came together: nothing between them.
            (1..content).for_each(|_| report.interval.record(0.0));
            (count, last) = (count + content, now);
        }
        if let Some(first) = first.filter(|_| count > 1) {
            sample.mean_interval_s = Some(last.secs_since(first) / f64::from(count - 1));
        }
        match (events.error, events.done) {
            (true, _) => Err("error inside the stream".to_owned()),
            (false, false) => Err("stream ended without [DONE]".to_owned()),
            (false, true) => Ok(()),
        }
    }

    /// Status and the body's error code.
    async fn refusal(&self, status: u16, body: Incoming, sender: Sender) -> String {
        let Ok(body) = Limited::new(body, ERROR_BODY_BYTES).collect().await else { return status.to_string() };
        self.idle.borrow_mut().push(sender);
        let json: serde_json::Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        let code = json["error"]["code"].as_str().filter(|c| c.len() <= 64);
        code.map_or_else(|| status.to_string(), |code| format!("{status} {code}"))
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

async fn read_whole(mut body: Incoming) -> Result<(), String> {
    while let Some(frame) = body.frame().await {
        frame.map_err(|e| format!("body: {}", describe(&e)))?;
    }
    Ok(())
}

/// A short, countable name of an error: no addresses, no numbers.
fn describe(error: &hyper::Error) -> String {
    let source = std::error::Error::source(error).and_then(|s| s.downcast_ref::<std::io::Error>());
    match source {
        Some(io) => io.kind().to_string(),
        None if error.is_incomplete_message() => "connection closed before the answer ended".to_owned(),
        None => error.to_string(),
    }
}
