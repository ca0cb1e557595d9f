//! One text to one value of a [`Kind`], type and range checked. The user's text and a key's default both come through here.

use crate::key::Kind;
use crate::nearest::nearest;
use crate::units::{self, NotA};
use std::net::SocketAddr;
use std::time::Duration;

/// Why a text is not a value of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    /// Another type; with a hint, which may be empty.
    Type(String),
    /// The right type, out of range; with a hint, which may be empty.
    Range(String),
}

impl From<NotA> for Bad {
    fn from(n: NotA) -> Self {
        Self::Type(n.hint)
    }
}

fn wrong<T>() -> Result<T, Bad> {
    Err(Bad::Type(String::new()))
}

fn ranged<T>(inside: bool, value: T) -> Result<T, Bad> {
    if inside { Ok(value) } else { Err(Bad::Range(String::new())) }
}

/// A duration, `None` for the kind's word.
pub(crate) fn duration(kind: &Kind, text: &str) -> Result<Option<Duration>, Bad> {
    let Kind::Duration { min, max, word } = *kind else { return wrong() };
    if Some(text) == word {
        return Ok(None);
    }
    let value = units::duration(text)?;
    let seconds = value.as_secs_f64();
    ranged(seconds >= min && seconds <= max, Some(value))
}

/// A size in bytes.
pub(crate) fn size(kind: &Kind, text: &str) -> Result<u64, Bad> {
    let Kind::Size { min, max } = *kind else { return wrong() };
    let value = units::size(text)?;
    ranged(value >= min && value <= max, value)
}

/// A share or a plain number, `None` for the kind's word.
pub(crate) fn number(kind: &Kind, text: &str) -> Result<Option<f64>, Bad> {
    match *kind {
        Kind::Fraction { word, .. } if Some(text) == word => Ok(None),
        Kind::Fraction { min, max, .. } => {
            let value = units::fraction(text)?;
            if value >= min && value <= max {
                return Ok(Some(value));
            }
            let percent = !text.ends_with('%') && value / 100.0 >= min && value / 100.0 <= max;
            Err(Bad::Range(if percent { format!("write `{text}%` for a percentage") } else { String::new() }))
        }
        Kind::Number { min, max } => {
            let value = units::number(text)?;
            ranged(value >= min && value <= max, Some(value))
        }
        _ => wrong(),
    }
}

/// A number, a duration in seconds, or a percentage as a share.
pub(crate) fn reading(_: &Kind, text: &str) -> Result<f64, Bad> {
    if let Ok(number) = units::fraction(text) {
        return Ok(number);
    }
    Ok(units::duration(text)?.as_secs_f64())
}

/// A whole number, `None` for the kind's word.
pub(crate) fn integer(kind: &Kind, text: &str) -> Result<Option<u64>, Bad> {
    let Kind::Integer { min, max, word } = *kind else { return wrong() };
    if Some(text) == word {
        return Ok(None);
    }
    // A negative or very large whole number is of the right type, so that the message is about the range.
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text).replace('_', "");
    let is_whole = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
    match units::integer(text) {
        Ok(value) => ranged(value >= min && value <= max, Some(value)),
        Err(_) if is_whole => Err(Bad::Range(String::new())),
        Err(n) => Err(n.into()),
    }
}

/// One of the kind's words.
pub(crate) fn choice(kind: &Kind, text: &str) -> Result<&'static str, Bad> {
    let Kind::Choice(words) = *kind else { return wrong() };
    if let Some(word) = words.iter().find(|w| **w == text) {
        return Ok(word);
    }
    let hint = nearest(text, words.iter().copied()).map(|w| format!("did you mean `{w}`?"));
    Err(Bad::Range(hint.unwrap_or_default()))
}

/// `true` or `false`; YAML 1.2 has no `yes` and `on`.
pub(crate) fn boolean(kind: &Kind, text: &str) -> Result<bool, Bad> {
    match (kind, text) {
        (Kind::Bool, "true") => Ok(true),
        (Kind::Bool, "false") => Ok(false),
        (Kind::Bool, _) => match text.to_ascii_lowercase().as_str() {
            "yes" | "on" | "true" => Err(Bad::Type("write `true`".to_owned())),
            "no" | "off" | "false" => Err(Bad::Type("write `false`".to_owned())),
            _ => wrong(),
        },
        _ => wrong(),
    }
}

