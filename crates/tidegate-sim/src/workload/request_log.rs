//! Tidegate's own request log as a trace: what users have of their own traffic.
//!
//! JSON lines as `tidegate serve` writes them with `log: { format: json, level: debug }`. Taken of each: `timestamp` less `total_s`, which
//! is when the request came; `prompt_tokens`; `output_events` as the length of the answer. Other lines are skipped. A log is in order of
//! the ends of requests, so it is sorted by their beginnings.

use serde_json::Value;
use tidegate_core::time::duration_from_secs;

use super::trace::{Trace, TraceError, TraceRequest};

/// Whether the text looks like JSON lines; `serve` says where it listens before the first of them.
pub fn is_log(text: &str) -> bool {
    text.lines().take(20).any(|l| l.starts_with('{'))
}

/// Reads a log.
///
/// # Errors
/// No line of it is the record of a request.
pub fn read(text: &str) -> Result<Trace, TraceError> {
    let mut found: Vec<(f64, TraceRequest)> = text.lines().filter_map(record).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(&(start, _)) = found.first() else {
        let message =
            "no record of a request: expected JSON lines with timestamp, prompt_tokens, output_events, total_s";
        return Err(TraceError { line: 1, message: message.into() });
    };
    let requests = found.into_iter().map(|(at, r)| TraceRequest { at: duration_from_secs(at - start), ..r }).collect();
    Ok(Trace { requests, ..Trace::default() })
}

fn record(line: &str) -> Option<(f64, TraceRequest)> {
    let value: Value = serde_json::from_str(line).ok()?;
    // The log's formatter may nest the record's fields.
    let field = |name: &str| value.get(name).or_else(|| value.get("fields")?.get(name));
    let ended = unix_s(field("timestamp")?.as_str()?)?;
    let total_s = field("total_s")?.as_f64()?;
    let count = |name| field(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let request = TraceRequest {
        prompt_tokens: count("prompt_tokens")?,
        output_tokens: count("output_events").unwrap_or(1).max(1),
        ..TraceRequest::default()
    };
    Some((ended - total_s, request))
}

/// Seconds since 1970 of an RFC 3339 time in UTC, `2026-01-31T12:00:00.123Z`.
fn unix_s(text: &str) -> Option<f64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut parts = date.split('-').map(|p| p.parse::<i64>().ok());
    let (y, m, d) = (parts.next()??, parts.next()??, parts.next()??);
    let mut parts = time.split(':').map(|p| p.parse::<f64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    // Days since 1970 of a proleptic Gregorian date, years beginning in March (Hinnant, days_from_civil).
    let y = if m <= 2 { y - 1 } else { y };
    let era = y.div_euclid(400);
    let year = y - era * 400;
    let day = (153 * (m + if m > 2 { -3 } else { 9 }) + 2) / 5 + d - 1;
    let days = era * 146_097 + year * 365 + year / 4 - year / 100 + day - 719_468;
    Some(days as f64 * 86_400.0 + hours * 3600.0 + minutes * 60.0 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_sorted_by_when_they_came() {
        let log = r#"listening on http://127.0.0.1:8080
{"timestamp":"2026-01-31T12:00:03.500Z","fields":{"message":"request","prompt_tokens":10,"output_events":5,"total_s":0.5}}
{"timestamp":"2026-01-31T12:00:03.600Z","level":"WARN","message":"something else"}
{"timestamp":"2026-01-31T12:00:04.000Z","prompt_tokens":20,"output_events":7,"total_s":2.0}"#;
        assert!(is_log(log));
        let trace = read(log).unwrap();
        let lengths: Vec<_> = trace.requests.iter().map(|r| (r.at.as_millis(), r.prompt_tokens)).collect();
        assert_eq!(lengths, [(0, 20), (1000, 10)]);
        assert!(read("{}\n").is_err());
    }

    #[test]
    fn dates() {
        assert_eq!(unix_s("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(unix_s("2000-03-01T00:00:01.5Z"), Some(951_868_801.5));
        assert_eq!(unix_s("yesterday"), None);
    }
}
