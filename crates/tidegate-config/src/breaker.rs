//! A pool's breaker: a bare name, or a mapping with `name` and the parameters its core descriptor lists; or `outlier`, the words that
//! Envoy and Istio have for the classic one.

use crate::health::{Check, Health};
use crate::key::{Absent, Key, Kind, Table};
use crate::policy::{Registered, read_registered};
use crate::reader::{Reader, Section};
use crate::units::show_seconds;
use tidegate_core::breaker::{classic, registry};
use tidegate_core::descriptor::{Params, Value};

/// The breaker of a pool that names none.
pub(crate) const DEFAULT_BREAKER: &str = "adaptive";

/// A breaker with its parameters.
#[derive(Clone, Debug)]
pub struct Breaker {
    /// The descriptor and what was set.
    pub params: Params,
    /// What probes ask for, where that is said; else it is the path of the pool's HTTP checks.
    pub health_path: Option<String>,
}

/// What the config knows of breakers beside their descriptors.
pub(crate) const BREAKERS: Registered = Registered {
    key: "breaker",
    kind: Kind::Breaker,
    example: DEFAULT_BREAKER,
    explained_by: "`tidegate policies --breakers`",
};

impl Breaker {
    fn of(params: Params) -> Self {
        Self { params, health_path: None }
    }

    /// What probes ask for after they connected, in a pool with these checks; `None` connects only.
    pub fn probe_path<'a>(&'a self, health: Option<&'a Health>) -> Option<&'a str> {
        let checked = match health.map(|h| &h.check) {
            Some(Check::Http { path, .. }) => Some(path.as_str()),
            Some(Check::Tcp) | None => None,
        };
        self.health_path.as_deref().or(checked)
    }
}

/// Reads the keys `breaker` and `outlier`, one of which may be set.
pub(crate) fn read_either(r: &mut Reader<'_, '_>) -> Breaker {
    let outlier: Option<Outlier> = r.table("outlier");
    if outlier.is_some() && r.is_set("breaker") {
        let found = "outlier beside breaker: both say how endpoints go out".to_owned();
        let hint = "remove one of the two; `breaker` can be told more".to_owned();
        r.contradiction("outlier", found, "one of outlier and breaker", hint);
    }
    let breaker = read(r, DEFAULT_BREAKER);
    outlier.map_or(breaker, |outlier| Breaker::of(outlier.params()))
}

/// Reads the key `breaker`.
pub(crate) fn read(r: &mut Reader<'_, '_>, default: &str) -> Breaker {
    let Some(read) = read_registered(r, &BREAKERS, registry::all(), default) else {
        // The stand-in for a breaker that could not be read; a config with it is never returned.
        return Breaker::of(Params::defaults(registry::default_breaker()));
    };
    let (base, max) = (read.params.seconds("cool_down"), read.params.seconds("max_cool_down"));
    let set = |name: &str| read.params.explicit().iter().any(|(n, _)| *n == name);
    if let (Some(base), Some(max)) = (base, max)
        && base > max
        && set("max_cool_down")
        && r.all_good(&["breaker"])
    {
        r.contradiction(
            "breaker",
            format!("cool_down {}, longer than max_cool_down ({})", show_seconds(base), show_seconds(max)),
            "cool_down at most max_cool_down",
            "lower cool_down or raise max_cool_down".to_owned(),
        );
    }
    Breaker { params: read.params, health_path: read.path }
}

/// The `outlier` table: the classic breaker in the words of Envoy and Istio.
pub(crate) struct Outlier {
    consecutive_5xx: u64,
    interval_s: f64,
    base_ejection_time_s: f64,
    max_ejection_percent: f64,
}

impl Outlier {
    /// The classic breaker that does the same.
    fn params(&self) -> Params {
        let mut params = Params::defaults(&classic::DESCRIPTOR);
        let all = [
            ("consecutive_errors", Value::Integer(self.consecutive_5xx)),
            ("cool_down", Value::Duration(self.base_ejection_time_s)),
            ("max_cool_down", Value::Duration(self.base_ejection_time_s.max(300.0))),
            ("forgive_after", Value::Duration(self.interval_s)),
            ("max_ejected", Value::Float(self.max_ejection_percent)),
        ];
        for (name, value) in all {
            // The ranges below lie within those of the parameters; a test sets each to both ends.
            let _ = params.set(name, value);
        }
        params
    }
}

impl Section for Outlier {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.outlier",
        summary: "The classic breaker, in the words of Envoy and Istio; an alias for `breaker: { name: classic }`.",
        keys: &[
            Key {
                name: "consecutive_5xx",
                kind: Kind::Integer { min: 0, max: 10_000, word: None },
                absent: Absent::Default("5"),
                summary: "Errors in a row that eject; 0 switches it off. As `consecutive_errors`.",
                example: "5",
            },
            Key {
                name: "interval",
                kind: Kind::Duration { min: 0.001, max: 86_400.0, word: None },
                absent: Absent::Default("10s"),
                summary: "Time in use after which one doubling of the ejection time is forgotten. As `forgive_after`.",
                example: "10s",
            },
            Key {
                name: "base_ejection_time",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("30s"),
                summary: "First ejection time; doubles with every failed trial, up to 5m. As `cool_down`.",
                example: "30s",
            },
            Key {
                name: "max_ejection_percent",
                kind: Kind::Integer { min: 0, max: 100, word: None },
                absent: Absent::Default("10"),
                summary: "Most endpoints ejected at once, in percent: none of three at 10. As `max_ejected`.",
                example: "10",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self {
            consecutive_5xx: r.integer("consecutive_5xx"),
            interval_s: r.duration("interval").as_secs_f64(),
            base_ejection_time_s: r.duration("base_ejection_time").as_secs_f64(),
            max_ejection_percent: r.integer("max_ejection_percent") as f64 / 100.0,
        }
    }
}
