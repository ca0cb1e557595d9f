//! An engine that answers by a script.

use crate::dial::Dial;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tidegate_config::EndpointUrl;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::Notify;

/// What becomes of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    /// A status and an empty body.
    Status(u16),
    /// The same, and the connection is closed.
    StatusThenClose(u16),
    /// 200 and a body, after a while.
    JsonAfter(Duration, &'static str),
    /// These bytes; the connection stays open.
    Raw(&'static str),
    /// Nothing, for ever.
    Silence,
    /// The connection is closed without an answer.
    Close,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Status(status)
    }

    pub(crate) fn json(body: &'static str) -> Self {
        Self::JsonAfter(Duration::ZERO, body)
    }
}

type Script = Box<dyn Fn(usize, &str) -> Reply + Send + Sync>;

/// The engine: the k-th request gets the script's k-th reply.
pub(crate) struct Engine {
    script: Script,
    me: Weak<Self>,
    heads: Mutex<Vec<String>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    closed: Notify,
    outstanding: AtomicUsize,
    most_outstanding: AtomicUsize,
}

impl Engine {
    pub(crate) fn new(script: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Self::scripted(Box::new(move |n, _| script(n)))
    }

    /// An engine that answers by the path of the request.
    pub(crate) fn by_path(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Self::scripted(Box::new(move |_, path| script(path)))
    }

    fn scripted(script: Script) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            script,
            me: Weak::clone(me),
            heads: Mutex::default(),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            closed: Notify::new(),
            outstanding: AtomicUsize::new(0),
            most_outstanding: AtomicUsize::new(0),
        })
    }

    /// Connections ever opened.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// Most requests that were there at once, each on an open connection.
    pub(crate) fn most_outstanding(&self) -> usize {
        self.most_outstanding.load(SeqCst)
    }

    pub(crate) fn head(&self, request: usize) -> String {
        self.heads.lock().unwrap()[request].clone()
    }

    pub(crate) fn first_line(&self, request: usize) -> String {
        self.head(request).lines().next().unwrap().to_owned()
    }

    /// Waits until no connection is open.
    pub(crate) async fn all_closed(&self) {
        while self.open.load(SeqCst) > 0 {
            self.closed.notified().await;
        }
    }

    /// Serves one connection until it closes.
    pub(crate) fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: S) {
        let engine = self.me.upgrade().unwrap();
        engine.connections.fetch_add(1, SeqCst);
        engine.open.fetch_add(1, SeqCst);
        tokio::spawn(async move {
            engine.converse(stream).await;
            engine.open.fetch_sub(1, SeqCst);
            engine.closed.notify_one();
        });
    }

    async fn converse<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) {
        let mut head = Vec::new();
        while let Ok(byte) = stream.read_u8().await {
            head.push(byte);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            let reply = {
                let mut heads = self.heads.lock().unwrap();
                heads.push(String::from_utf8(std::mem::take(&mut head)).unwrap());
                let n = heads.len() - 1;
                let path = heads[n].split(' ').nth(1).unwrap_or_default();
                (self.script)(n, path)
            };
            let now = self.outstanding.fetch_add(1, SeqCst) + 1;
            self.most_outstanding.fetch_max(now, SeqCst);
            // A client that gave up closes; its request is no longer outstanding then.
            let goes_on = self.answer(&mut stream, reply).await;
            self.outstanding.fetch_sub(1, SeqCst);
            if !goes_on {
                return;
            }
        }
    }

    async fn answer<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: &mut S, reply: Reply) -> bool {
        let (wait, text) = match reply {
            Reply::Close => return false,
            Reply::Status(status) | Reply::StatusThenClose(status) => {
                (Some(Duration::ZERO), format!("HTTP/1.1 {status} Words\r\ncontent-length: 0\r\n\r\n"))
            }
            Reply::JsonAfter(wait, body) => {
                (Some(wait), format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
            }
            Reply::Raw(text) => {
                let _ = stream.write_all(text.as_bytes()).await;
                (None, String::new())
            }
            Reply::Silence => (None, String::new()),
        };
        let due = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await, // paused time: this is how long the engine takes
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            _ = stream.read_u8() => return false,
        }
        stream.write_all(text.as_bytes()).await.is_ok() && !matches!(reply, Reply::StatusThenClose(_))
    }
}

impl Dial for Engine {
    type Io = DuplexStream;

    fn beside(self: &Arc<Self>) -> Arc<Self> {
        Arc::clone(self)
    }

    async fn dial(&self, _: &EndpointUrl) -> io::Result<DuplexStream> {
        let (near, far) = tokio::io::duplex(64 << 10);
        self.serve(far);
        Ok(near)
    }
}
