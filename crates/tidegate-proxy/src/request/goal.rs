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
/// Longest goal that a request may have, milliseconds.
const MAX_MS: u64 = 3_600_000;

/// The goal of a request for its first byte; all its goals go into its record. The header that names one goes no further. Pools without `slo` have none, and leave the header alone.
pub(crate) fn take(
    headers: &mut HeaderMap,
    tenant: &Tenant,
    pool: &PoolHandle,
    record: &mut Record,
) -> Result<Option<Duration>, ProxyError> {
    let goals = goals(headers, tenant, pool)?;
    let seconds = |goal: Option<Duration>| goal.map_or(0.0, |g| g.as_secs_f64());
    (record.ttft_goal_s, record.tpot_goal_s) = (seconds(goals.ttft), seconds(goals.tpot));
    Ok(goals.ttft)
}

fn goals(headers: &mut HeaderMap, tenant: &Tenant, pool: &PoolHandle) -> Result<Goals, ProxyError> {
    let Some(slo) = &pool.settings().slo else { return Ok(Goals::default()) };
    let goals = tenant.slo.or(slo.goals);
    let Some(value) = headers.remove(&TTFT_MS) else { return Ok(goals) };
    let ms = value.to_str().ok().and_then(|v| v.trim().parse::<u64>().ok()).filter(|ms| (1..=MAX_MS).contains(ms));
    let ms = ms.ok_or(ProxyError::BadRequest {
        code: "invalid_goal",
        message: "x-tidegate-ttft-ms is a whole number of milliseconds from 1 to 3600000",
        status: 400,
    })?;
    Ok(Goals { ttft: Some(Duration::from_millis(ms)), ..goals })
}
