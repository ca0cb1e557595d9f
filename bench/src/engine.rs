//! A cheap engine: what a proxy is measured against must cost less than the proxy.
//!
//! It answers on 127.0.0.1 to 127.0.0.4. A chat request that asks for a stream gets `max_tokens` events of one size, one every so many
//! milliseconds as its `user` field says (`gap-20`), each in a chunk and a write of its own. An event carries the microseconds of its sending,
//! so that a client on the same machine knows how long it was under way. Every other request gets a fixed JSON answer.

use crate::message;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{MissedTickBehavior, interval};

/// Where the engine answers.
pub const HOSTS: [&str; 4] = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"];
/// What comes before the time stamp in an event.
pub const STAMP_MARK: &[u8] = b"\"content\":\"t";
/// Digits of a time stamp in microseconds.
pub const STAMP_DIGITS: usize = 16;

const ANSWER: &str = r#"{"id":"cmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Paris is the capital of France. It has been so, with breaks, for about a thousand years."},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":20,"total_tokens":32}}"#;
const MODELS: &str = r#"{"object":"list","data":[{"id":"m","object":"model","owned_by":"bench"}]}"#;
const EVENT: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"t0000000000000000\"},\"finish_reason\":null}]}\n\n";
const LAST: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":20,\"total_tokens\":32}}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}

/// Answers until it is ended.
///
/// # Errors
/// If an address cannot be listened on.
pub async fn run(port: u16) -> anyhow::Result<()> {
    for host in HOSTS {
        let listener = TcpListener::bind((host, port)).await?;
        tokio::spawn(async move {
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(async move {
                        let _ = Connection::new(stream).serve().await;
                    });
                }
            }
        });
    }
    std::future::pending().await
}

struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    /// One event in its chunk, stamped anew for every write.
    event: Vec<u8>,
    stamp_at: usize,
}

/// What a request asks for.
enum Asked {
    Answer,
    Models,
    Stream { events: u64, gap: Duration },
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        let event = chunk(EVENT);
        let stamp_at = memchr::memmem::find(&event, STAMP_MARK).unwrap_or(0) + STAMP_MARK.len();
        Self { stream, read: Vec::with_capacity(2048), event, stamp_at }
    }

    async fn serve(mut self) -> std::io::Result<()> {
        self.stream.set_nodelay(true)?;
        let (answer, models) = (whole(ANSWER), whole(MODELS));
        loop {
            let length = loop {
                if let Some(length) = message::request_length(&self.read) {
                    break length;
                }
                if self.stream.read_buf(&mut self.read).await? == 0 {
                    return Ok(());
                }
            };
            let asked = asked(&self.read[..length]);
            self.read.drain(..length);
            match asked {
                Asked::Answer => self.stream.write_all(&answer).await?,
                Asked::Models => self.stream.write_all(&models).await?,
                Asked::Stream { events, gap } => self.send_events(events, gap).await?,
            }
        }
    }

    async fn send_events(&mut self, events: u64, gap: Duration) -> std::io::Result<()> {
        self.stream.write_all(STREAM_HEAD).await?;
        let mut tick = interval(gap);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..events {
            tick.tick().await;
            let mut rest = now_us();
            for digit in self.event[self.stamp_at..self.stamp_at + STAMP_DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            self.stream.write_all(&self.event).await?;
        }
        let end = [chunk(LAST), chunk(DONE), b"0\r\n\r\n".to_vec()].concat();
        self.stream.write_all(&end).await
    }
}

fn asked(request: &[u8]) -> Asked {
    if request.starts_with(b"GET /v1/models") {
        return Asked::Models;
    }
    let has = |needle: &[u8]| memchr::memmem::find(request, needle).is_some();
    if !has(b"\"stream\":true") && !has(b"\"stream\": true") {
        return Asked::Answer;
    }
    let events = number_after(request, b"\"max_tokens\":").unwrap_or(100);
    let gap = Duration::from_millis(number_after(request, b"gap-").unwrap_or(20).max(1));
    Asked::Stream { events, gap }
}

fn number_after(text: &[u8], mark: &[u8]) -> Option<u64> {
    let from = memchr::memmem::find(text, mark)? + mark.len();
    let digits: Vec<u8> =
        text[from..].iter().copied().skip_while(|b| *b == b' ').take_while(u8::is_ascii_digit).collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

fn whole(json: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{json}", json.len())
        .into_bytes()
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}
