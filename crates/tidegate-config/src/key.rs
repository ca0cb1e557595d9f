//! One definition per key.
//!
//! Parsing, error messages, the JSON Schema and the docs page all read the same [`Key`], so a name, type, range or default is written
//! once. A default is written as a user would write it and goes through the same parser as the user's own text, so the docs cannot promise
//! another value than the program uses.

use crate::units::{show_seconds, show_size};
use std::fmt;
use tidegate_core::descriptor::ParamKind;

/// A mapping of the config file: its keys and what it is for.
#[derive(Debug)]
pub struct Table {
    /// The place, as docs write it: `pools.NAME.health`.
    pub place: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The keys, in the order in which docs list them.
    pub keys: &'static [Key],
}

impl Table {
    /// The key called `name`.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|k| k.name == name)
    }
}

/// One key of a [`Table`].
#[derive(Debug)]
pub struct Key {
    /// The key as written in the file.
    pub name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// What holds when the key is absent.
    pub absent: Absent,
    /// What the key does, in one sentence.
    pub summary: &'static str,
    /// A value that works, as written in the file.
    pub example: &'static str,
}

/// What holds when a key is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The file is refused.
    Required,
    /// This value, written as a user would write it.
    Default(&'static str),
    /// Something that is not a value of the key, in words: `no active checks`.
    Means(&'static str),
}

/// Type and inclusive range of a key.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `30s`, `250ms`, `1m30s`; the range is in seconds.
    Duration {
        /// Shortest allowed, in seconds.
        min: f64,
        /// Longest allowed, in seconds.
        max: f64,
        /// A word that stands for no duration at all, `none` or `off`.
        word: Option<&'static str>,
    },
    /// `4MiB` or a number of bytes; the range is in bytes.
    Size {
        /// Smallest allowed, in bytes.
        min: u64,
        /// Largest allowed, in bytes.
        max: u64,
    },
    /// A share: `50%` or `0.5`.
    Fraction {
        /// Smallest allowed, 0..1.
        min: f64,
        /// Largest allowed, 0..1.
        max: f64,
        /// A word that stands for no share at all.
        word: Option<&'static str>,
    },
    /// A number.
    Number {
        /// Smallest allowed.
        min: f64,
        /// Largest allowed.
        max: f64,
    },
    /// A whole number.
    Integer {
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
        /// A word that stands for no number at all.
        word: Option<&'static str>,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Bool,
    /// An IP address and a port: `127.0.0.1:8080`.
    Address,
    /// `http://host:port`.
    Url,
    /// `http://host:port/path`.
    PageUrl,
    /// `tcp://host:port`.
    PublisherUrl,
    /// The path of an HTTP request, starting with `/`.
    Path,
    /// A number, a duration (in seconds) or a percentage (0..1): whatever a metric may be compared with.
    Reading,
    /// A metric: `p99(tidegate_ttft_seconds{pool="chat"})`.
    Expression,
    /// Any text, such as the path of a file.
    Text,
    /// HTTP status codes: `200`, `2xx` or `200-399`.
    Statuses,
    /// A secret: never shown again.
    Secret,
    /// A name, of a pool for instance.
    Name,
    /// Patterns in which `*` stands for any text.
    Globs,
    /// One text or a list of texts, each of a form the example shows.
    Texts,
    /// Digests of secrets, one or a list. What stands there by mistake is a secret, so it is never shown.
    Digests,
    /// `10_000 tokens/min`: so much of a quantity per time.
    Rate,
    /// Names of headers with the pattern their value must match.
    HeaderGlobs,
    /// Where in a request a key is found.
    KeySource,
    /// A policy: a bare name, or a mapping with `name` and the policy's parameters.
    Policy,
    /// A breaker: a bare name, or a mapping with `name` and the breaker's parameters.
    Breaker,
    /// A mapping.
    Table(&'static Table),
    /// A mapping, or the word that switches it off.
    TableOr(&'static Table, &'static str),
    /// A list of mappings.
    List(&'static Table),
    /// Mappings under names the user chooses.
    Named(&'static Table),
}

impl Kind {
    /// The table of a mapping, a list of mappings or named mappings.
    pub fn table(&self) -> Option<&'static Table> {
        match *self {
            Self::Table(t) | Self::TableOr(t, _) | Self::List(t) | Self::Named(t) => Some(t),
            _ => None,
        }
    }

    /// The word that switches the key off, where there is one.
    pub fn word(&self) -> Option<&'static str> {
        match *self {
            Self::Duration { word, .. } | Self::Fraction { word, .. } | Self::Integer { word, .. } => word,
            Self::TableOr(_, word) => Some(word),
            _ => None,
        }
    }

    /// Whether a value is masked wherever it would be shown.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self, Self::Secret | Self::Digests)
    }

    /// The kind of a policy's parameter; `unit` is the parameter's. Fractions may be written as percentages.
    pub fn of_param(kind: ParamKind, unit: &str) -> Self {
        match kind {
            ParamKind::Float { min, max } if matches!(unit, "fraction" | "load") && max <= 1.0 => {
                Self::Fraction { min, max, word: None }
            }
            ParamKind::Float { min, max } => Self::Number { min, max },
            ParamKind::Integer { min, max } => Self::Integer { min, max, word: None },
            ParamKind::Duration { min, max, can_be_off } => {
                Self::Duration { min, max, word: can_be_off.then_some("off") }
            }
            ParamKind::Choice(words) => Self::Choice(words),
            ParamKind::Bool => Self::Bool,
            ParamKind::Key => Self::KeySource,
            ParamKind::Path => Self::Path,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Duration { min, max, .. } => {
                write!(f, "a duration from {} to {}", show_seconds(min), show_seconds(max))
            }
            Self::Size { min, max } => write!(f, "a size from {} to {}", show_size(min), show_size(max)),
            Self::Fraction { min, max, .. } => write!(f, "a share from {min} to {max}, or a percentage"),
            Self::Number { min, max } => write!(f, "a number from {min} to {max}"),
            Self::Integer { min, max, .. } => write!(f, "a whole number from {min} to {max}"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Bool => f.write_str("true or false"),
            Self::Address => f.write_str("an IP address and a port"),
            Self::Url => f.write_str("http://host:port"),
            Self::PageUrl => f.write_str("http://host:port/path"),
            Self::PublisherUrl => f.write_str("tcp://host:port"),
            Self::Path => f.write_str("a path that starts with /"),
            Self::Reading => f.write_str("a number, a duration or a percentage"),
            Self::Expression => {
                f.write_str("NAME{label=\"value\"}, alone or in one of p50 to p99.9, rate, max, min, avg, sum")
            }
            Self::Text => f.write_str("text"),
            Self::Statuses => f.write_str("status codes from 100 to 599: 200, 2xx or 200-399"),
            Self::Secret => f.write_str("a secret of at least one character"),
            Self::Name => f.write_str("a name"),
            Self::Globs => f.write_str("a list of patterns, * for any text"),
            Self::Texts => f.write_str("one text, or a list of texts"),
            Self::Digests => f.write_str("`sha256:` and 64 hexadecimal digits, one or a list"),
            Self::Rate => f.write_str(crate::rate::ALLOWED),
            Self::HeaderGlobs => f.write_str("a mapping from header names to patterns, * for any text"),
            Self::KeySource => f.write_str("{ header: NAME }, { cookie: NAME }, { body: FIELD }, tenant or prompt"),
            Self::Policy => f.write_str("the name of a policy, or a mapping with its name and parameters"),
            Self::Breaker => f.write_str("the name of a breaker, or a mapping with its name and parameters"),
            Self::Table(t) | Self::TableOr(t, _) => write!(f, "a mapping with {}", names(t)),
            Self::List(t) => write!(f, "a list of mappings with {}", names(t)),
            Self::Named(t) => write!(f, "names, each with a mapping of {}", names(t)),
        }?;
        match self.word() {
            Some(word) => write!(f, ", or {word}"),
            None => Ok(()),
        }
    }
}

/// The keys of a table in one line.
pub(crate) fn names(table: &Table) -> String {
    table.keys.iter().map(|k| k.name).collect::<Vec<_>>().join(", ")
}
