//! The smallest total time of a round with the same clients and perfect knowledge, for engines with a fixed delay.
//!
//! With `c` clients at most `c` requests run at a time, so at most the `c` fastest places matter (an engine that serves any number in
//! parallel has as many places as clients). In time T a place of delay d completes floor(T/d), so the answer is the smallest T, a
//! multiple of some delay, at which those floors sum to the number of requests.

use crate::engine::EngineSpec;
use crate::kernel::setup::{Setup, Source};

/// The ideal total time of one round, seconds; `None` unless the load is a closed loop and every engine has a fixed delay.
pub fn ideal_round_s(setup: &Setup) -> Option<f64> {
    let Source::Closed { clients, requests, .. } = setup.source else { return None };
    let mut places: Vec<f64> = Vec::new();
    for site in &setup.sites {
        let EngineSpec::Fixed(p) = site.spec else { return None };
        let delay_s = p.delay_s + 2.0 * setup.network.as_secs_f64();
        let n = p.slots.unwrap_or(clients).min(clients).min(site.max_in_flight.unwrap_or(clients));
        places.extend((0..n).map(|_| delay_s));
    }
    places.sort_by(f64::total_cmp);
    places.truncate(clients as usize);
    Some(makespan(&places, requests))
}

/// Gives each request to the place that would finish it first: optimal for equal requests.
fn makespan(places: &[f64], requests: u32) -> f64 {
    let mut free = vec![0.0; places.len()];
    let mut last: f64 = 0.0;
    for _ in 0..requests {
        let ends = free.iter().zip(places).map(|(f, d)| f + d);
        let Some((i, end)) = ends.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        free[i] = end;
        last = last.max(end);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_out_by_hand() {
        // One at a time at 7, 4 and 1 s: in 22 s they complete 3, 5 and 22.
        assert!((makespan(&[1.0, 4.0, 7.0], 30) - 22.0).abs() < 1e-9);
        // Eight clients at an engine of 1 s in parallel: 30 requests in four goes.
        assert!((makespan(&[1.0; 8], 30) - 4.0).abs() < 1e-9);
    }
}
