//! What an answer should take: as the request says, else its tenant, else its pool.

use crate::request::error::ProxyError;
use crate::state::pool::PoolHandle;
use crate::state::tenant::Tenant;
use http::{HeaderMap, HeaderName};
use std::time::Duration;
use tidegate_config::Goals;
use tidegate_telemetry::Record;

/// Milliseconds to the first byte, in a request.
static TTFT_MS: HeaderName = HeaderName::from_static("x-tidegate-ttft-ms");
/// Milliseconds between two tokens, in a request.
static TPOT_MS: HeaderName = HeaderName::from_static("x-tidegate-tpot-ms");
/// Longest goals that a request may have, milliseconds.
const MAX_TTFT_MS: u64 = 3_600_000;
const MAX_TPOT_MS: u64 = 60_000;

/// The goals of a request, which go into its record too. The headers that name some go no further. Pools without `slo` have none, and leave
/// the headers alone.
pub(crate) fn take(
    headers: &mut HeaderMap,
    tenant: &Tenant,
    pool: &PoolHandle,
    record: &mut Record,
) -> Result<Goals, ProxyError> {
    let goals = goals(headers, tenant, pool)?;
    let seconds = |goal: Option<Duration>| goal.map_or(0.0, |g| g.as_secs_f64());
    (record.ttft_goal_s, record.tpot_goal_s) = (seconds(goals.ttft), seconds(goals.tpot));
    Ok(goals)
}

fn goals(headers: &mut HeaderMap, tenant: &Tenant, pool: &PoolHandle) -> Result<Goals, ProxyError> {
    let Some(slo) = &pool.settings().slo else { return Ok(Goals::default()) };
    let goals = tenant.slo.or(slo.goals);
    let own = Goals {
        ttft: of_header(
            headers,
            &TTFT_MS,
            MAX_TTFT_MS,
            "x-tidegate-ttft-ms is a whole number of milliseconds from 1 to 3600000",
        )?,
        tpot: of_header(
            headers,
            &TPOT_MS,
            MAX_TPOT_MS,
            "x-tidegate-tpot-ms is a whole number of milliseconds from 1 to 60000",
        )?,
    };
    Ok(own.or(goals))
}

/// What the header `name` says, taken out.
fn of_header(
    headers: &mut HeaderMap,
    name: &HeaderName,
    max_ms: u64,
    message: &'static str,
) -> Result<Option<Duration>, ProxyError> {
    let Some(value) = headers.remove(name) else { return Ok(None) };
    let ms = value.to_str().ok().and_then(|v| v.trim().parse::<u64>().ok()).filter(|ms| (1..=max_ms).contains(ms));
    let ms = ms.ok_or(ProxyError::BadRequest { code: "invalid_goal", message, status: 400 })?;
    Ok(Some(Duration::from_millis(ms)))
}
