//! What a rule may change: whatever can be changed at run time, by the name under which the file configures it.

use crate::concurrency_limits::ConcurrencyLimit;
use crate::nearest::nearest;
use crate::pool::Pool;
use crate::problem::ProblemKind;
use crate::rate_limits::RateLimit;
use crate::walk::{Complaint, Place, Walk};
use tidegate_core::limit::Scope;
use tidegate_core::limit::limits::config::{LimitConfig, NamedShare, RuleConfig};

/// What a rule changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A rate, of a whole limit or of a name of it.
    Rate {
        /// The limit, as core calls it.
        limit: String,
        /// Names from the top; empty: the whole limit.
        path: Vec<String>,
        /// Seconds of the period in which the file writes the rate: a value per period is so many times a value per second.
        period_s: f64,
    },
    /// Requests in flight of a limit over all pools.
    Total {
        /// The limit.
        limit: String,
    },
    /// Requests in flight of a pool that has a bound on them.
    Pool {
        /// Place of the pool in the file.
        pool: usize,
    },
    /// The static weight of an endpoint.
    Weight {
        /// Place of the pool in the file.
        pool: usize,
        /// Place of the endpoint in it.
        endpoint: usize,
    },
}

impl Target {
    /// The least it may be, whatever a rule says: a rate of 0 or a limit of no request would shut everybody out for good.
    pub(crate) fn floor(&self) -> f64 {
        match self {
            Self::Rate { .. } => 1e-3,
            Self::Total { .. } | Self::Pool { .. } => 1.0,
            Self::Weight { .. } => 0.0,
        }
    }

    /// Whether only whole numbers make sense.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::Total { .. } | Self::Pool { .. })
    }
}

/// A target and its configured value, in the unit of the file.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) target: Target,
    pub(crate) configured: f64,
}

/// Everything that can be a target.
pub(crate) struct Targets<'a> {
    pub(crate) rates: &'a [RateLimit],
    pub(crate) concurrency: &'a [ConcurrencyLimit],
    pub(crate) pools: &'a [Pool],
}

impl Targets<'_> {
    /// The target called `text`; `None` once the problem is recorded.
    pub(crate) fn find(&self, walk: &mut Walk<'_>, text: &str, place: &Place) -> Option<Found> {
        if let Some(found) = self.look(text) {
            return Some(found);
        }
        // A key that is missing, or a file that is broken elsewhere, was told already.
        if text.is_empty() {
            return None;
        }
        let names = self.names();
        let adaptive = self.concurrency.iter().find(|c| text == format!("concurrency_limits.{}", c.core().name));
        let hint = match (adaptive, nearest(text, names.iter().map(String::as_str))) {
            (Some(_), _) => "it is adaptive: its total follows response times already".to_owned(),
            (None, Some(name)) => format!("did you mean `{name}`?"),
            (None, None) => names.first().map_or_else(
                || "the file has no limit to change".to_owned(),
                |name| format!("for example: `target: {name}`"),
            ),
        };
        let allowed = "rate_limits.NAME, rate_limits.NAME.TENANT, concurrency_limits.NAME, pools.POOL.rate_limits.NAME, pools.POOL.max_in_flight (where it is set) or pools.POOL.endpoints[N].weight";
        let complaint = Complaint {
            found: format!("`{text}`, which is nothing that can be changed"),
            allowed: allowed.to_owned(),
            hint,
        };
        walk.error(ProblemKind::Contradiction, place, complaint);
        None
    }

    fn look(&self, text: &str) -> Option<Found> {
        if let Some(rest) = text.strip_prefix("rate_limits.") {
            return best(rest, self.rates, |l| l.core().clone());
        }
        if let Some(name) = text.strip_prefix("concurrency_limits.") {
            let limit = self.concurrency.iter().find(|c| c.core().name == name && c.core().adaptive.is_none())?;
            let configured = f64::from(limit.core().seats.total);
            return Some(Found { target: Target::Total { limit: name.to_owned() }, configured });
        }
        let rest = text.strip_prefix("pools.")?;
        self.pools.iter().enumerate().find_map(|(at, pool)| {
            let rest = rest.strip_prefix(pool.name.as_str())?.strip_prefix('.')?;
            if let Some(rest) = rest.strip_prefix("rate_limits.") {
                return best(rest, &pool.rate_limits, |l| l.core_for(&pool.name));
            }
            if rest == "max_in_flight" {
                let configured = f64::from(pool.max_in_flight?);
                return Some(Found { target: Target::Pool { pool: at }, configured });
            }
            let place = rest.strip_prefix("endpoints[")?.strip_suffix("].weight")?;
            let endpoint: usize = place.parse().ok()?;
            let configured = pool.endpoints.get(endpoint)?.weight;
            Some(Found { target: Target::Weight { pool: at, endpoint }, configured })
        })
    }

    /// Every name that is one, tenants only as far as the file names them.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for limit in self.rates {
            add_names(&mut names, &format!("rate_limits.{}", limit.core().name), limit.core());
        }
        let fixed = self.concurrency.iter().filter(|c| c.core().adaptive.is_none());
        names.extend(fixed.map(|c| format!("concurrency_limits.{}", c.core().name)));
        for pool in self.pools {
            for limit in &pool.rate_limits {
                add_names(&mut names, &format!("pools.{}.rate_limits.{}", pool.name, limit.core().name), limit.core());
            }
            names.extend(pool.max_in_flight.map(|_| format!("pools.{}.max_in_flight", pool.name)));
            names.extend((0..pool.endpoints.len()).map(|k| format!("pools.{}.endpoints[{k}].weight", pool.name)));
        }
        names
    }
}

