//! Fleets that change while they serve: who joins and leaves when, by plan or by an autoscaler. Plain data.

use std::ops::Range;

use tidegate_core::time::Duration;

/// How long an engine that starts takes until it answers checks and serves; drawn anew for every start, evenly between the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColdStart {
    /// At least.
    pub min: Duration,
    /// At most.
    pub max: Duration,
}

/// What becomes of an endpoint at a planned instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its engine starts, and it joins the pools.
    Join,
    /// It takes no new request; its engine stops when the last one has ended.
    Leave,
}

/// A planned change of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Place of the endpoint.
    pub site: u32,
    /// When, after the start.
    pub at: Duration,
    /// What.
    pub step: Step,
}

/// What an autoscaler looks at, summed over its group and divided by the target: so many engines are wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Requests in flight per endpoint, `> 0`.
    InFlight(f64),
    /// Requests waiting per endpoint, in the pools' queues and in the engines, `> 0`.
    Queue(f64),
    /// Used share of KV memory of an endpoint, 0..1.
    KvUsage(f64),
    /// Share of the requests that meet the goal, 0..1; one below it adds engines by steps.
    Slo(f64),
}

/// An autoscaler, by the rule of the Kubernetes horizontal one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Autoscale {
    /// What it follows.
    pub metric: Metric,
    /// Fewest engines, at least 1.
    pub min: u32,
    /// Most engines, at least `min`.
    pub max: u32,
    /// Time between two looks.
    pub interval: Duration,
    /// How long fewer engines must have been enough before any leaves.
    pub settle: Duration,
    /// How far the metric may be from its target, as a share, before anything is done.
    pub tolerance: f64,
}

/// Engines that are scaled together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Their places among the endpoints: as many as the most.
    pub sites: Range<u32>,
    /// How many are there at the beginning.
    pub initial: u32,
    /// By what rule.
    pub autoscale: Autoscale,
}

/// What changes about a fleet; nothing by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Elastic {
    /// Plans, in any order.
    pub changes: Vec<Change>,
    /// Autoscaled groups.
    pub groups: Vec<Group>,
}

impl Elastic {
    /// Whether anything joins or leaves.
    pub fn is_elastic(&self) -> bool {
        !(self.changes.is_empty() && self.groups.is_empty())
    }

    /// Whether the endpoint at `site` is there at the beginning: not where its first change is to join, or beyond what its group begins with.
    pub fn begins_with(&self, site: u32) -> bool {
        let first = self.changes.iter().filter(|c| c.site == site).min_by_key(|c| c.at);
        let group = self.groups.iter().find(|g| g.sites.contains(&site));
        first.is_none_or(|c| c.step != Step::Join) && group.is_none_or(|g| site - g.sites.start < g.initial)
    }
}
