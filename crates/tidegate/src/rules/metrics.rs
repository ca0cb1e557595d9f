//! What rules look at, checked before it is looked for: a slip in the name of a metric would be a rule that never acts.

use std::path::Path;

use tidegate_config::{Config, Expression, Function, Problem, ProblemKind, Severity, Source, nearest};
use tidegate_telemetry::{Family, FamilyKind, family};

/// A source in words.
pub(super) fn shown(source: &Source) -> String {
    match source {
        Source::Own { metric, .. } => metric.to_string(),
        Source::Page { asked, metric, .. } => format!("{metric} of {}", asked.url),
        Source::Query(asked) => asked.url.to_string(),
    }
}

/// Rules of `config`, read from `file`, that look at metrics Tidegate does not have.
pub(crate) fn problems(config: &Config, file: &Path) -> Vec<Problem> {
    let faulty = |(place, rule): (usize, &tidegate_config::Rule)| {
        let Source::Own { metric, .. } = &rule.when.source else { return None };
        let (allowed, hint) = fault(metric)?;
        Some(Problem {
            severity: Severity::Error,
            kind: ProblemKind::Contradiction,
            source: file.display().to_string(),
            line: 0,
            column: 0,
            width: 1,
            path: format!("rules[{place}].when.metric"),
            found: metric.to_string(),
            allowed,
            hint,
            excerpt: String::new(),
            caret: 0,
        })
    };
    config.rules.iter().enumerate().filter_map(faulty).collect()
}

/// What is wrong with a metric of Tidegate's own: what is allowed, and a hint.
fn fault(metric: &Expression) -> Option<(String, String)> {
    let is_quantile = matches!(metric.function, Function::Quantile(_));
    let name = &*metric.name;
    let of_histogram = ["_sum", "_count"].iter().find_map(|suffix| find(name.strip_suffix(suffix)?));
    let of_histogram = of_histogram.filter(|f| f.kind == FamilyKind::Histogram && !is_quantile);
    let Some(found) = find(name).or(of_histogram) else {
        let near = nearest(name, family::ALL.iter().map(|f| f.name));
        let hint = near.map_or_else(String::new, |near| format!("did you mean `{near}`?"));
        return Some(("a metric of /metrics; docs/metrics.md lists them".to_owned(), hint));
    };
    let is_histogram = found.kind == FamilyKind::Histogram && of_histogram.is_none();
    if is_histogram != is_quantile {
        let (allowed, hint) = if is_quantile {
            ("a quantile of a histogram", "for example: `p99(tidegate_ttft_seconds)`".to_owned())
        } else {
            ("a quantile, or the `_sum` or `_count` of a histogram", format!("for example: `p99({})`", found.name))
        };
        return Some((allowed.to_owned(), hint));
    }
    let unknown = metric.labels.iter().find(|(label, ..)| !found.labels.contains(&&**label))?;
    let near = nearest(&unknown.0, found.labels.iter().copied());
    let hint = near.map_or_else(String::new, |near| format!("did you mean `{near}`?"));
    Some((format!("labels of {}: {}", found.name, found.labels.join(", ")), hint))
}

fn find(name: &str) -> Option<&'static Family> {
    family::ALL.iter().find(|f| f.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(metric: &str, expected: Option<&str>) {
        let text = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\nrate_limits: [{{ name: all, limit: 5 requests/s }}]\n\
             pools: {{ p: {{ endpoints: [{{ url: http://a:1 }}] }} }}\n\
             rules: [{{ name: r, when: {{ metric: '{metric}', op: \">\", value: 1 }}, do: {{ set: 5, target: rate_limits.all }} }}]"
        );
        let (config, _) = Config::parse(&text, "t.yaml", &|_| None).unwrap();
        let found = problems(&config, Path::new("t.yaml"));
        assert_eq!(found.first().map(|p| p.hint.as_str()), expected, "{metric}");
    }

    #[test]
    fn a_metric_that_does_not_exist_is_found_before_it_never_acts() {
        check("p99(tidegate_ttft_seconds{pool=\"p\"})", None);
        check("rate(tidegate_ttft_seconds_count)", None);
        check("sum(tidegate_pool_waiting)", None);
        check("p99(tidegate_ttft_second)", Some("did you mean `tidegate_ttft_seconds`?"));
        check("tidegate_pool_waitin", Some("did you mean `tidegate_pool_waiting`?"));
        check("max(tidegate_ttft_seconds)", Some("for example: `p99(tidegate_ttft_seconds)`"));
        check("p99(tidegate_pool_waiting)", Some("for example: `p99(tidegate_ttft_seconds)`"));
        check("tidegate_pool_waiting{pol=\"p\"}", Some("did you mean `pool`?"));
        check("something_else", Some(""));
    }
}
