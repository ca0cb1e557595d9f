//! How many requests a second are offered to a fleet.

use tidegate_core::time::Duration;

use crate::kernel::setup::{Party, Setup, Source};
use crate::workload::Arrivals;

/// Requests per second on average, whatever becomes of them; `None` for a closed loop, whose clients ask when they are answered.
pub fn offered_rps(setup: &Setup) -> Option<f64> {
    match &setup.source {
        Source::Open { arrivals, .. } => Some(rate(*arrivals)),
        Source::Closed { .. } => None,
        Source::Tenants { parties, length } => Some(parties.iter().map(|p| party_rps(p, *length)).sum()),
        Source::Trace(recorded) => {
            let span_s = recorded.shots.last()?.at.as_secs_f64();
            (span_s > 0.0).then(|| recorded.shots.len() as f64 / span_s)
        }
    }
}

fn rate(arrivals: Arrivals) -> f64 {
    match arrivals {
        Arrivals::Constant { rate } | Arrivals::Poisson { rate } | Arrivals::Bursty { rate, .. } => rate,
    }
}

/// A burst adds its factor for as much of it as lies within the run.
fn party_rps(party: &Party, length: Duration) -> f64 {
    let (length_s, all) = (length.as_secs_f64().max(1e-9), f64::from(party.count) * rate(party.arrivals));
    let faster = party.burst.map_or(0.0, |b| {
        let within_s = (length_s - b.at.as_secs_f64()).clamp(0.0, b.length.as_secs_f64());
        (b.factor - 1.0) * within_s / length_s
    });
    all * (1.0 + faster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Burst;

    #[test]
    fn a_burst_counts_for_its_part_of_the_run() {
        let burst = Burst { at: Duration::from_secs(40), length: Duration::from_secs(40), factor: 20.0 };
        let party = |count, burst| Party {
            name: "t".into(),
            count,
            arrivals: Arrivals::Poisson { rate: 3.0 },
            burst,
            tokens: (1, 1),
            weight: 1.0,
            priority: None,
        };
        let length = Duration::from_secs(120);
        assert!((party_rps(&party(5, None), length) - 15.0).abs() < 1e-9);
        assert!((party_rps(&party(1, Some(burst)), length) - (3.0 * 80.0 + 60.0 * 40.0) / 120.0).abs() < 1e-9);
        let late = Burst { at: Duration::from_secs(500), ..burst };
        assert!((party_rps(&party(1, Some(late)), length) - 3.0).abs() < 1e-9);
    }
}
