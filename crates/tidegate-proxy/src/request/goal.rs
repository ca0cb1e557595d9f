//! What an answer should take: as the request says, else its tenant, else its pool.

use crate::request::error::ProxyError;
use crate::request::own_header::OwnHeader;
use crate::state::pool::PoolHandle;
use crate::state::tenant::Tenant;
use http::{HeaderMap, HeaderName};
use std::time::Duration;
use tidegate_config::Goals;
use tidegate_telemetry::Record;

/// Milliseconds to the first byte, in a request.
static TTFT_MS: OwnHeader = OwnHeader {
    name: HeaderName::from_static("x-tidegate-ttft-ms"),
    min: 1,
    max: 3_600_000,
    is: "a whole number of milliseconds from 1 to 3600000",
};
/// Milliseconds between two tokens, in a request.
static TPOT_MS: OwnHeader = OwnHeader {
    name: HeaderName::from_static("x-tidegate-tpot-ms"),
    min: 1,
    max: 60_000,
    is: "a whole number of milliseconds from 1 to 60000",
};

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
    let ms = |said: Option<u64>| said.map(Duration::from_millis);
    Ok(Goals { ttft: ms(TTFT_MS.take(headers)?), tpot: ms(TPOT_MS.take(headers)?) }.or(goals))
}
