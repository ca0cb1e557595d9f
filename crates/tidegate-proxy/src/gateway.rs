//! The running gateway: what all cores share, what each core owns, starting and stopping.

use crate::downstream::addresses::Addresses;
use crate::downstream::bound::{Bound, bind_all, duplicate};
use crate::downstream::listener;
use crate::socket::batch;
use crate::state::clock::Clock;
use crate::state::governor::Governor;
use crate::state::inherit::{Inherited, LateUse, Saved};
use crate::state::jwt::Verifier;
use crate::state::live_pool::{LivePool, PROGRESS_EVERY};
use crate::state::phase::{LAST_WORDS, Phase};
use crate::state::pool::PoolHandle;
use crate::state::snapshot::{Current, Snapshot};
use crate::state::start_error::StartError;
use crate::state::tenant::Directory;
use crate::state::token_counts::TokenCounts;
use crate::upstream::connection::Idle;
use crate::upstream::probe;
use crate::upstream::wire::Spoken;
use http::HeaderValue;
use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidegate_config::{Config, Journal, Shutdown};
use tidegate_core::rng::Rng;
use tidegate_telemetry::Sink;
use tidegate_tls::Refresh;
use tokio::runtime::LocalOptions;
use tokio::sync::{mpsc, watch};

/// How often files of certificates are looked at.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(1);

/// What all cores read.
pub(crate) struct Shared {
    pub(crate) current: Current,
    pub(crate) governor: Arc<Governor>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) clock: Clock,
    pub(crate) sink: Arc<dyn Sink>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("current", &self.current).finish_non_exhaustive()
    }
}

/// What one core owns.
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) idle: RefCell<Idle>,
    pub(crate) tokens: RefCell<TokenCounts>,
    ids: RefCell<Rng>,
    /// Number of the next upstream connection; the high bits are the core's own.
    connections: Cell<u64>,
    pub(crate) stop: watch::Receiver<Phase>,
    /// Held by every open connection; the gateway waits until all are gone.
    pub(crate) alive: mpsc::Sender<()>,
}

impl Core {
    /// A request id no other request has: a random UUID, as engines on starlette (llama-cpp-python among them) refuse a request whose
    /// `x-request-id` is none.
    pub(crate) fn next_request_id(&self) -> HeaderValue {
        let (high, low) = {
            let mut ids = self.ids.borrow_mut();
            (ids.next_u64(), ids.next_u64())
        };
        let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
        let (d, e) = (((low >> 48) & 0x3fff) | 0x8000, low & 0xffff_ffff_ffff);
        let id = format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}");
        HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("-"))
    }

    /// A number for a new upstream connection.
    pub(crate) fn next_connection(&self) -> u64 {
        let number = self.connections.get();
        self.connections.set(number + 1);
        number
    }

    /// Twice a second: forget counters and close connections that are not needed any more.
    async fn tick(self: Rc<Self>) {
        let mut every = tokio::time::interval(PROGRESS_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            self.tokens.borrow_mut().sweep();
            self.idle.borrow_mut().sweep(self.shared.clock.now());
        }
    }
}

/// What the first core looks after, from when it is in force until nobody needs it.
enum Newcomer {
    Pool(Arc<LivePool>),
    Verifier(Weak<Verifier>),
    Certificates(Weak<dyn Refresh>),
}

impl Newcomer {
    fn certificates(files: &Arc<dyn Refresh>) -> Self {
        Self::Certificates(Arc::downgrade(files))
    }

    /// Starts its tasks.
    fn settle_in(self) {
        match self {
            Self::Pool(pool) => {
                if let Some(asked) = pool.take_probes() {
                    tokio::task::spawn_local(probe::serve(Arc::downgrade(&pool), asked));
                }
                tokio::task::spawn_local(async move { pool.live().await });
            }
            Self::Verifier(verifier) => {
                tokio::task::spawn_local(keep_keys(verifier));
            }
            Self::Certificates(files) => {
                tokio::task::spawn_local(keep_certificates(files));
            }
        }
    }
}

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    addresses: Vec<SocketAddr>,
    /// Duplicates of its listening sockets, for the process that takes over.
    sockets: Vec<(SocketAddr, std::net::TcpListener)>,
    shared: Arc<Shared>,
    journal: Option<Journal>,
    seed: u64,
    newcomers: mpsc::UnboundedSender<Newcomer>,
    stop: watch::Sender<Phase>,
    alive: Option<mpsc::Receiver<()>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// A config that can be put in force.
