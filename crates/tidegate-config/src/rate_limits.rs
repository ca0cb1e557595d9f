//! Limits on rates: plain ones, and one rate shared by a hierarchy.

use crate::key::{Absent, Key, Kind, Table};
use crate::rate::{Rate, rate};
use crate::reader::{Reader, Section};
use std::time::Duration;
use tidegate_core::limit::limits::config::{LimitConfig, NamedShare, RateConfig, RuleConfig, SharesConfig};
use tidegate_core::limit::tree::Share;
use tidegate_core::limit::{Quantity, Scope};

/// One of `rate_limits`.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimit {
    rule: RuleConfig,
    period: Duration,
    queue_wait: Option<Duration>,
}

impl RateLimit {
    /// What core is told.
    pub fn core(&self) -> &RuleConfig {
        &self.rule
    }

    /// What core is told of a limit of one pool's own.
    pub fn core_for(&self, pool: &str) -> RuleConfig {
        RuleConfig { name: format!("{pool}.{}", self.rule.name), only: Some(pool.to_owned()), ..self.rule.clone() }
    }

    /// The time in which the file writes its amount.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Of shares: how long a request waits at the head of its tenant's line instead of being refused.
    pub fn queue_wait(&self) -> Option<Duration> {
        self.queue_wait
    }
}

/// Words for whose the limit is.
const PER: &[&str] = &["global", "tenant", "model", "route"];
/// Words for the levels of shares, from the top.
const LEVELS: &[&str] = &["tenant", "model", "route", "tenant/model", "tenant/route", "tenant/model/route"];

/// The scope of a word.
pub(crate) fn scope(word: &str) -> Scope {
    Scope::ALL.into_iter().find(|s| s.name() == word).unwrap_or(Scope::Global)
}

/// An amount of its own for a name.
struct Override {
    amount: f64,
}

impl Section for Override {
    const TABLE: &'static Table = &Table {
        place: "rate_limits[].overrides.NAME",
        summary: "The amount of one tenant, model or route.",
        keys: &[Key {
            name: "amount",
            kind: Kind::Number { min: 0.001, max: 1e15 },
            absent: Absent::Required,
            summary: "In place of the limit's amount, of the same quantity per the same time.",
            example: "50_000",
        }],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { amount: r.number("amount") }
    }
}

/// The share of a name, with those of the next level below it. One type per level, as a table cannot contain itself.
struct Node<const LEVEL: usize>(NamedShare, Vec<Rate>);

const ASSURED: Key = Key {
    name: "assured",
    kind: Kind::Rate,
    absent: Absent::Means("nothing is assured"),
    summary: "What it gets whenever it asks.",
    example: "500 requests/s",
};
const WEIGHT: Key = Key {
    name: "weight",
    kind: Kind::Number { min: 0.0, max: 1e9 },
    absent: Absent::Means("1; as much as is assured where no name beside it, nor `others`, has one"),
    summary: "Its part of what others leave, against theirs; 0 never borrows.",
    example: "5",
};
const CEILING: Key = Key {
    name: "ceiling",
    kind: Kind::Rate,
    absent: Absent::Means("no ceiling but the limit"),
    summary: "What it never exceeds, whatever is free.",
    example: "800 requests/s",
};
const fn children_key(of: &'static Table) -> Key {
    Key {
        name: "children",
        kind: Kind::Named(of),
        absent: Absent::Means("all names of the next level alike"),
        summary: "Shares of the next level, of what this one gets.",
        example: "{ llama-3: { assured: 100 requests/s } }",
    }
}

fn share(r: &mut Reader<'_, '_>, rates: &mut Vec<Rate>) -> Share {
    let assured = r.value("assured", rate);
    let ceiling = r.value("ceiling", rate);
    let weight = r.number_or_none("weight");
    rates.extend(assured);
    rates.extend(ceiling);
    Share { assured: assured.map_or(0.0, |a| a.per_second()), weight, ceiling: ceiling.map(|c| c.per_second()) }
}

/// Completes the weights of shares beside each other: a number beside an amount of tokens would be no comparison, so that either all are
/// what was written, or 1, or all are what is assured.
fn complete_weights(children: &mut [NamedShare], others: Option<&mut Share>) {
    let as_assured = children.iter().map(|c| &c.share).chain(others.as_deref()).all(|s| s.weight.is_none());
    for share in children.iter_mut().map(|c| &mut c.share).chain(others) {
        share.weight = share.weight.or(if as_assured && share.assured > 0.0 { None } else { Some(1.0) });
    }
    children.iter_mut().for_each(|c| complete_weights(&mut c.children, None));
}

