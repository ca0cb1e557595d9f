//! The running parts of a gateway process: data plane, signals, rules, telemetry, admin. `serve` and `demo` start the same.
//!
//! Signals and admin run on the caller's runtime, the data plane on threads of its own: a saturated data plane cannot starve its probes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::rules::Running;
use tidegate_admin::{Action, Admin};
use tidegate_config::Config;
use tidegate_core::event::Event;
use tidegate_proxy::Gateway;
use tidegate_signals::{Watch, watch};
use tidegate_telemetry::Telemetry;

/// A running gateway with everything around it.
pub(crate) struct Control {
    gateway: Gateway,
    admin: Option<Admin>,
    watches: Vec<Watch>,
    rules: Option<Running>,
    ready: Arc<AtomicBool>,
}

impl Control {
    /// Starts all parts of `config`; `actions` are added to the admin API.
    ///
    /// # Errors
    /// If an address cannot be listened on.
    pub(crate) async fn start(config: &Config, actions: Vec<Action>) -> anyhow::Result<Self> {
        let telemetry = Arc::new(Telemetry::new(config));
        let gateway = Gateway::start(config, Arc::clone(&telemetry) as _)?;
        let ready = Arc::new(AtomicBool::new(true));
        let watches = watch_all(config, &gateway, &telemetry);
        let rules = Running::start(config, &gateway, &telemetry);
        let is_ready = Arc::clone(&ready);
        let admin = match &config.admin {
            Some(settings) => {
                let pools = gateway.pools().to_vec();
                let governor = Some(Arc::clone(gateway.governor()));
                let book = rules.as_ref().map(Running::book);
                let ready: tidegate_admin::Ready = Arc::new(move || is_ready.load(Relaxed));
                Some(Admin::start(settings, pools, governor, telemetry, book, ready, actions).await?)
            }
            None => None,
        };
        Ok(Self { gateway, admin, watches, rules, ready })
    }

    /// Where requests come in.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        self.gateway.addresses()
    }

    /// Where the admin API is.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Stops taking requests, lets open ones end for at most `drain`, then stops everything. True if all ended in time.
    pub(crate) async fn stop(self, drain: Duration) -> bool {
        self.ready.store(false, Relaxed);
        let all_ended = self.gateway.stop(drain).await;
        if let Some(rules) = self.rules {
            rules.stop().await;
        }
        for watch in self.watches {
            watch.stop().await;
        }
        if let Some(admin) = self.admin {
            admin.stop().await;
        }
        all_ended
    }
}

fn watch_all(config: &Config, gateway: &Gateway, telemetry: &Arc<Telemetry>) -> Vec<Watch> {
    let clock = gateway.clock();
    let clock: tidegate_signals::Clock = Arc::new(move || clock.now());
    let start = |(index, (settings, pool)): (usize, (&tidegate_config::Pool, &Arc<tidegate_proxy::PoolHandle>))| {
        let (pool, telemetry) = (Arc::clone(pool), Arc::clone(telemetry));
        let tell: tidegate_signals::Tell = Arc::new(move |event: Event| {
            telemetry.on_signal(index, &event);
            pool.on_event(event);
        });
        watch(settings, &tell, &clock, u64::from(std::process::id()) + index as u64)
    };
    config.pools.iter().zip(gateway.pools()).enumerate().map(start).collect()
}