#[derive(Debug)]
pub struct Prepared {
    config: Config,
    generation: u64,
    /// Its pools, how each is spoken to, and whether it is new.
    lives: Vec<(Arc<LivePool>, Spoken, bool)>,
}

impl Gateway {
    /// Binds every listener and starts one thread per core.
    ///
    /// # Errors
    /// If an address cannot be listened on, or a thread cannot be started.
    pub fn start(config: &Config, sink: Arc<dyn Sink>) -> Result<Self, StartError> {
        Self::start_from(config, sink, Inherited::default())
    }

    /// [`Gateway::start`] with sockets that are bound already, and from what another process knew.
    ///
    /// # Errors
    /// If an address cannot be listened on, or a thread cannot be started.
    pub fn start_from(config: &Config, sink: Arc<dyn Sink>, mut inherited: Inherited) -> Result<Self, StartError> {
        // First: a second gateway on the same addresses must end here, before it touches the journals of the one that runs.
        let threads = config.thread_count();
        let (addresses, bound) = bind_all(config, threads, &mut inherited)?;
        let sockets = duplicate(config, &bound)?;
        let listeners = bound.iter().take(1).flat_map(|b| &b.shared).filter_map(|s| s.secure.clone());
        let certificates: Vec<Arc<dyn Refresh>> = listeners.map(|s| s as Arc<dyn Refresh>).collect();
        let (saved, clock) = match inherited.known {
            Some((saved, clock)) => (saved, clock),
            None => (Saved::default(), Clock::start()),
        };
        let seed = random_seed();
        let mut pools = Vec::with_capacity(config.pools.len());
        for (place, settings) in config.pools.iter().enumerate() {
            let seed = seed.wrapping_add(place as u64);
            let spoken = Spoken::new(settings, None).map_err(StartError::Tls)?;
            let live = LivePool::new(settings, spoken.clone(), config.journal.as_ref(), clock, seed);
            let pool = PoolHandle::new(settings, Arc::new(live.map_err(StartError::Journal)?), spoken, true);
            if let Some((_, known)) = saved.pools.iter().find(|(name, _)| **name == *settings.name) {
                pool.with(|pool, now| pool.restore(now, known));
            }
            pools.push(Arc::new(pool));
        }
        let tenants = Directory::new(config.tenants.as_ref());
        let shared = Arc::new(Shared {
            current: Current::new(Snapshot::new(config, 1, pools, tenants)),
            governor: Arc::new(Governor::new(config, clock)),
            addresses: Addresses::new(config.limits.max_connections_per_address),
            clock,
            sink,
        });
        shared.governor.restore(&saved);
        let (newcomers, arriving) = mpsc::unbounded_channel();
        let mut arriving = Some(arriving);
        let snapshot = shared.current.load();
        for pool in &snapshot.pools {
            let _ = newcomers.send(Newcomer::Pool(Arc::clone(&pool.live)));
            let _ = pool.live.spoken().settings.map(|s| newcomers.send(Newcomer::certificates(&(s as _))));
        }
        for files in &certificates {
            let _ = newcomers.send(Newcomer::certificates(files));
        }
        for verifier in snapshot.tenants.verifiers() {
            let _ = newcomers.send(Newcomer::Verifier(Arc::downgrade(verifier)));
        }
        drop(snapshot);
        let (stop, stopped) = watch::channel(Phase::Serving);
        let (alive, all_gone) = mpsc::channel(1);
        let mut handles = Vec::new();
        for (k, bound) in bound.into_iter().enumerate() {
            let (shared, stopped, alive) = (Arc::clone(&shared), stopped.clone(), alive.clone());
            let arriving = arriving.take();
            let run = move || run_core(&shared, bound, stopped, alive, arriving, k, seed);
            let thread = std::thread::Builder::new().name(format!("tidegate-{k}")).spawn(run);
            handles.push(thread.map_err(StartError::Thread)?);
        }
        let journal = config.journal.clone();
        Ok(Self { addresses, sockets, shared, journal, seed, newcomers, stop, alive: Some(all_gone), threads: handles })
    }

