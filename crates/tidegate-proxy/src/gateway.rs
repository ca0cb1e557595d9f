//! The running gateway: what all cores share, what each core owns, starting and stopping.

use crate::addresses::Addresses;
use crate::batch;
use crate::clock::Clock;
use crate::governor::Governor;
use crate::listener;
use crate::pool::{PROGRESS_EVERY, PoolHandle};
use crate::probe;
use crate::tenant::Directory;
use crate::upstream::Idle;
use http::HeaderValue;
use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tidegate_config::{Config, Limits, Match};
use tidegate_core::id::EndpointId;
use tidegate_core::rng::Rng;
use tidegate_telemetry::{JournalError, Sink};
use tidegate_tls::{Fault, Refresh};
use tokio::runtime::LocalOptions;
use tokio::sync::{mpsc, watch};

/// How often files of certificates are looked at.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(1);

/// What all cores read.
pub(crate) struct Shared {
    pub(crate) pools: Vec<Arc<PoolHandle>>,
    routes: Vec<Routed>,
    pub(crate) tenants: Directory,
    pub(crate) governor: Arc<Governor>,
    pub(crate) limits: Limits,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) clock: Clock,
    pub(crate) sink: Arc<dyn Sink>,
}

impl Shared {
    /// The first route that takes the request.
    pub(crate) fn route<'h>(
        &self,
        path: &str,
        model: Option<&str>,
        tenant: &str,
        header: impl Fn(&str) -> Option<&'h str>,
    ) -> Option<&Routed> {
        self.routes.iter().find(|r| r.matches.accepts(path, model, tenant, &header))
    }
}

/// One route, and where it leads.
pub(crate) struct Routed {
    /// What limits per route call it: the name of its pool.
    pub(crate) name: Arc<str>,
    matches: Match,
    pub(crate) class: u8,
    /// Place of its priority class in the pool's queue; `None`: that of the tenant.
    pub(crate) priority: Option<u8>,
    pub(crate) pool: Arc<PoolHandle>,
}

/// What one core owns.
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) idle: RefCell<Idle>,
    /// Tokens relayed on this core since the last tick, by pool and endpoint.
    tokens: Vec<Vec<Cell<u64>>>,
    ids: RefCell<Rng>,
    /// Number of the next upstream connection; the high bits are the core's own.
    connections: Cell<u64>,
    pub(crate) stop: watch::Receiver<bool>,
    /// Held by every open connection; the gateway waits until all are gone.
    pub(crate) alive: mpsc::Sender<()>,
}

impl Core {
    /// An event of a stream went through: two loads and a store, on memory of this core's own.
    pub(crate) fn count_token(&self, pool: &PoolHandle, endpoint: EndpointId) {
        let count = &self.tokens[pool.index][endpoint.index()];
        count.set(count.get() + 1);
    }

    /// A request id no other request has.
    pub(crate) fn next_request_id(&self) -> HeaderValue {
        let id = format!("{:016x}", self.ids.borrow_mut().next_u64());
        HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("-"))
    }

    /// A number for a new upstream connection.
    pub(crate) fn next_connection(&self) -> u64 {
        let number = self.connections.get();
        self.connections.set(number + 1);
        number
    }

    fn flush_tokens(&self) {
        for (pool, counts) in self.shared.pools.iter().zip(&self.tokens) {
            for (endpoint, count) in pool.endpoints.iter().zip(counts) {
                let tokens = count.take();
                if tokens > 0 {
                    endpoint.tokens.fetch_add(tokens, Relaxed);
                }
            }
        }
    }

    /// Twice a second: hand on token counts, close connections idle for too long; the first core also lets the pools' time pass.
    async fn tick(self: Rc<Self>, first: bool) {
        let mut every = tokio::time::interval(PROGRESS_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            self.flush_tokens();
            let timeout = |place: usize| self.shared.pools[place].settings().connections.idle_timeout;
            self.idle.borrow_mut().sweep(self.shared.clock.now(), timeout);
            if first {
                self.shared.pools.iter().for_each(|p| p.tick());
            }
        }
    }
}

