//! Patterns in which `*` stands for any text.

use std::fmt;

/// A pattern: `*` stands for any text, the empty text included; everything else stands for itself, letter case included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    /// The pattern `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `text` fits. Runs of `*` are taken greedily from the left, which needs no backtracking: O(pattern x text) at worst.
    pub fn matches(&self, text: &str) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut text) = text.strip_prefix(head) else { return false };
        let mut parts = rest.split('*').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return text.ends_with(part);
            }
            let Some(at) = text.find(part) else { return false };
            text = text.get(at + part.len()..).unwrap_or_default();
        }
        true
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, expect) in [
            ("llama-3", "llama-3", true),
            ("llama-*", "llama-3-8b", true),
            ("llama-*", "qwen", false),
            ("*", "", true),
            ("*-8b", "llama-8b", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("a*a", "a", false),
            ("*a*", "xay", true),
            ("", "x", false),
        ] {
            assert_eq!(Glob::new(pattern).matches(text), expect, "{pattern} {text}");
        }
    }
}
