//! Which study a scenario is, and its run.

use std::process::ExitCode;

use tidegate_sim::batch::Seeds;
use tidegate_sim::study::Study;

use super::{Args, Refused, grids, read_trace, refuse};

/// Runs `study`, whose scenario is called `name`.
pub(super) fn run(args: &Args, name: &str, study: &Study, seeds: Seeds) -> anyhow::Result<ExitCode> {
    if args.report.is_some() || !args.policy.is_empty() {
        return refuse(&Refused(format!("tidegate sim: {name} is a study: it has no --policy and no --report")));
    }
    let known = study.tenants().map(|study| study.variants()).unwrap_or_default();
    if let Some(wanted) = args.variant.iter().find(|w| !known.contains(&w.as_str())) {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return refuse(&Refused(format!("tidegate sim: no variant {wanted} in the study {name}; there are {known}")));
    }
    grids::run(args, name, seeds, &|threads, tick| {
        if let Some(study) = study.breaker() {
            return Ok(study.run(seeds, threads, tick).into());
        }
        if let Some(study) = study.routing() {
            return study.run(&read_trace, seeds, threads, tick).map_err(anyhow::Error::msg);
        }
        let tenants = study.tenants().map(|study| study.run(seeds, &args.variant, threads, tick));
        Ok(tenants.unwrap_or_default().into())
    })
}