/// Why a gateway did not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// The journal of a pool cannot be written.
    Journal(JournalError),
    /// Certificates cannot be used.
    Tls(Fault),
    /// A thread or its runtime could not be made.
    Thread(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        write!(f, " (another process has port {}; choose another in `listeners`)", address.port())
                    }
                    io::ErrorKind::PermissionDenied => f.write_str(" (ports below 1024 need the right to bind them)"),
                    io::ErrorKind::AddrNotAvailable => f.write_str(" (no interface of this machine has that address)"),
                    _ => Ok(()),
                }
            }
            Self::Journal(error) => write!(f, "{error} (see `journal.folder`)"),
            Self::Tls(fault) => fault.fmt(f),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    addresses: Vec<SocketAddr>,
    pools: Vec<Arc<PoolHandle>>,
    governor: Arc<Governor>,
    clock: Clock,
    stop: watch::Sender<bool>,
    alive: Option<mpsc::Receiver<()>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

struct Bound {
    sockets: Vec<std::net::TcpListener>,
    shared: Vec<listener::Shared>,
}

impl Gateway {
    /// Binds every listener and starts one thread per core.
    ///
    /// # Errors
    /// If an address cannot be listened on, or a thread cannot be started.
    pub fn start(config: &Config, sink: Arc<dyn Sink>) -> Result<Self, StartError> {
        // First: a second gateway on the same addresses must end here, before it touches the journals of the one that runs.
        let threads = config.thread_count();
        let (addresses, bound) = bind_all(config, threads)?;
        let clock = Clock::start();
        let seed = random_seed();
        let listeners = bound.iter().take(1).flat_map(|b| &b.shared).filter_map(|s| s.secure.clone());
        let mut certificates: Vec<Arc<dyn Refresh>> = listeners.map(|s| s as Arc<dyn Refresh>).collect();
        let pools: Vec<Arc<PoolHandle>> = config
            .pools
            .iter()
            .enumerate()
            .map(|(index, p)| {
                let seed = seed.wrapping_add(index as u64);
                let tls = p.endpoints.iter().any(|e| e.url.is_tls());
                let secure = tls.then(|| tidegate_tls::client(&p.tls, p.protocol).map(Arc::new)).transpose();
                let secure = secure.map_err(StartError::Tls)?;
                certificates.extend(secure.clone().map(|s| s as Arc<dyn Refresh>));
                PoolHandle::new(index, p, config.journal.as_ref(), clock, seed, secure.as_ref()).map(Arc::new)
            })
            .collect::<Result<_, _>>()?;
        let named = |name: &str| pools.iter().find(|p| &*p.name == name).map(Arc::clone);
        let routed = |r: &tidegate_config::Route| {
            let pool = named(&r.pool)?;
            let class = |name: &String| pool.settings().queue.as_ref()?.class(name);
            let priority = r.priority.as_ref().and_then(class);
            Some(Routed { name: Arc::clone(&pool.name), matches: r.matches.clone(), class: r.class, priority, pool })
        };
        let governor = Arc::new(Governor::new(config, clock));
        let shared = Arc::new(Shared {
            pools: pools.clone(),
            routes: config.routes.iter().filter_map(routed).collect(),
            tenants: Directory::new(config.tenants.as_ref()),
            governor: Arc::clone(&governor),
            limits: config.limits,
            addresses: Addresses::new(config.limits.max_connections_per_address),
            clock,
            sink,
        });
        let (stop, stopped) = watch::channel(false);
        let (alive, all_gone) = mpsc::channel(1);
        let mut handles = Vec::new();
        for (k, bound) in bound.into_iter().enumerate() {
            let (shared, stopped, alive) = (Arc::clone(&shared), stopped.clone(), alive.clone());
            let certificates = if k == 0 { std::mem::take(&mut certificates) } else { Vec::new() };
            let run = move || run_core(&shared, bound, certificates, stopped, alive, k, seed);
            let thread = std::thread::Builder::new().name(format!("tidegate-{k}")).spawn(run);
            handles.push(thread.map_err(StartError::Thread)?);
        }
        Ok(Self { addresses, pools, governor, clock, stop, alive: Some(all_gone), threads: handles })
    }

    /// Where it listens, in the order of the config; port 0 is replaced by the port taken.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Its pools, in the order of the config.
    pub fn pools(&self) -> &[Arc<PoolHandle>] {
        &self.pools
    }

    /// The limits of the process.
    pub fn governor(&self) -> &Arc<Governor> {
        &self.governor
    }

