//! Values as people write them: `1m30s`, `4MiB`, `50%`, `10_000`.

use std::time::Duration;

/// A value that is text of another kind, with a remedy where one is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotA {
    /// What to write instead; empty if there is nothing better to say than what is allowed.
    pub(crate) hint: String,
}

impl NotA {
    pub(crate) fn plain() -> Self {
        Self { hint: String::new() }
    }

    pub(crate) fn hinted(hint: String) -> Self {
        Self { hint }
    }
}

/// Units of time and their nanoseconds, longest name first so that `ms` is not read as `m`.
const TIME_UNITS: &[(&str, f64)] =
    &[("ms", 1e6), ("us", 1e3), ("ns", 1.0), ("s", 1e9), ("m", 60e9), ("h", 3600e9), ("d", 86_400e9)];

/// Units of size and their bytes.
const SIZE_UNITS: &[(&str, f64)] = &[
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
];

/// Reads `30s`, `250ms`, `1m30s`, `1.5h`; `0` needs no unit.
pub(crate) fn duration(text: &str) -> Result<Duration, NotA> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if number(text).is_ok() {
        return Err(NotA::hinted(format!("a duration needs its unit: `{text}s` or `{text}ms`")));
    }
    let (mut rest, mut nanos) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).ok_or_else(NotA::plain)?;
        let (value, tail) = rest.split_at(digits);
        let (unit, scale) = TIME_UNITS.iter().find(|(u, _)| tail.starts_with(u)).ok_or_else(NotA::plain)?;
        // `1min` or `5sec` must not be read as a minute followed by rubbish.
        let after = tail.get(unit.len()..).unwrap_or_default();
        if after.starts_with(|c: char| !c.is_ascii_digit()) {
            return Err(NotA::hinted("the units are ns, us, ms, s, m, h and d".to_owned()));
        }
        nanos += number(value)? * scale;
        rest = after;
    }
    let in_range = !text.is_empty() && nanos < u64::MAX as f64;
    if in_range { Ok(Duration::from_nanos(nanos.round() as u64)) } else { Err(NotA::plain()) }
}

/// Reads `4MiB`, `64KiB`, `10MB` or a plain number of bytes.
pub(crate) fn size(text: &str) -> Result<u64, NotA> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (value, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    if unit.is_empty() {
        return integer(value);
    }
    let Some((_, scale)) = SIZE_UNITS.iter().find(|(u, _)| *u == unit) else {
        let same = SIZE_UNITS.iter().find(|(u, _)| {
            u.eq_ignore_ascii_case(unit) || u.trim_end_matches("iB").eq_ignore_ascii_case(unit) && u.ends_with("iB")
        });
        let hint = same.map_or_else(
            || "the units are B, KiB, MiB and GiB (or KB, MB and GB, thousands)".to_owned(),
            |(u, _)| format!("write `{value}{u}`"),
        );
        return Err(NotA::hinted(hint));
    };
    let bytes = number(value)? * scale;
    if bytes < u64::MAX as f64 { Ok(bytes.round() as u64) } else { Err(NotA::plain()) }
}

/// Reads a number, `_` allowed between digits.
pub(crate) fn number(text: &str) -> Result<f64, NotA> {
    let clean = without_underscores(text)?;
    if !clean.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+')) {
        return Err(NotA::plain());
    }
    match clean.parse::<f64>() {
        Ok(v) if v.is_finite() => Ok(v),
        _ => Err(NotA::plain()),
    }
}

/// Reads a whole number, `_` allowed between digits.
pub(crate) fn integer(text: &str) -> Result<u64, NotA> {
    without_underscores(text)?.parse().map_err(|_| NotA::plain())
}

/// Reads `50%` or `0.5` as 0.5.
pub(crate) fn fraction(text: &str) -> Result<f64, NotA> {
    match text.strip_suffix('%') {
        Some(percent) => Ok(number(percent.trim_end())? / 100.0),
        None => number(text),
    }
}

fn without_underscores(text: &str) -> Result<String, NotA> {
    if text.starts_with('_') || text.ends_with('_') || text.contains("__") {
        return Err(NotA::plain());
    }
    Ok(text.replace('_', ""))
}

/// Writes seconds the way [`duration`] reads them, in the fewest units that lose nothing: `1m30s`, `250ms`, `1.5s`.
pub(crate) fn show_seconds(seconds: f64) -> String {
    if seconds <= 0.0 {
        return "0s".to_owned();
    }
    if seconds < 1.0 {
        let (value, unit) = if seconds < 1e-3 { (seconds * 1e6, "us") } else { (seconds * 1e3, "ms") };
        return format!("{}{unit}", (value * 1e3).round() / 1e3);
    }
    let whole = seconds.round() as u64;
    if (seconds - whole as f64).abs() > 1e-9 {
        return format!("{}s", (seconds * 1e3).round() / 1e3);
    }
    let mut out = String::new();
    let mut rest = whole;
    for (unit, scale) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        if rest >= scale {
            out.push_str(&format!("{}{unit}", rest / scale));
            rest %= scale;
        }
    }
    out
}

/// Writes bytes the way [`size`] reads them.
pub(crate) fn show_size(bytes: u64) -> String {
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
        .iter()
        .find(|(_, scale)| bytes >= *scale && bytes.is_multiple_of(*scale))
        .map_or_else(|| format!("{bytes}B"), |(unit, scale)| format!("{}{unit}", bytes / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, millis: u64| assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        check("30s", 30_000);
        check("250ms", 250);
        check("1m30s", 90_000);
        check("1.5h", 5_400_000);
        check("1_000ms", 1000);
        check("0", 0);
        for bad in ["", "s", "5", "5x", "5sec", "1min", "-5s", "5s3", "five", "1e3s", "9999999999999d", ".", "1..2s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(duration("5").unwrap_err().hint, "a duration needs its unit: `5s` or `5ms`");
    }

    #[test]
    fn sizes() {
        assert_eq!(size("4MiB"), Ok(4 << 20));
        assert_eq!(size("64 KiB"), Ok(64 << 10));
        assert_eq!(size("1.5KB"), Ok(1500));
        assert_eq!(size("10_000"), Ok(10_000));
        assert_eq!(size("4mib").unwrap_err().hint, "write `4MiB`");
        assert_eq!(size("4M").unwrap_err().hint, "write `4MiB`");
        assert!(size("").is_err() && size("-1").is_err() && size("MiB").is_err());
    }

    #[test]
    fn numbers() {
        assert_eq!(number("10_000.5"), Ok(10_000.5));
        assert_eq!(fraction("50%"), Ok(0.5));
        assert_eq!(fraction(".5"), Ok(0.5));
        assert_eq!(integer("1_0"), Ok(10));
        for bad in ["", "_1", "1_", "1__0", "inf", "nan", "0x10", "1e999", "%"] {
            assert!(number(bad).is_err() && fraction(bad).is_err() && integer(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for s in [0.0, 0.000_25, 0.25, 1.0, 1.5, 90.0, 3600.0, 86_400.0, 90_061.0] {
            let text = show_seconds(s);
            assert!((duration(&text).unwrap().as_secs_f64() - s).abs() < 1e-9, "{text}");
        }
        assert_eq!(show_seconds(90.0), "1m30s");
        for b in [1, 1000, 1024, 64 << 10, 5 << 30] {
            assert_eq!(size(&show_size(b)), Ok(b));
        }
    }
}
