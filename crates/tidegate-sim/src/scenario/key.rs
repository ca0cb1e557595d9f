//! How keys of scenarios and studies are defined: the kinds that come again and again, each once.

use tidegate_config::{Absent, Key, Kind, Table};

/// What stands there if nothing is said, which is its example too.
pub(crate) const fn or(default: &'static str) -> (Absent, &'static str) {
    (Absent::Default(default), default)
}

/// What stands there if nothing is said, and another example.
pub(crate) const fn or_such_as(default: &'static str, example: &'static str) -> (Absent, &'static str) {
    (Absent::Default(default), example)
}

/// What holds if nothing is said, in words, and an example.
pub(crate) const fn means(words: &'static str, example: &'static str) -> (Absent, &'static str) {
    (Absent::Means(words), example)
}

/// It has to be said; an example.
pub(crate) const fn required(example: &'static str) -> (Absent, &'static str) {
    (Absent::Required, example)
}

/// A key of any kind.
pub(crate) const fn key(
    name: &'static str,
    kind: Kind,
    (absent, example): (Absent, &'static str),
    summary: &'static str,
) -> Key {
    Key { name, kind, absent, summary, example }
}

/// A time in seconds, within a range.
pub(crate) const fn time(
    name: &'static str,
    (min, max): (f64, f64),
    absent: (Absent, &'static str),
    summary: &'static str,
) -> Key {
    key(name, Kind::Duration { min, max, word: None }, absent, summary)
}

/// A whole number of at least 1.
pub(crate) const fn count(name: &'static str, max: u64, absent: (Absent, &'static str), summary: &'static str) -> Key {
    key(name, Kind::Integer { min: 1, max, word: None }, absent, summary)
}

/// A number, within a range.
pub(crate) const fn number(
    name: &'static str,
    (min, max): (f64, f64),
    absent: (Absent, &'static str),
    summary: &'static str,
) -> Key {
    key(name, Kind::Number { min, max }, absent, summary)
}

/// A share, within a range.
pub(crate) const fn share(
    name: &'static str,
    (min, max): (f64, f64),
    absent: (Absent, &'static str),
    summary: &'static str,
) -> Key {
    key(name, Kind::Fraction { min, max, word: None }, absent, summary)
}

/// Whether something is so.
pub(crate) const fn flag(name: &'static str, absent: (Absent, &'static str), summary: &'static str) -> Key {
    key(name, Kind::Bool, absent, summary)
}

/// The name of something in the report.
pub(crate) const fn label(example: &'static str) -> Key {
    key("name", Kind::Name, required(example), "Its name in the report.")
}

/// A list of tables.
pub(crate) const fn list(
    name: &'static str,
    of: &'static Table,
    absent: (Absent, &'static str),
    summary: &'static str,
) -> Key {
    key(name, Kind::List(of), absent, summary)
}