    /// The clock its pools run on.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Stops accepting, lets open requests end for at most `drain`, and stops. True if all ended in time.
    pub async fn stop(mut self, drain: Duration) -> bool {
        let _ = self.stop.send(true);
        let Some(mut alive) = self.alive.take() else { return true };
        let ended = tokio::time::timeout(drain, alive.recv()).await.is_ok();
        // Threads that still have connections are waiting for this end of the channel.
        drop(alive);
        for thread in self.threads.drain(..) {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        // What is left of the journals goes to the disk.
        self.pools.iter().for_each(|p| p.with(|pool, _| pool.stop_recording()));
        ended
    }
}

fn bind_all(config: &Config, threads: usize) -> Result<(Vec<SocketAddr>, Vec<Bound>), StartError> {
    let mut bound: Vec<Bound> = (0..threads).map(|_| Bound { sockets: Vec::new(), shared: Vec::new() }).collect();
    let mut addresses = Vec::new();
    for listener in &config.listeners {
        let wrong = |error| StartError::Listen { address: listener.address, error };
        refuse_shared_port(listener.address).map_err(wrong)?;
        let http2 = config.limits.http2.is_some();
        let secure = listener.tls.as_ref().map(|tls| tidegate_tls::server(tls, http2).map(Arc::new)).transpose();
        let shared = listener::Shared { open: Arc::default(), secure: secure.map_err(StartError::Tls)? };
        let mut address = listener.address;
        for core in &mut bound {
            let socket = listener::bind(address).map_err(wrong)?;
            address = socket.local_addr().map_err(wrong)?;
            core.sockets.push(socket);
            core.shared.push(shared.clone());
        }
        addresses.push(address);
    }
    Ok((addresses, bound))
}

/// The cores share a port among themselves, and the kernel would let a second gateway of the same user join in unnoticed and take half
/// of the traffic. A plain bind first finds out.
fn refuse_shared_port(address: SocketAddr) -> io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1)
}

fn run_core(
    shared: &Arc<Shared>,
    bound: Bound,
    certificates: Vec<Arc<dyn Refresh>>,
    stop: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
    k: usize,
    seed: u64,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
    {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start a core's runtime");
            return;
        }
    };
    let sizes = || shared.pools.iter().map(|p| p.endpoints.len());
    let core = Rc::new(Core {
        shared: Arc::clone(shared),
        idle: RefCell::new(Idle::new(sizes())),
        tokens: sizes().map(|n| vec![Cell::new(0); n]).collect(),
        ids: RefCell::new(Rng::stream(seed, 1000 + k as u64)),
        connections: Cell::new((k as u64) << 48),
        stop,
        alive: alive.clone(),
    });
    runtime.block_on(async move {
        tokio::task::spawn_local(batch::send_at_end_of_turn());
        tokio::task::spawn_local(Rc::clone(&core).tick(k == 0));
        if !certificates.is_empty() {
            tokio::task::spawn_local(keep_certificates(certificates));
        }
        if k == 0 {
            for place in 0..core.shared.tenants.verifiers().count() {
                tokio::task::spawn_local(keep_keys(Arc::clone(&core.shared), place));
            }
            for pool in core.shared.pools.iter().map(Arc::clone) {
                if let Some(asked) = pool.take_probes() {
                    tokio::task::spawn_local(probe::serve(Arc::clone(&pool), asked));
                }
                tokio::task::spawn_local(async move { pool.keep_time().await });
            }
        }
        let mut accepting = Vec::new();
        for (socket, shared) in bound.sockets.into_iter().zip(bound.shared) {
            match tokio::net::TcpListener::from_std(socket) {
                Ok(listener) => {
                    accepting.push(tokio::task::spawn_local(listener::accept(Rc::clone(&core), listener, shared)));
                }
                Err(error) => tracing::error!(%error, "cannot accept on a listener"),
            }
        }
        for task in accepting {
            let _ = task.await;
        }
        drain(core, alive).await;
    });
}

/// Reads the keys of a token verifier now and then.
async fn keep_keys(shared: Arc<Shared>, place: usize) {
    while let Some(verifier) = shared.tenants.verifiers().nth(place) {
        verifier.refresh().await;
        tokio::time::sleep(verifier.every()).await;
    }
}

/// Looks now and then whether files of certificates have changed.
async fn keep_certificates(certificates: Vec<Arc<dyn Refresh>>) {
    loop {
        tokio::time::sleep(CERTIFICATES_EVERY).await;
        for settings in &certificates {
            match settings.refresh() {
                Ok(false) => {}
                Ok(true) => tracing::info!(files = ?settings, "certificates read again"),
                Err(fault) => tracing::error!(%fault, "certificates changed and cannot be used: those before stay"),
            }
        }
    }
}

/// Waits until this core's connections have ended, or the gateway no longer waits for them.
async fn drain(core: Rc<Core>, alive: mpsc::Sender<()>) {
    while Rc::strong_count(&core) > 2 && !alive.is_closed() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn random_seed() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
