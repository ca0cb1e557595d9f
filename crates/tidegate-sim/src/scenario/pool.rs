//! `probes`, `pool` and `policies`: what gateways know and how they decide.

use std::time::Duration;

use tidegate_config::{Absent, Key, Kind, Policy, Reader, Section, Switch, Table, WarmUp};
use tidegate_core::balance::registry::default_policy;
use tidegate_core::breaker::off;
use tidegate_core::descriptor::Params;
use tidegate_core::pool::config::{LoadConfig, PoolConfig, RetryConfig};
use tidegate_core::prefix::PrefixConfig;

use crate::kernel::setup::Probes;

impl Section for Probes {
    const TABLE: &'static Table = &Table {
        place: "probes",
        summary: "Status pages that gateways read: every endpoint reports a load in 0..1.",
        keys: &[
            Key {
                name: "interval",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("1s"),
                summary: "Time between two readings.",
                example: "100ms",
            },
            Key {
                name: "delay",
                kind: Kind::Duration { min: 0.0, max: 3600.0, word: None },
                absent: Absent::Default("0s"),
                summary: "Time from the sample at the endpoint to its arrival at the gateway.",
                example: "200ms",
            },
            Key {
                name: "max_age",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Means("three intervals and the delay"),
                summary: "Age from which a report counts for nothing.",
                example: "3s",
            },
            Key {
                name: "per_request",
                kind: Kind::Fraction { min: 0.000_001, max: 1.0, word: None },
                absent: Absent::Means("1/max_in_flight, else 0.01"),
                summary: "Load that one request adds, counted until the next report.",
                example: "0.02",
            },
            Key {
                name: "max_load",
                kind: Kind::Fraction { min: 0.01, max: 1.0, word: Some("off") },
                absent: Absent::Default("0.9"),
                summary: "Highest reported load at which an endpoint is used; textbook rows have no such gate.",
                example: "0.9",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let (interval, delay) = (r.duration("interval"), r.duration("delay"));
        Self {
            interval,
            delay,
            max_age: r.duration_or_none("max_age").unwrap_or(interval * 3 + delay),
            per_request: r.number_or_none("per_request"),
            queued_tokens: true,
            max_load: r.number_or_none("max_load"),
        }
    }
}

/// The breaker of a comparison of policies: the default one lowers the weight of slow engines, which is what policies are compared for.
const BREAKER: &str = "classic";

/// Settings of the pool besides its policy.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    retry: RetryConfig,
    breaker: Params,
    cool_down: Duration,
    warm_up: WarmUp,
    prefix: Option<PrefixConfig>,
}

/// What gateways remember of prompts.
#[derive(Clone, Debug)]
struct Remembered(PrefixConfig);

