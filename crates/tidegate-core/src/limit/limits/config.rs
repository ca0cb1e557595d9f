//! What limits are made of: plain values that a configuration builds.

use crate::limit::concurrency::ConcurrencyConfig;
use crate::limit::gradient::GradientConfig;
use crate::limit::quantity::{Quantity, Scope};
use crate::limit::tree::Share;
use crate::time::Duration;
use alloc::string::String;
use alloc::vec::Vec;

/// All limits of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitsConfig {
    /// Rates and shares. All must admit a request.
    pub rules: Vec<RuleConfig>,
    /// Requests in flight. All must admit a request.
    pub concurrency: Vec<ConcurrencyRuleConfig>,
}

/// One limit on a rate.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleConfig {
    /// Its name, unique among rules: what a refusal, metrics and the admin API call it, and by which a reload finds it again.
    pub name: String,
    /// What it counts.
    pub quantity: Quantity,
    /// How.
    pub limit: LimitConfig,
    /// The only route whose requests it counts; absent: all.
    pub only: Option<String>,
}

/// A plain limit, or shares of one.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitConfig {
    /// So much per time, for each name of a scope by itself.
    Rate(RateConfig),
    /// One rate shared by a tree.
    Shares(SharesConfig),
}

/// `10_000 tokens/min`, for each name of a scope.
#[derive(Clone, Debug, PartialEq)]
pub struct RateConfig {
    /// For whom: everybody together, or each tenant, model or route by itself.
    pub scope: Scope,
    /// Units of the quantity per `period` (above 0).
    pub amount: f64,
    /// The period of `amount` (above 0).
    pub period: Duration,
    /// Units that may be used at once; absent: `amount`, one period's worth.
    pub burst: Option<f64>,
    /// How full a bucket starts, also after a restart (0..1).
    pub initial_fill: f64,
    /// Present: requests are not refused but spaced out, and told to wait up to this long (leaky bucket; `burst` is then 1 where absent).
    pub max_wait: Option<Duration>,
    /// Names with an amount of their own.
    pub amounts: Vec<(String, f64)>,
    /// Names counted by themselves at once; beyond it they share one bucket.
    pub max_names: usize,
}

impl RateConfig {
    /// The same amount for each name of `scope`, a burst of one period, full at the start.
    pub fn new(scope: Scope, amount: f64, period: Duration) -> Self {
        Self {
            scope,
            amount,
            period,
            burst: None,
            initial_fill: 1.0,
            max_wait: None,
            amounts: Vec::new(),
            max_names: DEFAULT_MAX_NAMES,
        }
    }
}

/// Names a rule counts by themselves where nothing else is said.
pub const DEFAULT_MAX_NAMES: usize = 10_000;

/// One rate and who gets how much of it.
#[derive(Clone, Debug, PartialEq)]
pub struct SharesConfig {
    /// Units per second, all together.
    pub rate: f64,
    /// The most one request usually asks, in units (1 for requests). Coarse costs make coarse limits: every name with an assured rate holds
    /// half of it. Larger requests are admitted up to twice this, or 100 ms of the rate, beyond it.
    pub largest_cost: f64,
    /// What the levels below the root are, from the top: at most 8, for instance tenant, then model.
    pub levels: Vec<Scope>,
    /// Names of the first level with a share of their own, and below them.
    pub children: Vec<NamedShare>,
    /// The share of any other name, one per level.
    pub others: Vec<Share>,
    /// Names without a share of their own that are counted by themselves at once; beyond it they share one place per parent.
    pub max_names: usize,
}

/// The share of a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedShare {
    /// The name.
    pub name: String,
    /// What it gets.
    pub share: Share,
    /// Names of the next level below it.
    pub children: Vec<NamedShare>,
}

/// One limit on requests in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct ConcurrencyRuleConfig {
    /// Its name, unique among these.
    pub name: String,
    /// Whose names the groups are.
    pub scope: Scope,
    /// Total and shares.
    pub seats: ConcurrencyConfig,
    /// Lets the total follow response times; absent: it stands still.
    pub adaptive: Option<GradientConfig>,
}
