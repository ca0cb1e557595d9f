//! A metric over time: pages in, one number out.
//!
//! Quantiles are those of what a histogram counted within the window, `histogram_quantile(q, increase(...))` in PromQL: linear within the
//! bucket, and the last finite bound above it. Rates are the growth of all matching series together over the window. A counter that fell
//! was started anew: its past is forgotten.

use super::page::{Sample, samples};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;
use tidegate_config::{Expression, Function};
use tidegate_core::time::Instant;

/// Snapshots kept of one window.
const MAX_PAST: u32 = 200;

/// A metric that is read from page after page.
#[derive(Clone, Debug)]
pub struct Reading {
    expression: Expression,
    window: Duration,
    /// Counts by upper bound at earlier pages, the oldest first; a rate has one bound.
    past: VecDeque<(Instant, Vec<(f64, f64)>)>,
}

/// Why a page gave no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// No series matches.
    NoSeries,
    /// So many match, where one is expected.
    Ambiguous(usize),
    /// There is no earlier page to compare with.
    FirstPage,
    /// Nothing was observed within the window.
    NothingObserved,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSeries => f.write_str("no series matches"),
            Self::Ambiguous(n) => write!(f, "{n} series match: name more labels, or choose max, min, avg or sum"),
            Self::FirstPage => f.write_str("no earlier page to compare with"),
            Self::NothingObserved => f.write_str("nothing was observed within the window"),
        }
    }
}

impl Reading {
    /// Reads `expression`; quantiles and rates look back for `window`.
    pub fn new(expression: Expression, window: Duration) -> Self {
        Self { expression, window, past: VecDeque::new() }
    }

    /// The metric by the page of `now`. O(lines of the page).
    ///
    /// # Errors
    /// If the page does not say.
    pub fn on_page(&mut self, now: Instant, page: &str) -> Result<f64, Unread> {
        if let Function::Quantile(q) = self.expression.function {
            let name = format!("{}_bucket", self.expression.name);
            let counts = buckets(self.matching(page, &name));
            if counts.is_empty() {
                return Err(Unread::NoSeries);
            }
            let (grown, _) = self.grown(now, counts)?;
            return quantile(q, &grown).ok_or(Unread::NothingObserved);
        }
        let values: Vec<f64> = self.matching(page, &self.expression.name).map(|s| s.value).collect();
        let (n, sum) = (values.len(), values.iter().sum::<f64>());
        match (self.expression.function, values.as_slice()) {
            (_, []) => Err(Unread::NoSeries),
            (Function::Only, [only]) => Ok(*only),
            (Function::Only, _) => Err(Unread::Ambiguous(n)),
            (Function::Max, all) => Ok(all.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            (Function::Min, all) => Ok(all.iter().copied().fold(f64::INFINITY, f64::min)),
            (Function::Avg, _) => Ok(sum / n as f64),
            (Function::Sum, _) => Ok(sum),
            (Function::Rate | Function::Quantile(_), _) => {
                let (grown, seconds) = self.grown(now, vec![(f64::INFINITY, sum)])?;
                Ok(grown.first().map_or(0.0, |(_, n)| n / seconds))
            }
        }
    }

    fn matching<'p>(&self, page: &'p str, name: &str) -> impl Iterator<Item = Sample<'p>> {
        samples(page, name).filter(|s| self.expression.matches(|label| s.label(label)))
    }

    /// Growth of `counts` since about one window ago, and the seconds since then.
    fn grown(&mut self, now: Instant, counts: Vec<(f64, f64)>) -> Result<(Vec<(f64, f64)>, f64), Unread> {
        let went_on = |then: &[(f64, f64)]| {
            then.len() == counts.len() && then.iter().zip(&counts).all(|(a, b)| a.0 == b.0 && a.1 <= b.1)
        };
        if !self.past.back().is_none_or(|(_, then)| went_on(then)) {
            self.past.clear();
        }
        while self.past.get(1).is_some_and(|(at, _)| now.since(*at) >= self.window) {
            self.past.pop_front();
        }
        let base = self.past.front().map(|(at, then)| {
            let grown = counts.iter().zip(then).map(|(now, then)| (now.0, now.1 - then.1)).collect();
            (grown, now.secs_since(*at))
        });
        let is_due = self.past.back().is_none_or(|(at, _)| now.since(*at) >= self.window / MAX_PAST);
        if is_due {
            self.past.push_back((now, counts));
        }
        base.filter(|(_, seconds)| *seconds > 0.0).ok_or(Unread::FirstPage)
    }
}

/// Cumulative counts by upper bound, of all series together, in order of the bounds.
fn buckets<'p>(samples: impl Iterator<Item = Sample<'p>>) -> Vec<(f64, f64)> {
    let mut counts: Vec<(f64, f64)> = Vec::new();
    for sample in samples {
        let Some(bound) = sample.label("le").and_then(|le| le.parse::<f64>().ok()).filter(|b| !b.is_nan()) else {
            continue;
        };
        match counts.iter_mut().find(|(b, _)| *b == bound) {
            Some((_, count)) => *count += sample.value,
            None => counts.push((bound, sample.value)),
        }
    }
    counts.sort_by(|a, b| a.0.total_cmp(&b.0));
    counts
}

