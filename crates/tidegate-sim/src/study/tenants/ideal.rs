//! What each tenant should have got: a fluid without memory.

use super::settings::{Tenant, Trace};

/// Step of the fluid, in seconds.
const STEP_S: f64 = 1e-3;

struct Claim {
    demand: f64,
    assured: f64,
    weight: f64,
}

/// Divides `rate` among claims: assured rates first, the rest by weighted max-min.
fn divide(rate: f64, claims: &[Claim]) -> Vec<f64> {
    let promised: f64 = claims.iter().map(|c| c.assured).sum();
    let kept = if promised > rate { rate / promised } else { 1.0 };
    let mut given: Vec<f64> = claims.iter().map(|c| c.demand.min(c.assured * kept)).collect();
    let mut left = rate - given.iter().sum::<f64>();
    let mut order: Vec<usize> =
        (0..claims.len()).filter(|k| claims[*k].weight > 0.0 && claims[*k].demand > given[*k]).collect();
    let ratio = |k: usize| (claims[k].demand - given[k]) / claims[k].weight;
    order.sort_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
    let mut weights: f64 = order.iter().map(|k| claims[*k].weight).sum();
    for k in order {
        let part = (left * claims[k].weight / weights).min(claims[k].demand - given[k]).max(0.0);
        given[k] += part;
        left -= part;
        weights -= claims[k].weight;
    }
    given
}

/// Tokens each tenant should have got over the whole trace.
pub(super) fn ideal(trace: &Trace) -> Vec<f64> {
    let tenants = trace.tenants();
    let mut total = vec![0.0; tenants.len()];
    let steps = (trace.duration.as_secs_f64() / STEP_S) as u64;
    let mut before: Option<(Vec<f64>, Vec<f64>)> = None;
    for step in 0..steps {
        let at_s = (step as f64 + 0.5) * STEP_S;
        let demands: Vec<f64> =
            tenants.iter().map(|t| capped(t.demand_at(trace, at_s) * used(trace, t), t.ceiling)).collect();
        let given = match before.take() {
            Some((known, given)) if known == demands => given,
            _ => at(trace, &tenants, &demands),
        };
        if at_s >= trace.counted_from.as_secs_f64() {
            total.iter_mut().zip(&given).for_each(|(sum, rate)| *sum += rate * STEP_S);
        }
        before = Some((demands, given));
    }
    total
}

/// Mean of what is used per token reserved.
fn used(trace: &Trace, tenant: &Tenant) -> f64 {
    let party = &trace.tenants[tenant.party];
    0.5 * (party.used_from + party.used_to)
}

fn capped(demand: f64, ceiling: Option<f64>) -> f64 {
    ceiling.map_or(demand, |c| demand.min(c))
}

/// Rates at one instant.
fn at(trace: &Trace, tenants: &[Tenant], demands: &[f64]) -> Vec<f64> {
    let claim = |k: usize| Claim { demand: demands[k], assured: tenants[k].assured, weight: tenants[k].weight };
    let members = |branch| (0..tenants.len()).filter(move |k| tenants[*k].branch == branch).collect::<Vec<_>>();
    let direct = members(None);
    let branches: Vec<Vec<usize>> = (0..trace.branches.len()).map(|b| members(Some(b))).collect();
    let mut claims: Vec<Claim> = direct.iter().map(|k| claim(*k)).collect();
    for (branch, below) in trace.branches.iter().zip(&branches) {
        let demand = capped(below.iter().map(|k| demands[*k]).sum(), branch.ceiling);
        claims.push(Claim { demand, assured: branch.assured, weight: branch.weight.unwrap_or(branch.assured) });
    }
    let first = divide(trace.rate, &claims);
    let mut given = vec![0.0; tenants.len()];
    direct.iter().zip(&first).for_each(|(k, rate)| given[*k] = *rate);
    for (below, rate) in branches.iter().zip(&first[direct.len()..]) {
        let claims: Vec<Claim> = below.iter().map(|k| claim(*k)).collect();
        below.iter().zip(divide(*rate, &claims)).for_each(|(k, rate)| given[*k] = rate);
    }
    given
}
