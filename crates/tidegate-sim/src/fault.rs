//! Faults of an engine that can be switched on while it runs.
//!
//! The shell (a live engine or the simulator) applies the ones that concern connections; pace, rejects and cuts are decided here so
//! that both see the same fault.

use serde::{Deserialize, Serialize};
use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant, duration_from_secs};

/// What is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Nothing.
    #[default]
    None,
    /// Connections are refused and existing ones closed, as if the process had died.
    Refuse,
    /// Connections, new and old, are reset.
    Reset,
    /// Connections are accepted, nothing is ever answered, running streams freeze.
    Hang,
    /// Everything takes `factor` times as long.
    Slow,
    /// A share `rate` of the requests is answered with `status`.
    Status,
    /// A share `rate` of the answers breaks off in the middle.
    Cut,
    /// Health checks are fine, no request makes progress.
    NoProgress,
}

/// A fault as it is set: `{"kind": "slow", "factor": 4, "for_s": 30}`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// For `slow`: how many times as long, `> 0`.
    #[serde(default = "default_factor")]
    pub factor: f64,
    /// For `status`: 400..=599.
    #[serde(default = "default_status")]
    pub status: u16,
    /// For `status` and `cut`: share of the requests, 0..=1.
    #[serde(default = "default_rate")]
    pub rate: f64,
    /// For `status`: the `Retry-After` to send, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<f64>,
    /// How long it lasts, seconds; for good if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_s: Option<f64>,
}

fn default_factor() -> f64 {
    4.0
}
fn default_status() -> u16 {
    503
}
fn default_rate() -> f64 {
    1.0
}

impl Default for Fault {
    fn default() -> Self {
        Self::of(FaultKind::None)
    }
}

impl Fault {
    /// A fault of that kind with the other fields at their defaults: factor 4, status 503, rate 1, for good.
    pub fn of(kind: FaultKind) -> Self {
        Self {
            kind,
            factor: default_factor(),
            status: default_status(),
            rate: default_rate(),
            retry_after_s: None,
            for_s: None,
        }
    }

    /// What is out of range, in words.
    pub fn check(&self) -> Result<(), String> {
        if !(self.factor.is_finite() && self.factor > 0.0) {
            return Err(format!("factor is {}, allowed: above 0, such as 4", self.factor));
        }
        if !(400..=599).contains(&self.status) {
            return Err(format!("status is {}, allowed: 400 to 599, such as 503", self.status));
        }
        if !(0.0..=1.0).contains(&self.rate) {
            return Err(format!("rate is {}, allowed: 0 to 1, such as 0.5", self.rate));
        }
        for (name, value) in [("retry_after_s", self.retry_after_s), ("for_s", self.for_s)] {
            if value.is_some_and(|v| !(v.is_finite() && v >= 0.0)) {
                return Err(format!("{name} is {value:?}, allowed: 0 or more, such as 5"));
            }
        }
        Ok(())
    }

    /// How many times as long everything takes: 1 is normal, infinity stands still.
    pub fn slowdown(&self) -> f64 {
        match self.kind {
            FaultKind::Slow => self.factor,
            FaultKind::Hang | FaultKind::NoProgress => f64::INFINITY,
            _ => 1.0,
        }
    }

    /// The status that this request is answered with instead, and when to come back.
    pub fn rejects(&self, rng: &mut Rng) -> Option<(u16, Option<Duration>)> {
        let hit = self.kind == FaultKind::Status && rng.unit() < self.rate;
        hit.then(|| (self.status, self.retry_after_s.map(duration_from_secs)))
    }

    /// After how many tokens this answer of `output_tokens` breaks off, if it does: `1..output_tokens`.
    pub fn cuts(&self, output_tokens: u32, rng: &mut Rng) -> Option<u32> {
        let hit = self.kind == FaultKind::Cut && rng.unit() < self.rate;
        hit.then(|| 1 + rng.below(output_tokens.saturating_sub(1).max(1) as usize) as u32)
    }

    /// When the fault ends if it began at `now`.
    pub fn ends_at(&self, now: Instant) -> Option<Instant> {
        self.for_s.map(|s| now + duration_from_secs(s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_users_write() {
        let f: Fault =
            serde_json::from_str(r#"{"kind":"status","status":429,"rate":0.5,"retry_after_s":2,"for_s":10}"#).unwrap();
        assert_eq!((f.kind, f.status, f.rate, f.retry_after_s), (FaultKind::Status, 429, 0.5, Some(2.0)));
        assert_eq!(f.ends_at(Instant::from_secs_f64(5.0)), Some(Instant::from_secs_f64(15.0)));
        let f: Fault = serde_json::from_str(r#"{"kind":"no_progress"}"#).unwrap();
        assert!(f.slowdown().is_infinite());
        assert!(serde_json::from_str::<Fault>(r#"{"kind":"slow","fcator":2}"#).is_err(), "misspelt");
        assert!(Fault { rate: 1.5, ..Fault::default() }.check().is_err());
        assert!(Fault { factor: 0.0, ..Fault::default() }.check().is_err());
    }

    #[test]
    fn rates_are_kept_within_five_standard_errors() {
        let mut rng = Rng::new(5);
        let f = Fault { rate: 0.3, ..Fault::of(FaultKind::Status) };
        let hits = (0..10_000).filter(|_| f.rejects(&mut rng).is_some()).count();
        assert!(hits.abs_diff(3000) < 230, "{hits}");
        let f = Fault { rate: 0.3, ..Fault::of(FaultKind::Cut) };
        let cuts: Vec<u32> = (0..10_000).filter_map(|_| f.cuts(20, &mut rng)).collect();
        assert!(cuts.len().abs_diff(3000) < 230 && cuts.iter().all(|k| (1..20).contains(k)));
    }
}