/// The quantile of cumulative counts; `None` without an observation.
fn quantile(q: f64, counts: &[(f64, f64)]) -> Option<f64> {
    let total = counts.last().map(|(_, n)| *n).filter(|n| *n > 0.0)?;
    let rank = q * total;
    let at = counts.iter().position(|(_, n)| *n >= rank)?;
    let (bound, count) = counts[at];
    let (below, before) = at.checked_sub(1).map_or((0.0, 0.0), |i| counts[i]);
    if bound.is_infinite() {
        return (at > 0).then_some(below);
    }
    let within = if count > before { (rank - before) / (count - before) } else { 1.0 };
    Some(below + (bound - below) * within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::{Config, Source};

    fn reading(metric: &str) -> Reading {
        let text = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\nrate_limits: [{{ name: all, limit: 5 requests/s }}]\n\
             pools: {{ p: {{ endpoints: [{{ url: http://a:1 }}] }} }}\n\
             rules: [{{ name: r, when: {{ metric: '{metric}', op: \">\", value: 1 }}, do: {{ set: 5, target: rate_limits.all }} }}]"
        );
        let (config, _) = Config::parse(&text, "t.yaml", &|_| None).unwrap();
        let Source::Own { metric, window } = config.rules[0].when.source.clone() else { panic!("own") };
        Reading::new(metric, window)
    }

    fn at(s: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(s)
    }

    #[test]
    fn one_series_or_a_choice_of_several() {
        let page = "g{a=\"1\"} 3\ng{a=\"2\"} 5\ng{a=\"3\"} 10\n";
        for (metric, expected) in [
            ("g", Err(Unread::Ambiguous(3))),
            ("g{a=\"2\"}", Ok(5.0)),
            ("g{a=\"9\"}", Err(Unread::NoSeries)),
            ("max(g)", Ok(10.0)),
            ("min(g)", Ok(3.0)),
            ("avg(g)", Ok(6.0)),
            ("sum(g{a!=\"3\"})", Ok(8.0)),
        ] {
            assert_eq!(reading(metric).on_page(at(0), page), expected, "{metric}");
        }
    }

    #[test]
    fn a_rate_is_the_growth_over_the_window_and_a_restart_begins_anew() {
        let mut r = reading("rate(c)");
        assert_eq!(r.on_page(at(0), "c{x=\"1\"} 90\nc{x=\"2\"} 10\n"), Err(Unread::FirstPage));
        for s in 1..=100 {
            let page = format!("c{{x=\"1\"}} {}\nc{{x=\"2\"}} 10\n", 90 + 7 * s);
            assert!((r.on_page(at(s), &page).unwrap() - 7.0).abs() < 1e-9);
        }
        assert!(r.past.len() <= 32, "{}", r.past.len());
        assert_eq!(r.on_page(at(101), "c 3\n"), Err(Unread::FirstPage));
        assert_eq!(r.on_page(at(102), "c 5\n"), Ok(2.0));
    }

    #[test]
    fn a_quantile_forgets_what_is_older_than_the_window() {
        let page = |slow: u64, fast: u64| {
            let all = slow + fast;
            format!(
                "h_bucket{{le=\"0.5\"}} {fast}\nh_bucket{{le=\"1\"}} {all}\nh_bucket{{le=\"+Inf\"}} {all}\nh_sum 1\n"
            )
        };
        let mut r = reading("p50(h)");
        assert_eq!(
            r.on_page(at(0), &page(100, 0)),
            Err(Unread::FirstPage),
            "what came before the first page is not known"
        );
        assert_eq!(r.on_page(at(1), &page(100, 0)), Err(Unread::NothingObserved));
        assert_eq!(r.on_page(at(2), &page(200, 0)), Ok(0.75));
        assert_eq!(r.on_page(at(3), &page(200, 100)), Ok(0.5));
        assert_eq!(r.on_page(at(40), &page(200, 200)), Ok(0.25), "the slow ones are older than 30 s");
    }

    #[test]
    fn a_quantile_beyond_the_last_bound_is_that_bound() {
        let mut r = reading("p99(h)");
        let page = |n| format!("h_bucket{{le=\"1\"}} 0\nh_bucket{{le=\"+Inf\"}} {n}\n");
        assert!(r.on_page(at(0), &page(0)).is_err());
        assert_eq!(r.on_page(at(1), &page(9)), Ok(1.0));
    }

    #[test]
    fn a_long_window_keeps_a_bounded_past() {
        let mut r = reading("rate(c)");
        for ms in 0..100_000 {
            let _ = r.on_page(Instant::ORIGIN + Duration::from_millis(ms), &format!("c {ms}\n"));
        }
        assert!(r.past.len() <= MAX_PAST as usize + 2, "{}", r.past.len());
    }
}
