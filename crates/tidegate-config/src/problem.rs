//! What is wrong with a config file, said so that it can be put right.
//!
//! A problem is data: where, what was found, what is allowed, and a hint with an example. The same value is printed on a terminal, as JSON
//! by `tidegate check --json`, and by the reload log. Plain text by hand instead of a diagnostics crate: one layout, no colours to
//! negotiate, nothing that could print the secret on the line next to it.

use serde_json::{Value, json};
use std::fmt;

/// Whether a file with this problem is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is used; the setting does not do what it seems to say.
    Warning,
}

impl Severity {
    /// `"error"` or `"warning"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// The kind of a problem; [`ProblemKind::code`] is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The file could not be read at all.
    Unreadable,
    /// The text is not YAML.
    Syntax,
    /// An environment variable is not set, or its use is malformed.
    Environment,
    /// A key that does not exist at this place.
    UnknownKey,
    /// A key given twice.
    DuplicateKey,
    /// A value of another type than the key's.
    WrongType,
    /// A value of the right type outside its range.
    OutOfRange,
    /// A key that must be given.
    Missing,
    /// Two settings that cannot both hold.
    Contradiction,
}

impl ProblemKind {
    /// The stable word for this kind, as in `tidegate check --json`.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Syntax => "syntax",
            Self::Environment => "environment",
            Self::UnknownKey => "unknown_key",
            Self::DuplicateKey => "duplicate_key",
            Self::WrongType => "wrong_type",
            Self::OutOfRange => "out_of_range",
            Self::Missing => "missing",
            Self::Contradiction => "contradiction",
        }
    }
}

/// One problem of a config file.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Whether the file is refused.
    pub severity: Severity,
    /// What kind of problem it is.
    pub kind: ProblemKind,
    /// The name of the file.
    pub source: String,
    /// Line, from 1; 0 if the file could not be read.
    pub line: usize,
    /// Column in characters, from 1; 0 if the file could not be read.
    pub column: usize,
    /// Characters to underline on that line (at least 1).
    pub width: usize,
    /// The key's place, such as `pools.chat.endpoints[0].url`; empty at the top.
    pub path: String,
    /// What the file says. Never a secret.
    pub found: String,
    /// What it may say.
    pub allowed: String,
    /// What to do, with an example that works.
    pub hint: String,
    /// The line itself, secrets masked; of a long line the part around the problem.
    pub excerpt: String,
    /// Characters of `excerpt` before the first that is underlined.
    pub caret: usize,
}

impl Problem {
    /// The JSON object of `tidegate check --json`.
    pub fn to_json(&self) -> Value {
        json!({
            "severity": self.severity.name(), "code": self.kind.code(), "file": self.source, "line": self.line, "column": self.column,
            "path": self.path, "found": self.found, "allowed": self.allowed, "hint": self.hint,
        })
    }

    /// Whether the file is refused because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity.name(), self.source)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if self.path.is_empty() {
            writeln!(f)?;
        } else {
            writeln!(f, ": {}", self.path)?;
        }
        if self.line > 0 {
            let margin = self.line.to_string().len().max(4);
            // Tabs keep their width in the row of carets, so that the carets stand below what they mark on any terminal.
            let lead: String =
                self.excerpt.chars().take(self.caret).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            writeln!(f, "{:margin$} | {}", self.line, self.excerpt)?;
            writeln!(f, "{:margin$} | {lead}{}", "", "^".repeat(self.width.max(1)))?;
        }
        write!(f, "  found:   {}", self.found)?;
        for (label, text) in [("allowed", &self.allowed), ("hint", &self.hint)] {
            if !text.is_empty() {
                write!(f, "\n  {:<8} {text}", format!("{label}:"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_from_place_to_remedy() {
        let p = Problem {
            severity: Severity::Error,
            kind: ProblemKind::WrongType,
            source: "gw.yaml".into(),
            line: 12,
            column: 17,
            width: 1,
            path: "pools.chat.health.interval".into(),
            found: "5".into(),
            allowed: "a duration".into(),
            hint: "give a unit: `5s`".into(),
            excerpt: "      interval: 5".into(),
            caret: 16,
        };
        assert_eq!(
            p.to_string(),
            "error: gw.yaml:12:17: pools.chat.health.interval\n  12 |       interval: 5\n     |                 ^\n  found:   5\n  \
             allowed: a duration\n  hint:    give a unit: `5s`"
        );
    }
}
