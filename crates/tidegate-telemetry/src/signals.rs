//! What the pages of endpoints were found to expose, for people to look at.

use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tidegate_config::{Config, Pool};

/// What was found on one page of an endpoint at the last poll.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SignalFacts {
    /// Which page: its key in `load`.
    pub source: &'static str,
    /// Whose metrics these are, where that is known.
    pub engine: Option<&'static str>,
    /// Signals that the page has.
    pub present: Vec<&'static str>,
    /// Signals that it could have and lacks: they count as not known, never as zero.
    pub missing: Vec<&'static str>,
    /// Models and adapters it says it serves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Why the endpoint gets nothing new by this page, if so.
    pub gate: Option<String>,
    /// Why the last poll told nothing, if so.
    pub trouble: Option<String>,
}

/// The facts of all endpoints, by pool and URL; only those that the config names.
#[derive(Debug, Default)]
pub(crate) struct SignalBoard {
    facts: Mutex<HashMap<(String, String), Vec<SignalFacts>>>,
}

impl SignalBoard {
    pub(crate) fn put(&self, pool: &str, endpoint: &str, facts: SignalFacts) {
        let mut all = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_endpoint = all.entry((pool.to_owned(), endpoint.to_owned())).or_default();
        match of_endpoint.iter_mut().find(|f| f.source == facts.source) {
            Some(known) => *known = facts,
            None => of_endpoint.push(facts),
        }
    }

    pub(crate) fn get(&self, pool: &str, endpoint: &str) -> Vec<SignalFacts> {
        let all = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&(pool.to_owned(), endpoint.to_owned())).cloned().unwrap_or_default()
    }

    /// Forgets what `config` does not have.
    pub(crate) fn keep(&self, config: &Config) {
        let mut all = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(name, url), facts| {
            let Some(pool) = config.pools.iter().find(|p| p.name == *name) else { return false };
            facts.retain(|f| has(pool, f.source));
            pool.endpoints.iter().any(|e| e.url.to_string() == *url)
        });
    }
}

fn has(pool: &Pool, source: &str) -> bool {
    let load = pool.load.as_ref();
    match source {
        "status" => load.is_some_and(|l| l.status.is_some()),
        "metrics" => load.is_some_and(|l| l.metrics.is_some()),
        "accelerator" => load.is_some_and(|l| l.accelerator.is_some()),
        "node" => load.is_some_and(|l| l.node.is_some()),
        "models" => pool.models.is_some(),
        "cache_events" => pool.prefix_cache.as_ref().is_some_and(|c| c.events.is_some()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(lines: &str) -> Config {
        let text = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\npools: {{ chat: {{ endpoints: [{{ url: http://a:1 }}], {lines} }} }}"
        );
        Config::parse(&text, "t.yaml", &|_| None).unwrap().0
    }

    #[test]
    fn the_last_facts_of_a_page_are_kept_as_long_as_the_config_has_it() {
        let board = SignalBoard::default();
        let facts = |source, trouble: Option<&str>| SignalFacts {
            source,
            trouble: trouble.map(str::to_owned),
            ..SignalFacts::default()
        };
        board.put("chat", "http://a:1", facts("metrics", None));
        board.put("chat", "http://a:1", facts("status", None));
        board.put("chat", "http://a:1", facts("metrics", Some("status 404")));
        board.put("chat", "http://gone:1", facts("metrics", None));
        assert_eq!(board.get("chat", "http://a:1"), [facts("metrics", Some("status 404")), facts("status", None)]);
        board.keep(&config("load: { metrics: {} }"));
        assert_eq!(board.get("chat", "http://a:1"), [facts("metrics", Some("status 404"))]);
        assert!(board.get("chat", "http://gone:1").is_empty());
    }
}
