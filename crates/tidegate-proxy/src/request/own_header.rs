//! Headers by which a request says something to the gateway itself: `x-tidegate-*` with a value.
//!
//! One rule for all: where such a header is read it stands once, and its value is one that it may have; else the request is refused with 400
//! `invalid_header`, which names it. Two of a kind are not added, nor does one of them count: which one would depend on who in between joins
//! or sorts headers, and a goal that is silently another one is worse than a refusal. Where it is not read it passes like any other.

use crate::request::error::ProxyError;
use crate::request::shown::shown;
use http::{HeaderMap, HeaderName};

/// A header, and what it may say.
#[derive(Debug)]
pub(crate) struct OwnHeader {
    pub(crate) name: HeaderName,
    /// Its least and its largest value: whole numbers.
    pub(crate) min: u64,
    pub(crate) max: u64,
    /// What its value is, for the person who sent another.
    pub(crate) is: &'static str,
}

impl OwnHeader {
    /// What `headers` say, taken out of them; `None` if they say nothing.
    ///
    /// # Errors
    /// If it stands there more than once, or its value is none that it may have.
    pub(crate) fn take(&self, headers: &mut HeaderMap) -> Result<Option<u64>, ProxyError> {
        let times = headers.get_all(&self.name).iter().count();
        let Some(value) = headers.remove(&self.name) else { return Ok(None) };
        if times > 1 {
            return Err(self.refuse(&format!("it stands there {times} times")));
        }
        let text = String::from_utf8_lossy(value.as_bytes());
        let text = text.trim();
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|n| is_number && (self.min..=self.max).contains(n));
        number.map(Some).ok_or_else(|| self.refuse(&format!("found `{}`", shown(text))))
    }

    fn refuse(&self, found: &str) -> ProxyError {
        let message = format!("{} is {}, given once: {found}", self.name, self.is);
        ProxyError::InvalidHeader { name: self.name.clone(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    static PACE: OwnHeader = OwnHeader {
        name: HeaderName::from_static("x-tidegate-pace"),
        min: 1,
        max: 60,
        is: "a whole number from 1 to 60",
    };

    fn of(values: &[&[u8]]) -> Result<Option<u64>, String> {
        let mut headers = HeaderMap::new();
        headers.insert("x-other", HeaderValue::from_static("5"));
        for value in values {
            headers.append(&PACE.name, HeaderValue::from_bytes(value).unwrap());
        }
        let said = PACE.take(&mut headers);
        assert_eq!(headers.len(), 1, "taken out whatever it said");
        said.map_err(|error| {
            assert_eq!((error.status().as_u16(), error.code()), (400, "invalid_header"));
            error.message()
        })
    }

    #[test]
    fn a_value_is_a_number_within_bounds_and_stands_once() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!([of(&[b"1"]), of(&[b" 60 "]), of(&[b"007"])], [Ok(Some(1)), Ok(Some(60)), Ok(Some(7))]);
        let bad: [&[u8]; 13] = [
            b"",
            b" ",
            b"0",
            b"61",
            b"-1",
            b"+1",
            b"1.5",
            b"1e1",
            b"1, 2",
            b"soon",
            b"\xff",
            b"0x5",
            b"99999999999999999999999",
        ];
        for bad in bad {
            let message = of(&[bad]).unwrap_err();
            assert!(
                message.starts_with("x-tidegate-pace is a whole number from 1 to 60, given once: found `"),
                "{message}"
            );
        }
        for twice in [[&b"5"[..], b"6"], [b"5", b"5"], [b"", b"5"]] {
            assert!(of(&twice).unwrap_err().ends_with("it stands there 2 times"));
        }
        assert!(of(&[&[b'9'; 5000]]).unwrap_err().len() < 250, "a long value is cut");
    }
}