impl Section for Remembered {
    const TABLE: &'static Table = &Table {
        place: "pool.prefix_cache",
        summary: "What each gateway remembers of the prompts it sent; it goes by the blocks that a trace tells.",
        keys: &[
            Key {
                name: "tokens",
                kind: Kind::Integer { min: 1000, max: 1_000_000_000, word: None },
                absent: Absent::Default("430_000"),
                summary: "Tokens that an endpoint's KV memory is taken to hold.",
                example: "430_000",
            },
            Key {
                name: "memory",
                kind: Kind::Size { min: 64 << 10, max: 16 << 30 },
                absent: Absent::Default("64MiB"),
                summary: "Bound on what is remembered.",
                example: "64MiB",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let memory = usize::try_from(r.size("memory")).unwrap_or(usize::MAX);
        Self(PrefixConfig { tokens: r.integer("tokens"), memory })
    }
}

impl Section for PoolSettings {
    const TABLE: &'static Table = &Table {
        place: "pool",
        summary: "Settings of the pool besides its policy; what is not here is as in a config file without it.",
        keys: &[
            Key {
                name: "max_attempts",
                kind: Kind::Integer { min: 1, max: 10, word: None },
                absent: Absent::Default("3"),
                summary: "Dispatches of one request, the first included.",
                example: "2",
            },
            Key {
                name: "breaker",
                kind: Kind::Breaker,
                absent: Absent::Default(BREAKER),
                summary: "What keeps traffic from an endpoint that fails, as in a config file; `classic` as `adaptive` would come to the aid of slow policies.",
                example: "off",
            },
            Key {
                name: "cool_down",
                kind: Kind::Duration { min: 0.0, max: 300.0, word: None },
                absent: Absent::Default("500ms"),
                summary: "Time an endpoint is left alone after a reject; doubles while it goes on.",
                example: "500ms",
            },
            WarmUp::KEY,
            Key {
                name: "prefix_cache",
                kind: Kind::TableOr(Remembered::TABLE, "off"),
                absent: Absent::Means(
                    "the defaults of its keys, as a gateway is set up whose prompts have beginnings in common",
                ),
                summary: "What gateways remember of prompts; off: nothing, as in a config file without it.",
                example: "off",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let max_attempts = u32::try_from(r.integer("max_attempts")).unwrap_or(1);
        Self {
            retry: RetryConfig { max_attempts, ..RetryConfig::default() },
            breaker: r.breaker(BREAKER).params,
            cool_down: r.duration("cool_down"),
            warm_up: WarmUp::read(r),
            prefix: match r.switch::<Remembered>("prefix_cache") {
                Switch::On(Remembered(bounds)) => Some(bounds),
                Switch::Off => None,
                Switch::Absent => Some(PrefixConfig::default()),
            },
        }
    }
}

/// One row of the comparison.
#[derive(Clone, Debug)]
pub struct Contender {
    params: Params,
    name: Option<String>,
    textbook: bool,
}

impl Section for Contender {
    const TABLE: &'static Table = &Table {
        place: "policies[]",
        summary: "A policy that is compared.",
        keys: &[
            Key {
                name: "policy",
                kind: Kind::Policy,
                absent: Absent::Required,
                summary: "Its name, or a mapping with its name and parameters.",
                example: "{ name: fastest_recovery, form: peak }",
            },
            Key {
                name: "textbook",
                kind: Kind::Bool,
                absent: Absent::Default("false"),
                summary: "The bare published rule: no gate by load, no breaker, no retry, no cool-down.",
                example: "true",
            },
            Key {
                name: "name",
                kind: Kind::Name,
                absent: Absent::Means("the policy's name, and its form where one is given"),
                summary: "Label of the row.",
                example: "gated",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let Policy { params, .. } = r
            .policy(default_policy().name)
            .unwrap_or_else(|| Policy { params: Params::defaults(default_policy()), key: None });
        Self { params, name: r.text("name"), textbook: r.bool("textbook") }
    }
}

impl Contender {
    /// A policy with its defaults.
    pub fn of(params: Params) -> Self {
        Self { params, name: None, textbook: false }
    }

    /// The label of the row.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.params.label())
    }

    /// The pool it decides for.
    pub fn pool(&self, settings: &PoolSettings, probes: Option<&Probes>, replicas: u32) -> PoolConfig {
        let mut cfg = PoolConfig::new(self.params.clone());
        cfg.load = probes.map(|p| LoadConfig { max_age: p.max_age, per_request: p.per_request, by_answers: false });
        cfg.max_load = probes.and_then(|p| p.max_load);
        cfg.replicas = f64::from(replicas);
        cfg.retry = settings.retry;
        cfg.cool_down = settings.cool_down;
        cfg.breaker = settings.breaker.clone();
        cfg.warm_up = settings.warm_up.core();
        cfg.prefix = settings.prefix;
        if self.textbook {
            cfg.breaker = Params::defaults(&off::DESCRIPTOR);
            (cfg.max_load, cfg.cool_down, cfg.retry.max_attempts) = (None, Duration::ZERO, 1);
        }
        cfg
    }
}