fn children<const LEVEL: usize>(r: &mut Reader<'_, '_>, rates: &mut Vec<Rate>) -> Vec<NamedShare>
where
    Node<LEVEL>: Section,
{
    let named = r.named::<Node<LEVEL>>("children");
    let of = |(name, Node(share, below)): (String, Node<LEVEL>)| {
        rates.extend(below);
        NamedShare { name, ..share }
    };
    named.into_iter().map(of).collect()
}

impl Section for Node<0> {
    const TABLE: &'static Table = &Table {
        place: "rate_limits[].shares.NAME",
        summary: "The share of a name of the first level.",
        keys: &[ASSURED, WEIGHT, CEILING, children_key(Node::<1>::TABLE)],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let mut rates = Vec::new();
        let share = share(r, &mut rates);
        let children = children::<1>(r, &mut rates);
        Self(NamedShare { name: String::new(), share, children }, rates)
    }
}

impl Section for Node<1> {
    const TABLE: &'static Table = &Table {
        place: "rate_limits[].shares.NAME.children.NAME",
        summary: "The share of a name of the second level.",
        keys: &[ASSURED, WEIGHT, CEILING, children_key(Node::<2>::TABLE)],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let mut rates = Vec::new();
        let share = share(r, &mut rates);
        let children = children::<2>(r, &mut rates);
        Self(NamedShare { name: String::new(), share, children }, rates)
    }
}

impl Section for Node<2> {
    const TABLE: &'static Table = &Table {
        place: "rate_limits[].shares.NAME.children.NAME.children.NAME",
        summary: "The share of a name of the third level.",
        keys: &[ASSURED, WEIGHT, CEILING],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let mut rates = Vec::new();
        let share = share(r, &mut rates);
        Self(NamedShare { name: String::new(), share, children: Vec::new() }, rates)
    }
}

/// The share of every other name.
struct Others(Share, Vec<Rate>);

impl Section for Others {
    const TABLE: &'static Table = &Table {
        place: "rate_limits[].others",
        summary: "The share of each name that has none of its own.",
        keys: &[ASSURED, WEIGHT, CEILING],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let mut rates = Vec::new();
        let share = share(r, &mut rates);
        Self(share, rates)
    }
}

const KEYS: &[Key] = &[
    Key {
        name: "name",
        kind: Kind::Name,
        absent: Absent::Required,
        summary: "What refusals, metrics and rules call it; a reload finds its balances by it.",
        example: "tokens-per-tenant",
    },
    Key {
        name: "limit",
        kind: Kind::Rate,
        absent: Absent::Required,
        summary: "How much; may be used at once unless `burst` says otherwise.",
        example: "10_000 tokens/min",
    },
    Key {
        name: "per",
        kind: Kind::Choice(PER),
        absent: Absent::Default("global"),
        summary: "Whether it is for everybody together or for each tenant, model or route by itself.",
        example: "tenant",
    },
    Key {
        name: "burst",
        kind: Kind::Number { min: 1e-6, max: 1e15 },
        absent: Absent::Means("the amount of one period"),
        summary: "How much may be used at once.",
        example: "2_000",
    },
    Key {
        name: "initial_fill",
        kind: Kind::Fraction { min: 0.0, max: 1.0, word: None },
        absent: Absent::Default("1"),
        summary: "How full it starts, also after a restart.",
        example: "0.5",
    },
    Key {
        name: "max_wait",
        kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
        absent: Absent::Means("what is too much is refused"),
        summary: "Instead of being refused, requests are spaced out (leaky bucket), or wait in line for their tenant's share, up to this long.",
        example: "2s",
    },
    Key {
        name: "overrides",
        kind: Kind::Named(Override::TABLE),
        absent: Absent::Means("the same amount for every name"),
        summary: "Names with an amount of their own.",
        example: "{ acme: { amount: 50_000 } }",
    },
    Key {
        name: "shares",
        kind: Kind::Named(Node::<0>::TABLE),
        absent: Absent::Means("a plain limit"),
        summary: "Makes it one rate that is shared: assured parts are never lent away, what is not asked for is lent by weight.",
        example: "{ acme: { assured: 500 requests/s } }",
    },
    Key {
        name: "levels",
        kind: Kind::Choice(LEVELS),
        absent: Absent::Default("tenant"),
        summary: "What the names of `shares` are, from the top.",
        example: "tenant/model",
    },
    Key {
        name: "others",
        kind: Kind::Table(Others::TABLE),
        absent: Absent::Means("weight 1, nothing assured"),
        summary: "The share of each name that has none of its own.",
        example: "{ assured: 1 requests/s }",
    },
    Key {
        name: "largest",
        kind: Kind::Number { min: 1.0, max: 1e12 },
        absent: Absent::Means("1 for requests, 32_768 for tokens"),
        summary: "Of shares: the most one request is expected to cost. Coarse costs make coarse limits: balances hold half of it.",
        example: "32_768",
    },
    Key {
        name: "max_names",
        kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
        absent: Absent::Default("10_000"),
        summary: "Names that are counted by themselves at once; beyond them they share one bucket.",
        example: "10_000",
    },
];

