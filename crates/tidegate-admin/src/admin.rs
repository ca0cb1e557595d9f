//! Starting and stopping the admin server, and its connections.

use crate::action::{Action, Target};
use crate::config::ConfigBook;
use crate::route;
use crate::rules::RuleBook;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::Secret;
use tidegate_proxy::{Current, Governor};
use tidegate_telemetry::Telemetry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Connections served at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 128;
/// Followers of `/api/events` at once.
const MAX_SUBSCRIBERS: usize = 16;
/// Longest time for the head of a request, also between two requests of a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Bound on the head of a request, in bytes.
const LIMIT_HEAD_BYTES: usize = 16 << 10;

/// Whether the gateway takes requests: its listeners are bound and it is not draining.
pub type Ready = Arc<dyn Fn() -> bool + Send + Sync>;

/// What every request may read.
pub(crate) struct Shared {
    pub(crate) address: SocketAddr,
    pub(crate) token: Mutex<Option<Secret>>,
    pub(crate) current: Current,
    pub(crate) governor: Option<Arc<Governor>>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) rules: Option<Arc<dyn RuleBook>>,
    pub(crate) config: Option<Arc<dyn ConfigBook>>,
    pub(crate) ready: Ready,
    pub(crate) actions: Vec<Action>,
    /// Actions that are on, as far as this server switched them; at most one entry per action and endpoint.
    pub(crate) switched: Mutex<BTreeMap<(&'static str, Target), bool>>,
    pub(crate) subscribers: Arc<Semaphore>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What an admin server shows and changes.
pub struct Subject {
    /// The pools, by the generation of the config in force.
    pub current: Current,
    /// The limits; `None`: none are shown.
    pub governor: Option<Arc<Governor>>,
    /// Metrics and records.
    pub telemetry: Arc<Telemetry>,
    /// The auto-tuning rules; `None`: there are none.
    pub rules: Option<Arc<dyn RuleBook>>,
    /// The config and its reloads; `None`: it comes from no file.
    pub config: Option<Arc<dyn ConfigBook>>,
    /// Whether the gateway takes requests.
    pub ready: Ready,
    /// What the binary lets an operator do beyond.
    pub actions: Vec<Action>,
}

/// The running admin server. Dropping it closes its socket and its connections.
#[derive(Debug)]
#[must_use = "dropping it stops the server"]
pub struct Admin {
    shared: Arc<Shared>,
    /// A duplicate of its socket, for the process that takes over.
    socket: std::net::TcpListener,
    address: SocketAddr,
    tasks: JoinSet<()>,
}

/// Why the admin server did not start.
#[derive(Debug)]
pub struct StartError {
    /// The address it was to listen on.
    pub address: SocketAddr,
    /// Why it cannot.
    pub error: io::Error,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {} for the admin API: {}", self.address, self.error)?;
        match self.error.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                " (another process has port {}; choose another, `admin: {{ address: {}:0 }}` takes any free one, `admin: off` goes without)",
                self.address.port(),
                self.address.ip(),
            ),
            io::ErrorKind::PermissionDenied => f.write_str(" (ports below 1024 need the right to bind them)"),
            io::ErrorKind::AddrNotAvailable => f.write_str(" (no interface of this machine has that address)"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for StartError {}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("current", &self.current).finish_non_exhaustive()
    }
}

impl Admin {
    /// Listens on `settings.address` and serves on the current tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn start(settings: &tidegate_config::Admin, subject: Subject) -> Result<Self, StartError> {
        Self::start_on(Self::bind(settings)?, settings, subject)
    }

    /// The socket that [`Admin::start_on`] wants.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn bind(settings: &tidegate_config::Admin) -> Result<std::net::TcpListener, StartError> {
        let wrong = |error| StartError { address: settings.address, error };
        std::net::TcpListener::bind(settings.address).map_err(wrong)
    }

    /// [`Admin::start`] on a socket that is bound already.
    ///
    /// # Errors
    /// If the socket cannot be used.
    pub fn start_on(
        socket: std::net::TcpListener,
        settings: &tidegate_config::Admin,
        subject: Subject,
    ) -> Result<Self, StartError> {
        let wrong = |error| StartError { address: settings.address, error };
        socket.set_nonblocking(true).map_err(wrong)?;
        let listener = socket.try_clone().and_then(TcpListener::from_std).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        let shared = Arc::new(Shared {
            address,
            token: Mutex::new(settings.token.clone()),
            current: subject.current,
            governor: subject.governor,
            telemetry: subject.telemetry,
            rules: subject.rules,
            config: subject.config,
            ready: subject.ready,
            actions: subject.actions,
            switched: Mutex::default(),
            subscribers: Arc::new(Semaphore::new(MAX_SUBSCRIBERS)),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { shared, socket, address, tasks })
    }

    /// Its listening socket.
    pub fn socket(&self) -> &std::net::TcpListener {
        &self.socket
    }

    /// Another token, or none, from the next request on.
    pub fn set_token(&self, token: Option<Secret>) {
        *self.shared.token.lock() = token;
    }

    /// Where it listens; port 0 is replaced by the port taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the socket and all connections; a page or scrape under way is cut.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    serve(stream, shared).await;
                    drop(place);
                });
            }
            Err(error) => {
                // Out of file descriptors, most likely: trying again at once would only burn a core.
                tracing::warn!(%error, "the admin API cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(route::answer(&shared, request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(LIMIT_HEAD_BYTES);
    // The client left, or sent no HTTP: nothing an operator could act on.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}
