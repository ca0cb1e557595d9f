//! The rules that are compared.

use tidegate_core::balance::registry::{self, default_policy};
use tidegate_core::breaker::off;
use tidegate_core::descriptor::{Params, Value};
use tidegate_core::pool::config::{LoadConfig, PoolConfig};
use tidegate_core::prefix::PrefixConfig;

use super::cells::Place;
use super::settings::RoutingStudy;
use crate::kernel::Kernel;
use crate::rival::Rival;
use crate::tally::Tally;

/// One rule.
pub(super) struct Row {
    pub(super) name: String,
    rule: Rule,
}

#[derive(Clone, Copy)]
enum Rule {
    /// A policy of the registry.
    Ours(&'static str, &'static [(&'static str, Value)]),
    /// A policy of the registry with what each endpoint saturates at as its weight.
    Weighted(&'static str),
    /// As published elsewhere.
    Rival(Rival),
}

/// All of them, the default first.
pub(super) fn rows(study: &RoutingStudy) -> Vec<Row> {
    let ours = |name: &'static str| Row { name: name.into(), rule: Rule::Ours(name, &[]) };
    let named = |name: &str, rule| Row { name: name.into(), rule };
    let mut rows = vec![
        ours("adaptive"),
        ours("least_work"),
        ours("random"),
        ours("round_robin"),
        ours("least_connections"),
        named("least_connections, true weights", Rule::Weighted("least_connections")),
        named("peak_ewma", Rule::Ours("peak_ewma", &[])),
        ours("prequal"),
        named("smg cache_aware", Rule::Ours("prefix_affinity", &[])),
    ];
    rows.extend(Rival::ALL.map(|rival| named(rival.name(), Rule::Rival(rival))));
    if let Some(only) = &study.policies {
        rows.retain(|row| only.split('|').any(|word| row.name.contains(word)));
    }
    rows
}

impl Row {
    /// One run of a cell.
    pub(super) fn play(&self, study: &RoutingStudy, place: &Place, seed: u64) -> Tally {
        let (name, set): (&str, &[(&str, Value)]) = match self.rule {
            Rule::Ours(name, set) => (name, set),
            Rule::Weighted(name) => (name, &[]),
            Rule::Rival(_) => ("random", &[]),
        };
        let mut params = Params::defaults(registry::find(name).unwrap_or(default_policy()));
        for &(name, value) in set {
            // In range, as a test that runs every row shows.
            let _ = params.set(name, value);
        }
        let mut cfg = PoolConfig::new(params);
        cfg.load = place.setup.probes.map(|p| LoadConfig { max_age: p.max_age, per_request: None, by_answers: false });
        cfg.max_load = None;
        // No cell has faults: every rule is compared by itself.
        cfg.breaker = Params::defaults(&off::DESCRIPTOR);
        cfg.replicas = 1.0;
        cfg.prefix = Some(PrefixConfig::default());
        cfg.refuse_late = study.refuse_late;
        match self.rule {
            Rule::Ours(..) => Kernel::new(&place.setup, &cfg, seed).run(),
            Rule::Rival(rival) => Kernel::ruled(&place.setup, &cfg, seed, |cfg| rival.picker(cfg)).run(),
            Rule::Weighted(_) => {
                let mut setup = place.setup.clone();
                for (site, &speed) in setup.sites.iter_mut().zip(&place.speeds) {
                    site.weight = speed;
                }
                Kernel::new(&setup, &cfg, seed).run()
            }
        }
    }
}