/// An IP address and a port. Names are refused: which address they mean is decided elsewhere and may change.
pub(crate) fn address(_: &Kind, text: &str) -> Result<SocketAddr, Bad> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let hint = match text.rsplit_once(':') {
        Some(("", port)) | Some(("*", port)) => format!("for every interface write `0.0.0.0:{port}`"),
        Some(("localhost", port)) => format!("write `127.0.0.1:{port}`"),
        None if text.parse::<u16>().is_ok() => {
            format!("write `127.0.0.1:{text}`, or `0.0.0.0:{text}` for every interface")
        }
        None if text.parse::<std::net::IpAddr>().is_ok() => "the port is missing".to_owned(),
        _ => String::new(),
    };
    Err(Bad::Type(hint))
}

/// The path of a request.
pub(crate) fn path(_: &Kind, text: &str) -> Result<String, Bad> {
    if !text.starts_with('/') {
        return Err(Bad::Type(format!("write `/{text}`")));
    }
    let clean = text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    if clean {
        Ok(text.to_owned())
    } else {
        Err(Bad::Type("percent-encode spaces and letters outside ASCII".to_owned()))
    }
}

/// A range of HTTP status codes, both ends included.
pub(crate) fn statuses(_: &Kind, text: &str) -> Result<(u16, u16), Bad> {
    let code = |t: &str| t.trim().parse::<u16>().map_err(|_| Bad::Type(String::new()));
    let (low, high) = match text.split_once('-') {
        Some((low, high)) => (code(low)?, code(high)?),
        None => match text.strip_suffix("xx") {
            Some(class) => {
                let class = code(class)?;
                ranged(class < 10, ())?;
                (class * 100, class * 100 + 99)
            }
            None => (code(text)?, code(text)?),
        },
    };
    ranged(low >= 100 && high <= 599 && low <= high, (low, high))
}

/// A name that is safe in metrics, headers and paths.
pub(crate) fn name(_: &Kind, text: &str) -> Result<String, Bad> {
    let clean = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if !clean || text.is_empty() {
        return Err(Bad::Type("a name has letters, digits, _, - and . only".to_owned()));
    }
    if text.len() > 64 { Err(Bad::Range("a name has at most 64 characters".to_owned())) } else { Ok(text.to_owned()) }
}

/// Any text that is not empty.
pub(crate) fn text(_: &Kind, text: &str) -> Result<String, Bad> {
    if text.is_empty() { wrong() } else { Ok(text.to_owned()) }
}

/// The name of a header, in lower case.
pub(crate) fn header_name(text: &str) -> Result<String, Bad> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if text.is_empty() || !text.chars().all(is_token) {
        return Err(Bad::Type("a header's name has letters, digits and dashes only".to_owned()));
    }
    Ok(text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_with_a_remedy() {
        assert!(address(&Kind::Address, "[::1]:80").is_ok());
        for (text, hint) in [
            (":8080", "for every interface write `0.0.0.0:8080`"),
            ("localhost:80", "write `127.0.0.1:80`"),
            ("8080", "write `127.0.0.1:8080`, or `0.0.0.0:8080` for every interface"),
            ("10.0.0.1", "the port is missing"),
            ("host:80", ""),
        ] {
            assert_eq!(address(&Kind::Address, text), Err(Bad::Type(hint.to_owned())), "{text}");
        }
    }

    #[test]
    fn status_ranges() {
        for (text, expect) in [("200", Some((200, 200))), ("2xx", Some((200, 299))), ("200-399", Some((200, 399)))] {
            assert_eq!(statuses(&Kind::Statuses, text).ok(), expect);
        }
        for bad in ["", "9xx", "399-200", "99", "600", "2x", "ok", "99xx"] {
            assert!(statuses(&Kind::Statuses, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_negative_number_is_out_of_range_not_of_another_type() {
        let kind = Kind::Integer { min: 1, max: 9, word: Some("none") };
        assert_eq!(integer(&kind, "-1"), Err(Bad::Range(String::new())));
        assert_eq!(integer(&kind, "none"), Ok(None));
        assert_eq!(integer(&kind, "1.5"), Err(Bad::Type(String::new())));
    }
}
