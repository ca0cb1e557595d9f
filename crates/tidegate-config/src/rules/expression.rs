//! `p99(tidegate_ttft_seconds{pool="chat"})`: a metric by name and labels, and one function over the series that match.
//!
//! One function and no arithmetic: a file says what is looked at, and who needs more has a Prometheus server to ask.

use crate::key::Kind;
use crate::nearest::nearest;
use crate::scalar::Bad;
use std::fmt;

/// What is made of the series that match.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Function {
    /// Nothing: exactly one must match.
    #[default]
    Only,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The mean.
    Avg,
    /// All together.
    Sum,
    /// Growth per second over the window, of all together.
    Rate,
    /// The quantile (0..1) of what a histogram counted over the window.
    Quantile(f64),
}

/// Words of functions besides quantiles.
const WORDS: &[(&str, Function)] = &[
    ("max", Function::Max),
    ("min", Function::Min),
    ("avg", Function::Avg),
    ("sum", Function::Sum),
    ("rate", Function::Rate),
];

/// A metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expression {
    /// What is made of the series.
    pub function: Function,
    /// Name of the metric; of a histogram without `_bucket`.
    pub name: String,
    /// Labels that must match: name, value, and whether it must be this value or any other.
    pub labels: Vec<(String, String, bool)>,
}

impl Expression {
    /// Whether a series with these labels matches. An absent label is an empty one.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.labels.iter().all(|(name, value, equal)| (label(name).unwrap_or_default() == value) == *equal)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = WORDS.iter().find(|(_, function)| *function == self.function).map(|(word, _)| *word);
        match (self.function, word) {
            (Function::Quantile(q), _) => write!(f, "p{}(", (q * 1e5).round() / 1e3)?,
            (_, Some(word)) => write!(f, "{word}(")?,
            _ => {}
        }
        f.write_str(&self.name)?;
        for (i, (name, value, equal)) in self.labels.iter().enumerate() {
            let (open, op) = (if i == 0 { "{" } else { "," }, if *equal { "=" } else { "!=" });
            write!(f, "{open}{name}{op}\"{value}\"")?;
        }
        if !self.labels.is_empty() {
            f.write_str("}")?;
        }
        if self.function == Function::Only { Ok(()) } else { f.write_str(")") }
    }
}

/// Reads one.
pub(crate) fn expression(_: &Kind, text: &str) -> Result<Expression, Bad> {
    let hinted = |hint: &str| Bad::Type(hint.to_owned());
    let text = text.trim();
    let brace = text.find('{').unwrap_or(text.len());
    let (function, series) = match text.find('(').filter(|at| *at < brace) {
        Some(at) => {
            let inner = text.get(at + 1..).unwrap_or_default();
            let inner = inner.strip_suffix(')').ok_or_else(|| hinted("the closing ) is missing, or not at the end"))?;
            (function(text.get(..at).unwrap_or_default().trim())?, inner.trim())
        }
        None => (Function::Only, text),
    };
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => {
            let inner =
                labels.strip_suffix('}').ok_or_else(|| hinted("the closing } is missing, or not at the end"))?;
            (name.trim(), self::labels(inner)?)
        }
        None => (series, Vec::new()),
    };
    if !is_name(name, true) {
        return Err(hinted("the name of a metric has letters, digits, _ and : only; one function, without arithmetic"));
    }
    Ok(Expression { function, name: name.to_owned(), labels })
}

fn function(word: &str) -> Result<Function, Bad> {
    if let Some((_, function)) = WORDS.iter().find(|(w, _)| *w == word) {
        return Ok(*function);
    }
    let percent = word.strip_prefix('p').and_then(|digits| crate::units::number(digits).ok());
    if let Some(percent) = percent.filter(|p| *p > 0.0 && *p < 100.0) {
        return Ok(Function::Quantile(percent / 100.0));
    }
    let near = nearest(word, WORDS.iter().map(|(w, _)| *w)).map(|w| format!("did you mean `{w}`?"));
    Err(Bad::Type(near.unwrap_or_else(|| "the functions are p50 to p99.9, rate, max, min, avg and sum".to_owned())))
}

fn labels(text: &str) -> Result<Vec<(String, String, bool)>, Bad> {
    let wrong = || Bad::Type("labels look like {pool=\"chat\",outcome!=\"success\"}".to_owned());
    let (mut labels, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or_else(wrong)?;
        let (name, equal) = name.trim_end().strip_suffix('!').map_or((name, true), |name| (name, false));
        let after = after.trim_start().strip_prefix('"').ok_or_else(wrong)?;
        let (value, after) = after.split_once('"').ok_or_else(wrong)?;
        if !is_name(name.trim(), false) || value.contains('\\') {
            return Err(wrong());
        }
        labels.push((name.trim().to_owned(), value.to_owned(), equal));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if after.is_empty() => after,
            None => return Err(wrong()),
        };
    }
    Ok(labels)
}

fn is_name(text: &str, colons: bool) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    !text.is_empty() && text.chars().all(good) && !text.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Expression, Bad> {
        expression(&Kind::Expression, text)
    }

    #[test]
    fn what_is_shown_reads_back() {
        for text in [
            "tidegate_pool_waiting",
            "p99(tidegate_ttft_seconds{pool=\"chat\"})",
            "p99.9(x)",
            "rate(tidegate_requests_total{pool=\"chat\",outcome!=\"success\"})",
            "max(DCGM_FI_DEV_GPU_UTIL{host=\"a(b)\"})",
        ] {
            assert_eq!(read(text).map(|e| e.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(read(" avg( x { a = \"b\" , } ) ").map(|e| e.to_string()), Ok("avg(x{a=\"b\"})".to_owned()));
    }

    #[test]
    fn what_is_not_one_says_why() {
        for (text, hint) in [
            ("p99(x", "the closing ) is missing, or not at the end"),
            ("x{a=\"b\"", "the closing } is missing, or not at the end"),
            ("rat(x)", "did you mean `rate`?"),
            ("p100(x)", "the functions are p50 to p99.9, rate, max, min, avg and sum"),
            ("x{a=b}", "labels look like {pool=\"chat\",outcome!=\"success\"}"),
            ("a / b", "the name of a metric has letters, digits, _ and : only; one function, without arithmetic"),
            ("", "the name of a metric has letters, digits, _ and : only; one function, without arithmetic"),
        ] {
            assert_eq!(read(text), Err(Bad::Type(hint.to_owned())), "{text}");
        }
    }

    #[test]
    fn an_absent_label_is_an_empty_one() {
        let e = read("x{a=\"\",b!=\"1\"}").unwrap();
        assert!(e.matches(|_| None));
        assert!(!e.matches(|n| Some(if n == "b" { "1" } else { "" })));
    }
}
