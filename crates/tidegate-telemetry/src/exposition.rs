//! The Prometheus text format, version 0.0.4.
//!
//! By hand and not with a client library: label sets here are dense arrays made once from the config, and a library would hash and
//! allocate one per request, or need every series registered up front; the format itself is three kinds of line. (The crate
//! `prometheus-client` also writes OpenMetrics only, which older scrapers refuse.)

use crate::families::{Family, FamilyKind};
use std::fmt::Write;

/// A page of metrics being written: [`Exposition::family`] first, then its samples.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

impl Exposition {
    /// The value of the `content-type` header of such a page.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a family: its help and type.
    pub fn family(&mut self, family: &Family) {
        let kind = family.kind.as_str();
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {} {}\n# TYPE {0} {kind}", family.name, family.help);
    }

    /// One sample; `labels` are the values of the family's labels, in their order.
    pub fn sample(&mut self, family: &Family, labels: &[&str], value: f64) {
        self.line(family.name, "", family.labels.iter().copied().zip(labels.iter().copied()), value);
    }

    /// One sample of a whole number.
    pub fn count(&mut self, family: &Family, labels: &[&str], value: u64) {
        // Exact up to 2^53, which a counter of requests does not reach.
        self.sample(family, labels, value as f64);
    }

    /// The buckets, sum and count of one histogram.
    pub(crate) fn histogram(&mut self, family: &Family, labels: &[&str], h: &crate::histogram::Histogram) {
        debug_assert_eq!(family.kind, FamilyKind::Histogram);
        let labels = || family.labels.iter().copied().zip(labels.iter().copied());
        let mut total = 0;
        for (bound, count) in h.cumulative() {
            total = count;
            let bound = number(bound);
            self.line(family.name, "_bucket", labels().chain([("le", bound.as_str())]), count as f64);
        }
        self.line(family.name, "_sum", labels(), h.sum_s());
        self.line(family.name, "_count", labels(), total as f64);
    }

    fn line<'a>(&mut self, name: &str, suffix: &str, labels: impl Iterator<Item = (&'a str, &'a str)>, value: f64) {
        let _ = write!(self.text, "{name}{suffix}");
        let mut before = '{';
        for (key, text) in labels {
            let _ = write!(self.text, "{before}{key}=\"");
            self.escape(text);
            self.text.push('"');
            before = ',';
        }
        let close = if before == ',' { "}" } else { "" };
        let _ = writeln!(self.text, "{close} {}", number(value));
    }

    fn escape(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                c => self.text.push(c),
            }
        }
    }

    /// The page.
    pub fn finish(self) -> String {
        self.text
    }
}

fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::family;

    #[test]
    fn a_page_reads_as_the_format_says() {
        let mut page = Exposition::default();
        let retries = family::RETRIES;
        page.family(&retries);
        page.count(&retries, &["a\"b\\c\nd"], 3);
        let text = page.finish();
        let help = format!("# HELP tidegate_retries_total {}", retries.help);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [help.as_str(), "# TYPE tidegate_retries_total counter", r#"tidegate_retries_total{pool="a\"b\\c\nd"} 3"#]
        );
    }

    #[test]
    fn histograms_end_with_infinity_sum_and_count() {
        let mut page = Exposition::default();
        let h = crate::histogram::Histogram::new(&[0.5]);
        h.observe(0.25);
        h.observe(2.0);
        page.histogram(&family::TTFT, &["chat"], &h);
        assert_eq!(
            page.finish(),
            "tidegate_ttft_seconds_bucket{pool=\"chat\",le=\"0.5\"} 1\n\
             tidegate_ttft_seconds_bucket{pool=\"chat\",le=\"+Inf\"} 2\n\
             tidegate_ttft_seconds_sum{pool=\"chat\"} 2.25\n\
             tidegate_ttft_seconds_count{pool=\"chat\"} 2\n"
        );
    }
}