impl Section for RateLimit {
    const TABLE: &'static Table = &Table {
        place: "rate_limits[]",
        summary: "A limit on a rate. Every one must admit a request, and a refusal takes nothing from any.",
        keys: KEYS,
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let name = r.text("name").unwrap_or_default();
        r.mark("rate limit", "name", name.clone());
        let limit = r.value("limit", rate).unwrap_or(Rate {
            amount: 1.0,
            quantity: Quantity::Requests,
            period: Duration::from_secs(1),
        });
        let is_shared = r.is_set("shares");
        let plain = plain(r, &limit);
        let shared = shared(r, &limit);
        check_kind(r, is_shared);
        match is_shared {
            true if shared.levels.contains(&Scope::Tenant) => r.mark("per tenant", "shares", String::new()),
            false if plain.scope == Scope::Tenant => r.mark("per tenant", "per", String::new()),
            _ => {}
        }
        let queue_wait = plain.max_wait.filter(|_| is_shared);
        let limit_config = if is_shared { LimitConfig::Shares(shared) } else { LimitConfig::Rate(plain) };
        let rule = RuleConfig { name, quantity: limit.quantity, limit: limit_config, only: None };
        Self { rule, period: limit.period, queue_wait }
    }
}

fn plain(r: &mut Reader<'_, '_>, limit: &Rate) -> RateConfig {
    let mut cfg = RateConfig::new(scope(r.choice("per")), limit.amount, limit.period);
    cfg.burst = r.number_or_none("burst");
    cfg.initial_fill = r.number("initial_fill");
    cfg.max_wait = r.duration_or_none("max_wait");
    cfg.amounts = r.named::<Override>("overrides").into_iter().map(|(name, o)| (name, o.amount)).collect();
    cfg.max_names = r.count("max_names");
    if cfg.scope == Scope::Global && !cfg.amounts.is_empty() {
        let found = "names in `overrides` of a limit that is for everybody together".to_owned();
        let hint = "for example: `per: tenant`".to_owned();
        r.contradiction("overrides", found, "a limit per tenant, model or route", hint);
    }
    cfg
}

fn shared(r: &mut Reader<'_, '_>, limit: &Rate) -> SharesConfig {
    let mut rates = Vec::new();
    let mut children: Vec<NamedShare> = r
        .named::<Node<0>>("shares")
        .into_iter()
        .map(|(name, Node(share, below))| {
            rates.extend(below);
            NamedShare { name, ..share }
        })
        .collect();
    let levels: Vec<Scope> = r.choice("levels").split('/').map(scope).collect();
    let mut others = r.table::<Others>("others").map(|Others(share, below)| {
        rates.extend(below);
        share
    });
    complete_weights(&mut children, others.as_mut());
    let default = Share { assured: 0.0, weight: Some(1.0), ceiling: None };
    let mut all_others = vec![others.unwrap_or(default)];
    all_others.resize(levels.len(), default);
    let largest = r.number_or_none("largest").unwrap_or(match limit.quantity {
        Quantity::Requests | Quantity::Cost => 1.0,
        _ => 32_768.0,
    });
    check_shares(r, limit, &children, &rates, levels.len());
    SharesConfig {
        rate: limit.per_second(),
        largest_cost: largest,
        levels,
        children,
        others: all_others,
        max_names: r.count("max_names"),
    }
}