    /// Where it listens, in the order of the config; port 0 is replaced by the port taken.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Its listening sockets, each with the address that the config gave it.
    pub fn sockets(&self) -> &[(SocketAddr, std::net::TcpListener)] {
        &self.sockets
    }

    /// What it knows now. From then on `heir` is told what its requests use, so that balances stay true in the process that goes on from
    /// them, until [`Gateway::keep`]. It goes on serving.
    pub fn save(&self, heir: mpsc::Sender<LateUse>) -> Saved {
        let (limits, lengths) = self.shared.governor.save(heir);
        let save = |p: &Arc<PoolHandle>| (p.name.to_string(), p.with(|pool, now| pool.save(now)));
        let pools = self.pools().iter().map(save).collect();
        Saved { at: self.shared.clock.now().as_nanos(), limits, lengths, pools }
    }

    /// No process goes on from what was saved.
    pub fn keep(&self) {
        self.shared.governor.keep();
    }

    /// The generation in force.
    pub fn current(&self) -> &Current {
        &self.shared.current
    }

    /// Its pools, in the order of the config in force.
    pub fn pools(&self) -> Vec<Arc<PoolHandle>> {
        self.shared.current.load().pools.clone()
    }

    /// The limits of the process.
    pub fn governor(&self) -> &Arc<Governor> {
        &self.shared.governor
    }

    /// The clock its pools run on.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Does what may fail before `config` is put in force; nothing has changed so far.
    ///
    /// # Errors
    /// If the journal of a new pool cannot be written, or certificates cannot be used.
    pub fn prepare(&self, config: &Config) -> Result<Prepared, StartError> {
        let old = self.shared.current.load();
        let generation = old.generation + 1;
        let mut lives = Vec::with_capacity(config.pools.len());
        for (place, settings) in config.pools.iter().enumerate() {
            let known = old.pools.iter().find(|p| *p.name == *settings.name);
            let seed = self.seed.wrapping_add(generation << 16).wrapping_add(place as u64);
            lives.push(match known {
                Some(pool) => {
                    let spoken = Spoken::new(settings, Some(&pool.live.spoken())).map_err(StartError::Tls)?;
                    (Arc::clone(&pool.live), spoken, false)
                }
                None => {
                    let spoken = Spoken::new(settings, None).map_err(StartError::Tls)?;
                    let live = LivePool::new(settings, spoken.clone(), self.journal.as_ref(), self.shared.clock, seed);
                    (Arc::new(live.map_err(StartError::Journal)?), spoken, true)
                }
            });
        }
        Ok(Prepared { config: config.clone(), generation, lives })
    }

    /// Puts a config in force, apart from its listeners, threads and journal, and answers with its generation. Requests that have begun go on
    /// as they began; what both configs have keeps its state: endpoints of the same URL in a pool of the same name, limits of the same name,
    /// requests that wait. Endpoints and pools that are gone end with their last request.
    pub fn put_in_force(&self, prepared: Prepared) -> u64 {
        let Prepared { config, generation, lives } = prepared;
        let old = self.shared.current.load();
        let tenants = Directory::after(config.tenants.as_ref(), Some(&old.tenants));
        for verifier in tenants.verifiers().filter(|v| !old.tenants.verifiers().any(|known| Arc::ptr_eq(known, v))) {
            let _ = self.newcomers.send(Newcomer::Verifier(Arc::downgrade(verifier)));
        }
        self.shared.governor.configure(&config);
        let mut pools = Vec::with_capacity(lives.len());
        for (settings, (live, spoken, is_new)) in config.pools.iter().zip(lives) {
            let known = live.spoken().settings.filter(|_| !is_new);
            let is_known = |s: &Arc<_>| known.as_ref().is_some_and(|known| Arc::ptr_eq(known, s));
            if let Some(files) = spoken.settings.clone().filter(|s| !is_known(s)) {
                let _ = self.newcomers.send(Newcomer::certificates(&(files as _)));
            }
            pools.push(Arc::new(PoolHandle::new(settings, Arc::clone(&live), spoken, is_new)));
            if is_new {
                let _ = self.newcomers.send(Newcomer::Pool(live));
            }
        }
        let snapshot = Snapshot::new(&config, generation, pools, tenants);
        let gone = old.pools.iter().filter(|p| !snapshot.pools.iter().any(|new| new.name == p.name));
        let gone: Vec<Arc<LivePool>> = gone.map(|p| Arc::clone(&p.live)).collect();
        self.shared.current.replace(snapshot);
        gone.iter().for_each(|pool| pool.retire());
        generation
    }

