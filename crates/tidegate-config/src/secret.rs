//! A value that is used and never shown.

use std::fmt;

/// A secret from the config file: `Debug` and `Display` say `***`, so that no log line, panic message or dump of a config shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The secret itself, to compare or to send. The long name is to be seen in review.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let s = Secret::new("hunter2");
        assert_eq!(format!("{s} {s:?} {s:#?}"), "*** *** ***");
        assert_eq!(s.expose(), "hunter2");
    }
}