fn add_names(names: &mut Vec<String>, whole: &str, limit: &RuleConfig) {
    names.push(whole.to_owned());
    match &limit.limit {
        LimitConfig::Rate(cfg) => names.extend(cfg.amounts.iter().map(|(name, _)| format!("{whole}.{name}"))),
        LimitConfig::Shares(cfg) => names.extend(cfg.children.iter().map(|c| format!("{whole}.{}", c.name))),
    }
}

/// `NAME` or `NAME.PATH` among limits; the longest name wins, as names may hold dots.
fn best(text: &str, limits: &[RateLimit], core: impl Fn(&RateLimit) -> RuleConfig) -> Option<Found> {
    let rest = |l: &RateLimit| {
        let rest = text.strip_prefix(l.core().name.as_str())?;
        if rest.is_empty() { Some("") } else { rest.strip_prefix('.') }
    };
    let mut found: Vec<(&str, &RateLimit)> = limits.iter().filter_map(|l| Some((rest(l)?, l))).collect();
    found.sort_by_key(|(rest, _)| rest.len());
    found.into_iter().find_map(|(rest, limit)| rate(&core(limit), limit.period().as_secs_f64(), rest))
}

fn rate(limit: &RuleConfig, period_s: f64, rest: &str) -> Option<Found> {
    let (path, configured) = match &limit.limit {
        LimitConfig::Rate(cfg) if rest.is_empty() => (Vec::new(), cfg.amount),
        LimitConfig::Rate(cfg) if cfg.scope != Scope::Global => {
            let own = cfg.amounts.iter().find(|(name, _)| name == rest).map_or(cfg.amount, |(_, amount)| *amount);
            (vec![rest.to_owned()], own)
        }
        LimitConfig::Rate(_) => return None,
        // Core is told of shares in units per second, whatever the file writes them in.
        LimitConfig::Shares(cfg) if rest.is_empty() => (Vec::new(), cfg.rate * period_s),
        LimitConfig::Shares(cfg) => {
            let (path, assured) = share(&cfg.children, rest)?;
            (path, assured * period_s)
        }
    };
    let target = Target::Rate { limit: limit.name.clone(), path, period_s };
    Some(Found { target, configured })
}

/// The path `text` among shares, and what is assured there.
fn share(children: &[NamedShare], text: &str) -> Option<(Vec<String>, f64)> {
    children.iter().find_map(|child| {
        let rest = text.strip_prefix(child.name.as_str())?;
        if rest.is_empty() {
            return Some((vec![child.name.clone()], child.share.assured));
        }
        let (below, assured) = share(&child.children, rest.strip_prefix('.')?)?;
        Some((std::iter::once(child.name.clone()).chain(below).collect(), assured))
    })
}
