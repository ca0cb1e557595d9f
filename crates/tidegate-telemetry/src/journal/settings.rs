//! The first line of a journal: what a pool was told once.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidegate_core::balance::registry;
use tidegate_core::breaker;
use tidegate_core::descriptor::{Descriptor, ParamKind, Params, Value};
use tidegate_core::limit::gradient::GradientConfig;
use tidegate_core::pool::config::{AffinityConfig, LoadConfig, Panic, PoolConfig, RetryConfig, WarmUpStep};
use tidegate_core::prefix::PrefixConfig;
use tidegate_core::queue::{ClassConfig, QueueConfig};

/// Settings, seed and origin of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Version of the program that wrote the journal.
    pub tidegate: String,
    /// The pool's name.
    pub pool: String,
    /// The seed of its draws.
    pub seed: u64,
    /// Whether its endpoints are health-checked.
    pub checked: bool,
    policy: Named,
    breaker: Named,
    max_load: Option<f64>,
    panic_threshold: f64,
    panic_refuses: bool,
    unhealthy_after: u32,
    healthy_after: u32,
    warm_up: Option<Vec<(Duration, f64)>>,
    affinity: Option<(Duration, usize)>,
    load: Option<(Duration, Option<f64>)>,
    #[serde(default)]
    load_by_answers: bool,
    retry: (u32, f64),
    cool_down: Duration,
    replicas: f64,
    #[serde(default)]
    hedge: Option<f64>,
    #[serde(default)]
    max_in_flight: Option<u32>,
    #[serde(default)]
    adaptive: Option<Adaptive>,
    #[serde(default)]
    queue: Option<Line>,
    #[serde(default)]
    learn_replicas: bool,
    /// Tokens of an endpoint, bytes of the index.
    #[serde(default)]
    prefix: Option<(u64, usize)>,
    #[serde(default)]
    refuse_late: bool,
    #[serde(default)]
    adapter_load: Duration,
    #[serde(default)]
    asks_models: bool,
}

/// A limit that follows response times: initial, least, most, probe limit, tolerance, window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Adaptive([f64; 5], Duration);

impl Adaptive {
    pub(super) fn of(g: GradientConfig) -> Self {
        Self([g.initial, g.min_limit, g.max_limit, g.probe_limit, g.tolerance], g.window)
    }

    pub(super) fn core(self) -> GradientConfig {
        let Self([initial, min_limit, max_limit, probe_limit, tolerance], window) = self;
        GradientConfig { initial, min_limit, max_limit, probe_limit, tolerance, window }
    }
}

/// A queue: most that wait, most of a tenant, longest wait, classes with their shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line(usize, usize, Duration, Vec<(String, f64)>);

impl Line {
    fn of(q: &QueueConfig) -> Self {
        let classes = q.classes.iter().map(|c| (c.name.clone(), c.share)).collect();
        Self(q.max_waiting, q.max_per_tenant, q.max_wait, classes)
    }

    fn core(&self) -> QueueConfig {
        let Self(max_waiting, max_per_tenant, max_wait, classes) = self.clone();
        let classes = classes.into_iter().map(|(name, share)| ClassConfig { name, share }).collect();
        QueueConfig { max_waiting, max_per_tenant, max_wait, classes }
    }
}

/// The name of a policy or breaker, and what was set of its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Named(String, Vec<(String, Told)>);

impl Named {
    fn of(params: &Params) -> Self {
        let set = params.explicit().iter().map(|(n, v)| ((*n).to_owned(), Told::of(*v))).collect();
        Self(params.descriptor().name.to_owned(), set)
    }

    fn params(&self, what: &str, find: impl Fn(&str) -> Option<&'static Descriptor>) -> Result<Params, String> {
        let Self(name, set) = self;
        let descriptor = find(name).ok_or_else(|| format!("there is no {what} {name}"))?;
        let mut params = Params::defaults(descriptor);
        for (param, told) in set {
            let kind = descriptor.param(param).map(|p| p.kind);
            let value = told.value(kind).ok_or_else(|| format!("{name}.{param} has another type"))?;
            params.set(param, value).map_err(|e| format!("{name}.{param}: {e:?}"))?;
        }
        Ok(params)
    }
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Float(f64),
    Integer(u64),
    Duration(f64),
    Off,
    Choice(String),
    Bool(bool),
}

