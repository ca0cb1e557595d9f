//! The running parts of a gateway process: data plane, signals, rules, telemetry, admin. `serve` and `demo` start the same.
//!
//! Signals and admin run on the caller's runtime, the data plane on threads of its own: a saturated data plane cannot starve its probes.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::rules::Running;
use tidegate_admin::{Action, Admin, ConfigBook, Subject};
use tidegate_config::{Config, Shutdown};
use tidegate_core::event::Event;
use tidegate_core::load::LoadReport;
use tidegate_proxy::{Gateway, Governor, Inherited, LateUse, PoolHandle, Saved, StartError};
use tidegate_signals::{Tell, TellFacts, TellModels, TellServes, Told, Watch};
use tidegate_telemetry::Telemetry;
use tokio::sync::mpsc;

/// Uses that may lie untold to the process that took over; beyond them it is told no more.
const MAX_TOLD: usize = 1 << 16;

/// What another process needs to go on from here.
#[derive(Debug)]
pub(crate) struct Offered {
    /// Whether it is the admin API's, its address in the config, and the socket.
    pub(crate) sockets: Vec<(bool, SocketAddr, TcpListener)>,
    pub(crate) saved: Saved,
    /// The system's monotonic clock when it was saved.
    pub(crate) monotonic_ns: u64,
}

/// A running gateway with everything around it.
pub(crate) struct Control {
    gateway: Gateway,
    telemetry: Arc<Telemetry>,
    admin: Option<Admin>,
    /// By pool.
    watches: HashMap<String, Watch>,
    rules: Running,
    ready: Arc<AtomicBool>,
}

impl Control {
    /// Starts all parts of `config`; `actions` are added to the admin API, and `book` answers there for the config.
    ///
    /// # Errors
    /// If an address cannot be listened on.
    pub(crate) fn start(
        config: &Config,
        actions: Vec<Action>,
        book: Option<Arc<dyn ConfigBook>>,
    ) -> anyhow::Result<Self> {
        Self::start_from(config, actions, book, (Inherited::default(), None))
    }

    /// [`Control::start`] from what was handed over: sockets, the one of the admin API, and what was known.
    ///
    /// # Errors
    /// If an address cannot be listened on.
    pub(crate) fn start_from(
        config: &Config,
        actions: Vec<Action>,
        book: Option<Arc<dyn ConfigBook>>,
        (inherited, admin_socket): (Inherited, Option<TcpListener>),
    ) -> anyhow::Result<Self> {
        // Before requests are accepted: whoever fails from then on takes some with it.
        let admin_socket = config.admin.as_ref().map(|settings| admin_socket_of(settings, admin_socket)).transpose()?;
        let telemetry = Arc::new(Telemetry::new(config));
        let gateway = Gateway::start_from(config, Arc::clone(&telemetry) as _, inherited)?;
        let ready = Arc::new(AtomicBool::new(true));
        let rules = Running::start(config, &gateway, &telemetry);
        let is_ready = Arc::clone(&ready);
        let admin = match config.admin.as_ref().zip(admin_socket) {
            Some((settings, socket)) => {
                let subject = Subject {
                    current: gateway.current().clone(),
                    governor: Some(Arc::clone(gateway.governor())),
                    telemetry: Arc::clone(&telemetry),
                    rules: Some(rules.book()),
                    config: book,
                    ready: Arc::new(move || is_ready.load(Relaxed)),
                    actions,
                };
                Some(Admin::start_on(socket, settings, subject)?)
            }
            None => None,
        };
        let mut control = Self { gateway, telemetry, admin, watches: HashMap::new(), rules, ready };
        control.watch_all(config);
        Ok(control)
    }

