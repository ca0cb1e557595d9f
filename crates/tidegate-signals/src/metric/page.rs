//! The series of a page in the Prometheus text format 0.0.4.
//!
//! Only lines of the metric that is asked for are taken apart: an exporter's page has thousands of lines, a rule looks at a few. A line that
//! cannot be read is left out, as it would be by a server.

use std::borrow::Cow;

/// One sample of a page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample<'p> {
    labels: Vec<(&'p str, Cow<'p, str>)>,
    pub(crate) value: f64,
}

impl Sample<'_> {
    /// The value of the label called `name`.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(n, _)| *n == name).map(|(_, value)| &**value)
    }
}

/// The samples called `name`, in the page's order.
pub(crate) fn samples<'p>(page: &'p str, name: &str) -> impl Iterator<Item = Sample<'p>> {
    page.lines().filter_map(move |line| {
        let rest = line.trim_start().strip_prefix(name)?;
        // Another metric whose name begins alike.
        if !rest.starts_with(['{', ' ', '\t']) {
            return None;
        }
        sample(rest.trim_start())
    })
}

/// What follows a name: labels, a value, and perhaps a timestamp, which is not looked at.
fn sample(text: &str) -> Option<Sample<'_>> {
    let (mut labels, mut rest) = (Vec::new(), text);
    if let Some(inside) = text.strip_prefix('{') {
        rest = inside.trim_start();
        while !rest.starts_with('}') {
            let (name, after) = rest.split_once('=')?;
            let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
            labels.push((name.trim(), value));
            rest = after.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { labels, value })
}

/// A label's value up to its closing quote, escapes undone, and what follows the quote.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find(['"', '\\'])?;
    if text.as_bytes().get(end) == Some(&b'"') {
        return Some((Cow::Borrowed(text.get(..end)?), text.get(end + 1..)?));
    }
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(value), text.get(at + 1..)?)),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_metric_are_read_and_others_left() {
        let page = "# HELP up is it\n# TYPE up gauge\nup{host=\"a\",} 1 1700000000000\nup_total 9\nup 2\nup{host=\"b\" , x=\"1\"} +Inf\n\
            up{host=\"c} 3\nup{host=\"d\"} many\nup{host=\"e\"}4e1\n";
        let found: Vec<_> = samples(page, "up").map(|s| (s.label("host").map(str::to_owned), s.value)).collect();
        let host = |h: &str| Some(h.to_owned());
        assert_eq!(found, [(host("a"), 1.0), (None, 2.0), (host("b"), f64::INFINITY), (host("e"), 40.0)]);
    }

    #[test]
    fn escapes_in_labels_are_undone() {
        let page = "m{a=\"x\\\"y\\\\z\\n\",b=\"{}\"} 1";
        let found: Vec<_> = samples(page, "m").collect();
        assert_eq!((found[0].label("a"), found[0].label("b")), (Some("x\"y\\z\n"), Some("{}")));
    }
}