impl Settings {
    /// Takes down the settings of a pool.
    pub fn of(name: &str, cfg: &PoolConfig, checked: bool, seed: u64) -> Self {
        Self {
            tidegate: env!("CARGO_PKG_VERSION").to_owned(),
            pool: name.to_owned(),
            seed,
            checked,
            policy: Named::of(&cfg.policy),
            breaker: Named::of(&cfg.breaker),
            max_load: cfg.max_load,
            panic_threshold: cfg.panic_threshold,
            panic_refuses: cfg.panic == Panic::Refuse,
            unhealthy_after: cfg.unhealthy_after,
            healthy_after: cfg.healthy_after,
            warm_up: cfg.warm_up.as_ref().map(|steps| steps.iter().map(|s| (s.at, s.share)).collect()),
            affinity: cfg.affinity.map(|a| (a.hold, a.max_keys)),
            load: cfg.load.map(|l| (l.max_age, l.per_request)),
            load_by_answers: cfg.load.is_some_and(|l| l.by_answers),
            retry: (cfg.retry.max_attempts, cfg.retry.budget),
            cool_down: cfg.cool_down,
            replicas: cfg.replicas,
            hedge: cfg.retry.hedge,
            max_in_flight: cfg.max_in_flight,
            adaptive: cfg.adaptive.map(Adaptive::of),
            queue: cfg.queue.as_ref().map(Line::of),
            learn_replicas: cfg.learn_replicas,
            prefix: cfg.prefix.map(|p| (p.tokens, p.memory)),
            refuse_late: cfg.refuse_late,
            adapter_load: cfg.adapter_load,
            asks_models: cfg.asks_models,
        }
    }

    /// The settings as core takes them; `Err` names a policy, breaker or parameter that this version does not have.
    pub fn core(&self) -> Result<PoolConfig, String> {
        let steps = |steps: &Vec<(Duration, f64)>| steps.iter().map(|&(at, share)| WarmUpStep { at, share }).collect();
        Ok(PoolConfig {
            max_load: self.max_load,
            panic_threshold: self.panic_threshold,
            panic: if self.panic_refuses { Panic::Refuse } else { Panic::UseAll },
            unhealthy_after: self.unhealthy_after,
            healthy_after: self.healthy_after,
            warm_up: self.warm_up.as_ref().map(steps),
            breaker: self.breaker.params("breaker", breaker::registry::find)?,
            affinity: self.affinity.map(|(hold, max_keys)| AffinityConfig { hold, max_keys }),
            load: self.load.map(|(max_age, per_request)| LoadConfig {
                max_age,
                per_request,
                by_answers: self.load_by_answers,
            }),
            retry: RetryConfig { max_attempts: self.retry.0, budget: self.retry.1, hedge: self.hedge },
            cool_down: self.cool_down,
            replicas: self.replicas,
            max_in_flight: self.max_in_flight,
            adaptive: self.adaptive.map(Adaptive::core),
            queue: self.queue.as_ref().map(Line::core),
            learn_replicas: self.learn_replicas,
            prefix: self.prefix.map(|(tokens, memory)| PrefixConfig { tokens, memory }),
            refuse_late: self.refuse_late,
            adapter_load: self.adapter_load,
            asks_models: self.asks_models,
            // Every field by name: what a journal leaves out is decided otherwise when it is taken again.
            policy: self.policy.params("policy", registry::find)?,
        })
    }
}

impl Told {
    fn of(value: Value) -> Self {
        match value {
            Value::Float(v) => Self::Float(v),
            Value::Integer(v) => Self::Integer(v),
            Value::Duration(v) => Self::Duration(v),
            Value::Off => Self::Off,
            Value::Choice(w) => Self::Choice(w.to_owned()),
            Value::Bool(b) => Self::Bool(b),
        }
    }

    fn value(&self, kind: Option<ParamKind>) -> Option<Value> {
        Some(match (self, kind) {
            (Self::Float(v), _) => Value::Float(*v),
            (Self::Integer(v), _) => Value::Integer(*v),
            (Self::Duration(v), _) => Value::Duration(*v),
            (Self::Off, _) => Value::Off,
            (Self::Bool(b), _) => Value::Bool(*b),
            (Self::Choice(w), Some(ParamKind::Choice(words))) => Value::Choice(words.iter().find(|k| *k == w)?),
            (Self::Choice(_), _) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_file() {
        let mut params = Params::defaults(registry::find("fastest_recovery").unwrap());
        params.set("form", Value::Choice("peak")).unwrap();
        params.set("window", Value::Duration(15.5)).unwrap();
        let mut cfg = PoolConfig::new(params);
        cfg.affinity = Some(AffinityConfig::default());
        cfg.load = Some(LoadConfig { max_age: Duration::from_millis(1500), per_request: Some(0.1), by_answers: true });
        cfg.warm_up = Some(WarmUpStep::defaults());
        cfg.prefix = Some(PrefixConfig { tokens: 7, memory: 9 });
        (cfg.refuse_late, cfg.learn_replicas) = (true, false);
        (cfg.adapter_load, cfg.asks_models) = (Duration::from_millis(300), true);
        cfg.adaptive = Some(GradientConfig::default());
        cfg.queue = Some(QueueConfig { max_waiting: 7, ..QueueConfig::default() });
        cfg.breaker = Params::defaults(&breaker::classic::DESCRIPTOR);
        cfg.breaker.set("error_rate", Value::Float(0.3)).unwrap();
        let settings = Settings::of("chat", &cfg, true, u64::MAX);
        let text = serde_json::to_string(&settings).unwrap();
        let read: Settings = serde_json::from_str(&text).unwrap();
        assert_eq!(read, settings);
        assert_eq!(read.core().unwrap(), cfg);
        assert_eq!(Settings::of("chat", &read.core().unwrap(), true, u64::MAX), settings);
    }
}