    /// [`Gateway::drain`] that closes connections without a request at once and waits for at most `drain`.
    pub async fn stop(self, drain: Duration) -> bool {
        self.drain(&Shutdown { delay: Duration::ZERO, drain_timeout: drain, keep_alive: Duration::ZERO }).await
    }

    /// Stops accepting, lets open requests end, and stops. True if all ended in time; else streams were ended with an error event and
    /// requests that waited were refused. `shutdown.delay` is the caller's.
    pub async fn drain(mut self, shutdown: &Shutdown) -> bool {
        let Some(mut alive) = self.alive.take() else { return true };
        // Else clients could still connect, and nobody would answer.
        self.sockets.clear();
        let keep_alive = shutdown.keep_alive.min(shutdown.drain_timeout);
        let mut ended = false;
        for (phase, wait) in [
            (Phase::Draining, keep_alive),
            (Phase::Closing, shutdown.drain_timeout - keep_alive),
            (Phase::Cutting, LAST_WORDS),
        ] {
            ended = phase < Phase::Cutting;
            let _ = self.stop.send(phase);
            if (phase, wait) != (Phase::Draining, Duration::ZERO) && is_over(&mut alive, wait).await {
                break;
            }
        }
        // Threads that still have connections are waiting for this end of the channel.
        drop(alive);
        for thread in self.threads.drain(..) {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        // The heir was told of the last use.
        self.keep();
        // What is left of the journals goes to the disk.
        self.pools().iter().for_each(|p| p.with(|pool, _| pool.stop_recording()));
        ended
    }
}

/// Whether all connections ended within `wait`.
async fn is_over(alive: &mut mpsc::Receiver<()>, wait: Duration) -> bool {
    tokio::time::timeout(wait, alive.recv()).await.is_ok()
}

fn run_core(
    shared: &Arc<Shared>,
    bound: Bound,
    stop: watch::Receiver<Phase>,
    alive: mpsc::Sender<()>,
    arriving: Option<mpsc::UnboundedReceiver<Newcomer>>,
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
    let core = Rc::new(Core {
        shared: Arc::clone(shared),
        idle: RefCell::default(),
        tokens: RefCell::default(),
        ids: RefCell::new(Rng::stream(seed, 1000 + k as u64)),
        connections: Cell::new((k as u64) << 48),
        stop,
        alive: alive.clone(),
    });
    runtime.block_on(async move {
        tokio::task::spawn_local(batch::send_at_end_of_turn());
        tokio::task::spawn_local(Rc::clone(&core).tick());
        if let Some(mut arriving) = arriving {
            tokio::task::spawn_local(async move {
                while let Some(newcomer) = arriving.recv().await {
                    newcomer.settle_in();
                }
            });
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

/// Reads the keys of a token verifier now and then, as long as a config has it.
async fn keep_keys(verifier: Weak<Verifier>) {
    while let Some(known) = verifier.upgrade() {
        known.refresh().await;
        let every = known.every();
        drop(known);
        tokio::time::sleep(every).await;
    }
}

/// Looks now and then whether files of certificates have changed, as long as somebody uses them.
async fn keep_certificates(files: Weak<dyn Refresh>) {
    loop {
        tokio::time::sleep(CERTIFICATES_EVERY).await;
        let Some(files) = files.upgrade() else { return };
        match files.refresh() {
            Ok(false) => {}
            Ok(true) => tracing::info!(?files, "certificates read again"),
            Err(fault) => tracing::error!(%fault, "certificates changed and cannot be used: those before stay"),
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