    /// Where requests come in.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        self.gateway.addresses()
    }

    /// Where the admin API is.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// What is counted.
    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// The limits of the process.
    pub(crate) fn governor(&self) -> &Arc<Governor> {
        self.gateway.governor()
    }

    /// Everything another process needs to go on from here, and what this one uses from now on. It goes on serving.
    ///
    /// # Errors
    /// If a socket cannot be duplicated.
    pub(crate) fn offer(&self) -> std::io::Result<(Offered, mpsc::Receiver<LateUse>)> {
        let mut sockets = Vec::new();
        for (address, socket) in self.gateway.sockets() {
            sockets.push((false, *address, socket.try_clone()?));
        }
        if let Some(admin) = &self.admin {
            sockets.push((true, admin.address(), admin.socket().try_clone()?));
        }
        let (heir, told) = mpsc::channel(MAX_TOLD);
        let saved = self.gateway.save(heir);
        Ok((Offered { sockets, saved, monotonic_ns: crate::takeover::monotonic_ns() }, told))
    }

    /// The other process came to nothing.
    pub(crate) fn keep(&self) {
        self.gateway.keep();
    }

    /// Lets go of the admin API: another process answers there.
    pub(crate) async fn leave_admin(&mut self) {
        if let Some(admin) = self.admin.take() {
            admin.stop().await;
        }
    }

    /// Puts another config in force and answers with its generation.
    ///
    /// # Errors
    /// If the journal of a new pool cannot be written or certificates cannot be used: then nothing has changed.
    pub(crate) async fn reload(&mut self, config: &Config) -> Result<u64, StartError> {
        let prepared = self.gateway.prepare(config)?;
        // Whoever speaks of endpoints and targets by their places is silent while these move.
        self.rules.stop().await;
        for (name, watch) in std::mem::take(&mut self.watches) {
            self.keep_watch(config, name, watch).await;
        }
        self.telemetry.configure(config);
        let generation = self.gateway.put_in_force(prepared);
        self.watch_all(config);
        self.rules.resume(config);
        if let (Some(admin), Some(settings)) = (&self.admin, &config.admin) {
            admin.set_token(settings.token.clone());
        }
        self.telemetry.on_applied(generation);
        Ok(generation)
    }

    async fn keep_watch(&mut self, config: &Config, name: String, mut watch: Watch) {
        match config.pool(&name) {
            Some(settings) => {
                watch.keep(settings).await;
                self.watches.insert(name, watch);
            }
            None => watch.stop().await,
        }
    }

    /// Starts the checks and polls that `config`, which is in force, asks for and that do not run.
    fn watch_all(&mut self, config: &Config) {
        let clock = self.gateway.clock();
        let clock: tidegate_signals::Clock = Arc::new(move || clock.now());
        let pools = self.gateway.pools();
        for (place, (settings, pool)) in config.pools.iter().zip(&pools).enumerate() {
            let watch = self.watches.entry(settings.name.clone()).or_default();
            let seed = u64::from(std::process::id()) + place as u64;
            let (events, facts) = (tell(pool, &self.telemetry), tell_facts(pool, &self.telemetry));
            let (serves, models) = (tell_serves(pool), tell_models(pool));
            let told = Told { events, facts, serves, models, clock: Arc::clone(&clock) };
            watch.start(settings, pool.ids(), &told, seed);
        }
    }

    /// Says that it is not ready, waits for load balancers to notice, stops taking requests, lets open ones end, then stops everything. True if
    /// all ended in time.
    pub(crate) async fn stop(mut self, shutdown: &Shutdown) -> bool {
        self.ready.store(false, Relaxed);
        tokio::time::sleep(shutdown.delay).await;
        let all_ended = self.gateway.drain(shutdown).await;
        self.rules.stop().await;
        for watch in self.watches.into_values() {
            watch.stop().await;
        }
        if let Some(admin) = self.admin {
            admin.stop().await;
        }
        all_ended
    }
}

/// The socket that was handed over, if it is for that address; else one of its own.
fn admin_socket_of(
    settings: &tidegate_config::Admin,
    handed: Option<TcpListener>,
) -> Result<TcpListener, tidegate_admin::StartError> {
    let fits = |s: &TcpListener| settings.address.port() == 0 || s.local_addr().is_ok_and(|a| a == settings.address);
    handed.filter(fits).map_or_else(|| Admin::bind(settings), Ok)
}

