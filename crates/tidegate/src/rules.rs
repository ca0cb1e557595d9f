//! Auto-tuning rules, live: what is seen of their metrics goes to core's rules, what these decide is carried out, logged and counted.
//!
//! One lock for all rules, held for a sample at a time: a target that several rules change is read and set without another in between, and
//! rules see a sample a second or less often. A dry run keeps the value its target would have, so that it goes on as the real one would.

mod keeper;
mod levers;
mod metrics;

pub(crate) use metrics::problems;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keeper::Kept;
use levers::Levers;
use tidegate_admin::{RuleBook, RuleView};
use tidegate_config::{Config, Source};
use tidegate_proxy::{Clock, Gateway};
use tidegate_signals::{Follow, Reading, Seen, TellSeen};
use tidegate_telemetry::Telemetry;
use tokio::task::JoinSet;

/// All rules of the process.
pub(crate) struct Rules {
    kept: Mutex<Vec<Kept>>,
    levers: Levers,
    telemetry: Arc<Telemetry>,
    clock: Clock,
}

/// The rules and the tasks that feed them. Dropping it stops the tasks.
pub(crate) struct Running {
    rules: Arc<Rules>,
    follow: Option<Follow>,
    own: JoinSet<()>,
}

impl Running {
    /// Starts the rules of `config` on the current tokio runtime.
    pub(crate) fn start(config: &Config, gateway: &Gateway, telemetry: &Arc<Telemetry>) -> Self {
        let levers = Levers { governor: Arc::clone(gateway.governor()), current: gateway.current().clone() };
        let (telemetry, clock) = (Arc::clone(telemetry), gateway.clock());
        let rules = Arc::new(Rules { kept: Mutex::default(), levers, telemetry, clock });
        let mut running = Self { rules, follow: None, own: JoinSet::new() };
        running.resume(config);
        running
    }

    /// What the admin API is given.
    pub(crate) fn book(&self) -> Arc<dyn RuleBook> {
        Arc::clone(&self.rules) as _
    }

    /// Goes on with the rules of another config, once it is in force: one that is what it was goes on from where it is.
    pub(crate) fn resume(&mut self, config: &Config) {
        let mut old = std::mem::take(&mut *self.rules.lock());
        let kept = config.rules.iter().map(|rule| {
            let same = old.iter().position(|k| k.settings == *rule);
            same.map_or_else(|| Kept::new(rule), |at| old.swap_remove(at))
        });
        *self.rules.lock() = kept.collect();
        let (told, clock) = (Arc::clone(&self.rules), self.rules.clock);
        let tell: TellSeen = Arc::new(move |place, seen| told.on_seen(place, seen));
        let time: tidegate_signals::Clock = Arc::new(move || clock.now());
        let sources = config.rules.iter().map(|r| &r.when.source);
        self.follow = Some(tidegate_signals::follow(sources, &tell, &time, u64::from(std::process::id())));
        self.own.spawn(Arc::clone(&self.rules).look_at_own(config));
    }

    /// Stops the tasks: afterwards no rule acts.
    pub(crate) async fn stop(&mut self) {
        self.own.shutdown().await;
        if let Some(follow) = self.follow.take() {
            follow.stop().await;
        }
    }
}

impl Rules {
    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        // What a panic elsewhere left is a rule between two samples, which is whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was seen of the metric of the `place`-th rule.
    fn on_seen(&self, place: usize, seen: Seen) {
        let mut all = self.lock();
        let Some(kept) = all.get_mut(place) else { return };
        let now = self.clock.now();
        let value = match seen {
            Seen::Value(value) => {
                kept.note(None);
                Some(value)
            }
            Seen::Missing(why) => {
                kept.note(Some(why));
                None
            }
            // Nothing was seen: what was seen last counts until it is stale.
            Seen::Failed(why) => return kept.note(Some(why)),
        };
        let present = kept.present(&self.levers);
        if let Some(change) = kept.rule.on_sample(now, value, present.unwrap_or(f64::NAN)) {
            kept.carry_out(place, change, &self.levers, &self.telemetry);
        }
    }

    /// Looks at Tidegate's own metrics, each second: one page for all rules.
    fn look_at_own(self: Arc<Self>, config: &Config) -> impl Future<Output = ()> + use<> {
        let own = config.rules.iter().enumerate().filter_map(|(place, rule)| match &rule.when.source {
            Source::Own { metric, window } => Some((place, Reading::new(metric.clone(), *window))),
            Source::Page { .. } | Source::Query(_) => None,
        });
        let mut own: Vec<(usize, Reading)> = own.collect();
        let period =
            config.rules.iter().map(|r| &r.when.source).find(|s| matches!(s, Source::Own { .. })).map(Source::every);
        async move {
            let Some(period) = period else { return };
            let mut every = tokio::time::interval(period);
            every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                every.tick().await;
                let page = tidegate_admin::metrics_page(&self.levers.current.load().pools, &self.telemetry);
                let now = self.clock.now();
                for (place, reading) in &mut own {
                    self.on_seen(*place, reading.on_page(now, &page).into());
                }
            }
        }
    }

    /// Does `what` to the rule called `name`; `false` if there is none.
    fn with(&self, name: &str, what: impl FnOnce(usize, &mut Kept)) -> bool {
        let mut all = self.lock();
        let found = all.iter_mut().enumerate().find(|(_, kept)| kept.rule.config().name == name);
        found.map(|(place, kept)| what(place, kept)).is_some()
    }
}

impl RuleBook for Rules {
    fn rules(&self) -> Vec<RuleView> {
        let now = self.clock.now();
        self.lock().iter().map(|kept| kept.view(now, &self.levers)).collect()
    }

    fn set_enabled(&self, name: &str, enabled: bool) -> bool {
        self.with(name, |_, kept| kept.rule.set_enabled(enabled))
    }

    fn revert(&self, name: &str) -> bool {
        let now = self.clock.now();
        self.with(name, |place, kept| {
            let present = kept.present(&self.levers).unwrap_or(f64::NAN);
            if let Some(change) = kept.rule.on_operator(now, present) {
                kept.carry_out(place, change, &self.levers, &self.telemetry);
            }
        })
    }
}