/// Keys that belong to one of the two kinds only.
fn check_kind(r: &mut Reader<'_, '_>, is_shared: bool) {
    let (of_other, other) = if is_shared {
        (&["burst", "overrides", "initial_fill", "per"][..], "a plain limit")
    } else {
        (&["levels", "others", "largest"][..], "a limit with `shares`")
    };
    for name in of_other {
        if r.is_set(name) {
            let found = format!("`{name}`, which belongs to {other}");
            let hint = if is_shared { "remove it, or `shares`" } else { "remove it, or add `shares`" };
            r.contradiction(name, found, "keys of one kind of limit", hint.to_owned());
        }
    }
}

/// Shares count what their limit counts, are not deeper than the levels, and are not assured more than there is.
fn check_shares(r: &mut Reader<'_, '_>, limit: &Rate, children: &[NamedShare], rates: &[Rate], levels: usize) {
    if !r.all_good(&["shares", "limit", "levels"]) {
        return;
    }
    if rates.iter().any(|rate| rate.quantity != limit.quantity) {
        let allowed = format!("shares of {}, as the limit counts", limit.quantity.name());
        r.contradiction(
            "shares",
            "a share that counts something else than its limit".to_owned(),
            &allowed,
            String::new(),
        );
    }
    let depth = |c: &NamedShare| 1 + usize::from(!c.children.is_empty());
    if children.iter().any(|c| depth(c) > levels || (levels < 3 && c.children.iter().any(|g| !g.children.is_empty()))) {
        let found = "shares with children below the last of `levels`".to_owned();
        r.contradiction(
            "shares",
            found,
            "one level of `children` per level",
            "for example: `levels: tenant/model`".to_owned(),
        );
    }
    if let Some(c) = children.iter().find_map(ceiling_below) {
        let found = format!("a ceiling for `{}` that is below what it is assured", c.name);
        let hint = format!("raise the ceiling of `{}`, or lower `assured`", c.name);
        r.contradiction("shares", found, "ceilings of at least what is assured", hint);
    }
    if let Some(c) = children.iter().find_map(over_assured) {
        let found = format!("children of `{}` that are assured more in all than it is itself", c.name);
        let hint = format!("raise `assured` of `{}`, or lower theirs", c.name);
        r.contradiction("shares", found, "assured rates that sum to at most their parent's", hint);
    }
    let assured = sum_of_assured(children);
    if assured > limit.per_second() * (1.0 + 1e-9) {
        let found = format!("{assured:.3} {}/s assured in all, of {:.3}", limit.quantity.name(), limit.per_second());
        r.contradiction(
            "shares",
            found,
            "assured rates that sum to at most the limit",
            "lower them, or raise `limit`".to_owned(),
        );
    }
}

/// The first share, here or below, that may never have what it is assured.
fn ceiling_below(share: &NamedShare) -> Option<&NamedShare> {
    if share.share.ceiling.is_some_and(|c| c < share.share.assured) {
        return Some(share);
    }
    share.children.iter().find_map(ceiling_below)
}

/// The first share whose children are assured more than it is.
fn over_assured(share: &NamedShare) -> Option<&NamedShare> {
    if sum_of_assured(&share.children) > share.share.assured * (1.0 + 1e-9) {
        return Some(share);
    }
    share.children.iter().find_map(over_assured)
}

fn sum_of_assured(children: &[NamedShare]) -> f64 {
    children.iter().map(|c| c.share.assured).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_never_compared_with_an_amount_of_tokens() {
        let of = |assured, weight| NamedShare {
            name: String::new(),
            share: Share { assured, weight, ceiling: None },
            children: Vec::new(),
        };
        let complete = |weights: [Option<f64>; 2], others: Option<f64>| {
            let mut children = [of(500.0, weights[0]), of(0.0, weights[1])];
            let mut others = Share { assured: 0.0, weight: others, ceiling: None };
            complete_weights(&mut children, Some(&mut others));
            [children[0].share.weight, children[1].share.weight, others.weight]
        };
        assert_eq!(complete([None, None], None), [None, Some(1.0), Some(1.0)], "as much as is assured");
        assert_eq!(complete([None, Some(3.0)], None), [Some(1.0), Some(3.0), Some(1.0)]);
        assert_eq!(complete([None, None], Some(0.1)), [Some(1.0), Some(1.0), Some(0.1)]);
    }
}