/// Tells `pool` what is seen of its endpoints, and counts it.
fn tell(pool: &Arc<PoolHandle>, telemetry: &Arc<Telemetry>) -> Tell {
    let (pool, telemetry) = (Arc::clone(pool), Arc::clone(telemetry));
    Arc::new(move |event: Event| {
        let id = match event {
            Event::Checked { endpoint, .. } | Event::LoadReported { endpoint, .. } => endpoint,
            Event::LoadMissed(endpoint) | Event::CacheTold { endpoint, .. } => endpoint,
            _ => return,
        };
        let max_age = pool.settings().load.as_ref().filter(|l| l.orca).map(|l| l.max_age);
        let url = pool.with_endpoints(|p, now, endpoints| {
            let handle = endpoints.get(id.index());
            // What answers told meanwhile goes with the pages. Where these fail for so long that their last word is old, answers go alone.
            let answered = max_age.and_then(|max_age| handle?.answered_at(now, max_age));
            p.on_event(now, with_answer(event, answered));
            if let (Some(handle), Event::LoadReported { .. } | Event::LoadMissed(_)) = (handle, event) {
                let is_unusable = p.endpoints().loads[id.index()].degraded_at(now).is_some();
                handle.set_unheard(matches!(event, Event::LoadMissed(_)) && is_unusable);
            }
            handle.map(|e| Arc::clone(&e.url))
        });
        if let Some(url) = url {
            telemetry.on_signal(&pool.name, &url, &event);
        }
    })
}

/// Tells `pool` what its endpoints serve.
fn tell_serves(pool: &Arc<PoolHandle>) -> TellServes {
    let pool = Arc::clone(pool);
    Arc::new(move |id, serves| pool.with_endpoints(|p, now, _| p.on_serves(now, id, serves)))
}

/// Tells `pool` what its endpoints call what they serve.
fn tell_models(pool: &Arc<PoolHandle>) -> TellModels {
    let pool = Arc::clone(pool);
    Arc::new(move |id, models| pool.on_models(id, models))
}

/// What a page told, together with what `answered` told of the same endpoint.
fn with_answer(event: Event, answered: Option<LoadReport>) -> Event {
    match (event, answered) {
        // What cannot be is left out, and named where signals are shown.
        (Event::LoadReported { endpoint, report }, Some(answered)) if answered.is_possible() => {
            Event::LoadReported { endpoint, report: report.with(&answered) }
        }
        _ => event,
    }
}

/// Keeps what pages of `pool`'s endpoints were found to expose.
fn tell_facts(pool: &Arc<PoolHandle>, telemetry: &Arc<Telemetry>) -> TellFacts {
    let (name, telemetry) = (Arc::clone(&pool.name), Arc::clone(telemetry));
    Arc::new(move |endpoint, facts| telemetry.on_facts(&name, endpoint, facts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::id::EndpointId;
    use tidegate_core::load::WorkReport;
    use tidegate_core::time::Instant;

    #[test]
    fn what_an_answer_tells_goes_with_the_next_page() {
        let endpoint = EndpointId(3);
        let work = WorkReport { running: Some(4.0), generated_total: Some(100.0), ..WorkReport::default() };
        let page = LoadReport { sampled_at: Instant::from_nanos(9), work, ..LoadReport::default() };
        let other = WorkReport { waiting: Some(1.0), ..WorkReport::default() };
        let answered =
            LoadReport { sampled_at: Instant::from_nanos(7), load: Some(0.5), work: other, ..LoadReport::default() };
        let told = Event::LoadReported { endpoint, report: page };
        let both = Event::LoadReported { endpoint, report: LoadReport { load: Some(0.5), ..page } };
        assert_eq!(with_answer(told, Some(answered)), both, "as of the page, whose counts stay whole");
        assert_eq!(with_answer(told, None), told);
        assert_eq!(with_answer(Event::LoadMissed(endpoint), Some(answered)), Event::LoadMissed(endpoint));
    }
}
