//! Walks one mapping against its [`Table`].
//!
//! A section asks for its keys one by one and always gets a value: the user's, else the default, else a stand-in. What is wrong is
//! recorded on the way, so the walk goes on and one mistake does not hide the next. After the section has read its keys, those left over
//! are unknown.

use crate::breaker::{self, Breaker};
use crate::key::{Absent, Key, Kind, Table, names};
use crate::node::{Content, Node, Span};
use crate::policy::Policy;
use crate::problem::{ProblemKind, Severity};
use crate::scalar::{self, Bad};
use crate::secret::Secret;
use crate::unknown;
use crate::walk::{Complaint, EMPTY, Mark, Place, Walk, describe};
use std::time::Duration;

/// A part of the config that is read from one mapping.
pub trait Section: Sized {
    /// The keys.
    const TABLE: &'static Table;
    /// Reads every key of the table.
    fn read(r: &mut Reader<'_, '_>) -> Self;
}

/// A mapping that may be switched off by a word.
#[derive(Debug)]
pub enum Switch<T> {
    /// Neither was given.
    Absent,
    /// The word.
    Off,
    /// The mapping.
    On(T),
}

/// One entry of the mapping that is read.
struct Entry<'n> {
    name: &'n str,
    key: &'n Node,
    value: &'n Node,
}

/// The reader of one mapping.
pub struct Reader<'r, 'a> {
    pub(crate) walk: &'r mut Walk<'a>,
    table: &'static Table,
    entries: Vec<Entry<'r>>,
    place: Place,
    asked: Vec<&'static str>,
    bad: Vec<&'static str>,
}

/// Reads `node`, which stands at `place`, as a section. Something else than a mapping is one problem, and the section is then read from
/// nothing without further complaints.
pub(crate) fn section<T: Section>(walk: &mut Walk<'_>, node: &Node, place: &Place) -> T {
    section_of(walk, &Kind::Table(T::TABLE), node, place)
}

/// [`section`] for a key of `kind`, which may have a word that switches it off.
fn section_of<T: Section>(walk: &mut Walk<'_>, kind: &Kind, node: &Node, place: &Place) -> T {
    let entries = match &node.content {
        Content::Map(entries) => entries.as_slice(),
        _ if node.is_null() => &[],
        _ => {
            let complaint = Complaint {
                found: describe(node, false),
                allowed: kind.to_string(),
                hint: off_hint(kind, node).unwrap_or_else(|| unknown::table_example(T::TABLE)),
            };
            walk.error(ProblemKind::WrongType, &Place { span: node.span, path: place.path.clone() }, complaint);
            return fallback(walk, place);
        }
    };
    let mut reader = Reader::new(walk, T::TABLE, place.clone());
    reader.take_entries(entries);
    let value = T::read(&mut reader);
    reader.finish();
    value
}

/// What to write instead of another word for `off`.
fn off_hint(kind: &Kind, node: &Node) -> Option<String> {
    let Content::Scalar { text, .. } = &node.content else { return None };
    let is_no = ["no", "false", "none", "disabled", "off"].iter().any(|w| text.eq_ignore_ascii_case(w));
    kind.word().filter(|_| is_no).map(|word| format!("write `{word}`"))
}

/// A section read from nothing, in silence.
fn fallback<T: Section>(walk: &mut Walk<'_>, place: &Place) -> T {
    let (problems, marks) = (walk.problems.len(), walk.marks.len());
    let value = T::read(&mut Reader::new(walk, T::TABLE, place.clone()));
    walk.problems.truncate(problems);
    walk.marks.truncate(marks);
    value
}

impl<'r, 'a> Reader<'r, 'a> {
    fn new(walk: &'r mut Walk<'a>, table: &'static Table, place: Place) -> Self {
        Self { walk, table, entries: Vec::new(), place, asked: Vec::new(), bad: Vec::new() }
    }

    /// Sorts out keys that are not words and keys that stand twice.
    fn take_entries(&mut self, entries: &'r [(Node, Node)]) {
        for (key, value) in entries {
            let Content::Scalar { text, .. } = &key.content else {
                let complaint = Complaint {
                    found: format!("{} as a key", describe(key, false)),
                    allowed: names(self.table),
                    hint: String::new(),
                };
                let place = Place { span: key.span, path: self.place.path.clone() };
                self.walk.error(ProblemKind::UnknownKey, &place, complaint);
                continue;
            };
            if let Some(first) = self.entries.iter().find(|e| e.name == text) {
                let complaint = Complaint {
                    found: format!("a second `{text}`; the first is on line {}", first.key.span.line),
                    allowed: "each key once".to_owned(),
                    hint: "remove one of the two".to_owned(),
                };
                let place = Place { span: key.span, path: self.child_path(text) };
                self.walk.error(ProblemKind::DuplicateKey, &place, complaint);
                if self.table.key(text).is_some_and(|k| k.kind.is_secret()) {
                    self.walk.secrets.push(value.secret_span());
                }
                continue;
            }
            self.entries.push(Entry { name: text, key, value });
        }
    }

    fn child_path(&self, name: &str) -> String {
        if self.place.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place.path) }
    }

    fn entry(&self, name: &str) -> Option<&Entry<'r>> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// Where the value of `name` stands; the key itself if the value is nothing, the mapping if the key is absent.
    pub(crate) fn place_of(&self, name: &str) -> Place {
        let span = match self.entry(name) {
            Some(e) if e.value.is_null() => e.key.span,
            Some(e) => e.value.span,
            None => self.place.span,
        };
        Place { span, path: self.child_path(name) }
    }

    /// Where the key `name` stands: what a problem with a whole table points at.
    fn key_place(&self, name: &str) -> Place {
        let span = self.entry(name).map_or(self.place.span, |e| e.key.span);
        Place { span, path: self.child_path(name) }
    }

    /// Where the mapping stands.
    pub(crate) fn place(&self) -> Place {
        self.place.clone()
    }

    /// The definition of `name`, and the note that it was asked for.
    fn define(&mut self, name: &str) -> Option<&'static Key> {
        let key = self.table.key(name);
        debug_assert!(key.is_some(), "{} has no key {name}", self.table.place);
        self.asked.extend(key.map(|k| k.name));
        key
    }

    /// Whether the file sets `name`.
    pub fn is_set(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// Whether the values of `names` were read without a problem: only then are they compared with each other.
    pub fn all_good(&self, names: &[&str]) -> bool {
        names.iter().all(|n| !self.bad.contains(n))
    }

    /// Remembers the value of `name` for a check across sections.
    pub(crate) fn mark(&mut self, what: &'static str, name: &str, text: String) {
        let place = self.place_of(name);
        self.walk.marks.push(Mark { what, place, text });
    }

    /// Records that settings contradict each other, at the value of `name`.
    pub fn contradiction(&mut self, name: &str, found: String, allowed: &str, hint: String) {
        let place = self.place_of(name);
        let complaint = Complaint { found, allowed: allowed.to_owned(), hint };
        self.walk.error(ProblemKind::Contradiction, &place, complaint);
    }

    /// Records a setting that does not do what it seems to say, at the value of `name`.
    pub fn warning(&mut self, name: &str, found: String, allowed: &str, hint: String) {
        let place = self.place_of(name);
        let complaint = Complaint { found, allowed: allowed.to_owned(), hint };
        self.walk.problem(Severity::Warning, ProblemKind::Contradiction, &place, complaint);
    }

    /// Records that `name` is missing.
    pub fn missing(&mut self, name: &str) {
        let Some(key) = self.table.key(name) else { return };
        let complaint = Complaint {
            found: format!("no `{name}`"),
            allowed: key.kind.to_string(),
            hint: format!("for example: `{name}: {}`", key.example),
        };
        let place = self.place_of(name);
        self.walk.error(ProblemKind::Missing, &place, complaint);
    }

    /// Records that all of `names` are missing, of which one must be there.
    pub(crate) fn missing_any(&mut self, names: &[&str]) {
        let keys: Vec<&Key> = names.iter().filter_map(|name| self.table.key(name)).collect();
        let hint: Vec<String> = keys.iter().map(|key| format!("`{}: {}`", key.name, key.example)).collect();
        let complaint = Complaint {
            found: format!("none of {}", names.join(", ")),
            allowed: "at least one of them".to_owned(),
            hint: format!("for example: {}", hint.join(" or ")),
        };
        let place = self.place_of(names.first().copied().unwrap_or_default());
        self.walk.error(ProblemKind::Missing, &place, complaint);
    }

    /// The value of a scalar key: the user's, else the default.
    pub(crate) fn value<T>(&mut self, name: &str, parse: impl Fn(&Kind, &str) -> Result<T, Bad>) -> Option<T> {
        let key = self.define(name)?;
        let explicit = match self.entry(name).map(|e| e.value) {
            Some(node) => {
                let place = self.place_of(name);
                let value = scalar_value(self.walk, &key.kind, name, key.example, node, &place, &parse);
                if value.is_none() {
                    self.bad.push(key.name);
                }
                value
            }
            None => {
                if key.absent == Absent::Required {
                    self.missing(name);
                    self.bad.push(key.name);
                }
                None
            }
        };
        explicit.or_else(|| match key.absent {
            Absent::Default(text) => parse(&key.kind, text).ok(),
            _ => None,
        })
    }

    /// A duration, `None` if absent without a default, or the kind's word.
    pub fn duration_or_none(&mut self, name: &str) -> Option<Duration> {
        self.value(name, scalar::duration).flatten()
    }

    /// A duration.
    pub fn duration(&mut self, name: &str) -> Duration {
        self.duration_or_none(name).unwrap_or_default()
    }

    /// A size in bytes.
    pub fn size(&mut self, name: &str) -> u64 {
        self.value(name, scalar::size).unwrap_or_default()
    }

    /// A share or number, `None` if absent without a default, or the kind's word.
    pub fn number_or_none(&mut self, name: &str) -> Option<f64> {
        self.value(name, scalar::number).flatten()
    }

    /// A share or number.
    pub fn number(&mut self, name: &str) -> f64 {
        self.number_or_none(name).unwrap_or_default()
    }

    /// A whole number, `None` if absent without a default, or the kind's word.
    pub fn integer_or_none(&mut self, name: &str) -> Option<u64> {
        self.value(name, scalar::integer).flatten()
    }

    /// A whole number.
    pub fn integer(&mut self, name: &str) -> u64 {
        self.integer_or_none(name).unwrap_or_default()
    }

    /// A whole number as an index or count in memory.
    pub fn count(&mut self, name: &str) -> usize {
        usize::try_from(self.integer(name)).unwrap_or(usize::MAX)
    }

    /// A word.
    pub fn choice(&mut self, name: &str) -> &'static str {
        self.value(name, scalar::choice).unwrap_or_default()
    }

    /// `true` or `false`.
    pub fn bool(&mut self, name: &str) -> bool {
        self.value(name, scalar::boolean).unwrap_or_default()
    }

    /// Free text, such as a file's path; `None` if absent without a default.
    pub fn text(&mut self, name: &str) -> Option<String> {
        self.value(name, scalar::text)
    }

    /// The policy at the key `policy`; `None` once the problem is recorded.
    pub fn policy(&mut self, default: &str) -> Option<Policy> {
        crate::policy::read(self, default)
    }

    /// The breaker at the key `breaker`, `default` if absent.
    pub fn breaker(&mut self, default: &str) -> Breaker {
        breaker::read(self, default)
    }

    /// A secret.
    pub(crate) fn secret(&mut self, name: &str) -> Option<Secret> {
        if let Some(span) = self.entry(name).map(|e| e.value.secret_span()) {
            self.walk.secrets.push(span);
        }
        self.value(name, scalar::text).map(Secret::new)
    }

    /// One text or a list of texts, each read by `parse`, with its place in the file.
    pub(crate) fn texts<T>(&mut self, name: &str, parse: impl Fn(&Kind, &str) -> Result<T, Bad>) -> Vec<T> {
        let Some((node, place)) = self.node(name) else { return Vec::new() };
        let Some(key) = self.table.key(name) else { return Vec::new() };
        if key.kind.is_secret() {
            self.walk.secrets.push(node.secret_span());
        }
        let items: &[Node] = match &node.content {
            Content::List(items) if !items.is_empty() => items,
            Content::Scalar { .. } if !node.is_null() => std::slice::from_ref(node),
            _ => {
                self.wrong_shape(name, node, &place);
                return Vec::new();
            }
        };
        let mut values = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let place = Place { span: item.span, path: format!("{}[{i}]", place.path) };
            values.extend(scalar_value(self.walk, &key.kind, name, key.example, item, &place, &parse));
        }
        values
    }

    /// A node that is read by a function of its own, with its place; the key counts as asked for.
    pub(crate) fn node(&mut self, name: &str) -> Option<(&'r Node, Place)> {
        let key = self.define(name)?;
        let node = self.entry(name).map(|e| e.value);
        if node.is_none() && key.absent == Absent::Required {
            self.missing(name);
        }
        node.map(|n| (n, self.place_of(name)))
    }

    /// A mapping; `None` if it is absent and has no default.
    pub fn table<T: Section>(&mut self, name: &str) -> Option<T> {
        let key = self.define(name)?;
        let place = self.key_place(name);
        match (self.entry(name).map(|e| e.value), key.absent) {
            (Some(node), _) => Some(section_of(self.walk, &key.kind, node, &place)),
            (None, Absent::Default(_)) => Some(section(self.walk, &Node::empty_map(place.span), &place)),
            (None, Absent::Required) => {
                self.missing(name);
                None
            }
            (None, Absent::Means(_)) => None,
        }
    }

    /// A mapping with a default.
    pub fn table_or_default<T: Section>(&mut self, name: &str) -> T {
        self.table(name).unwrap_or_else(|| fallback(self.walk, &self.place))
    }

    /// A mapping, or the word that switches it off.
    pub fn switch<T: Section>(&mut self, name: &str) -> Switch<T> {
        let word = self.table.key(name).and_then(|k| k.kind.word()).unwrap_or("off");
        let off = |e: &Entry<'_>| matches!(&e.value.content, Content::Scalar { text, .. } if text == word);
        if self.entry(name).is_some_and(off) {
            self.define(name);
            return Switch::Off;
        }
        self.table(name).map_or(Switch::Absent, Switch::On)
    }

    /// A list of mappings.
    pub fn list<T: Section>(&mut self, name: &str) -> Vec<T> {
        let Some((node, place)) = self.node(name) else { return Vec::new() };
        let Content::List(items) = &node.content else {
            self.wrong_shape(name, node, &place);
            return Vec::new();
        };
        let mut values = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let place = Place { span: item.span, path: format!("{}[{i}]", place.path) };
            values.push(section(self.walk, item, &place));
        }
        values
    }

    /// Mappings under names of the user's choice, in the file's order.
    pub fn named<T: Section>(&mut self, name: &str) -> Vec<(String, T)> {
        let Some((node, place)) = self.node(name) else { return Vec::new() };
        let Content::Map(entries) = &node.content else {
            self.wrong_shape(name, node, &place);
            return Vec::new();
        };
        let mut inner = Reader::new(self.walk, T::TABLE, place);
        inner.take_entries(entries);
        let mut values = Vec::with_capacity(inner.entries.len());
        for entry in &inner.entries {
            let place = Place { span: entry.key.span, path: inner.child_path(entry.name) };
            if let Err(Bad::Type(hint) | Bad::Range(hint)) = scalar::name(&Kind::Name, entry.name) {
                let complaint = Complaint { found: describe(entry.key, false), allowed: Kind::Name.to_string(), hint };
                inner.walk.error(ProblemKind::WrongType, &place, complaint);
            }
            // A key of the section itself in the place of a name is a line that is not indented far enough.
            let is_stray = T::TABLE.key(entry.name).is_some() && !matches!(entry.value.content, Content::Map(_));
            if is_stray {
                let complaint = Complaint {
                    found: format!("`{}` where a name is expected", entry.name),
                    allowed: Kind::Named(T::TABLE).to_string(),
                    hint: format!("`{}` is a key of {}: indent it further", entry.name, T::TABLE.place),
                };
                inner.walk.error(ProblemKind::UnknownKey, &place, complaint);
                continue;
            }
            values.push((entry.name.to_owned(), section(inner.walk, entry.value, &place)));
        }
        values
    }

    /// Records that the value of `name` is not of the key's shape.
    pub(crate) fn wrong_shape(&mut self, name: &str, node: &Node, place: &Place) {
        let Some(key) = self.table.key(name) else { return };
        self.bad.push(key.name);
        let complaint = Complaint {
            found: describe(node, key.kind.is_secret()),
            allowed: key.kind.to_string(),
            hint: format!("for example: `{name}: {}`", key.example),
        };
        self.walk.error(ProblemKind::WrongType, place, complaint);
    }

    /// Reports the keys nobody asked for.
    fn finish(self) {
        let unread = self.table.keys.iter().find(|k| !self.asked.contains(&k.name));
        debug_assert!(unread.is_none(), "{} defines {unread:?} and never reads it", self.table.place);
        for entry in self.entries.iter().filter(|e| self.table.key(e.name).is_none()) {
            let (complaint, is_secret) = unknown::key(self.table, entry.name);
            if is_secret {
                self.walk.secrets.push(entry.value.secret_span());
            }
            let place = Place { span: entry.key.span, path: self.child_path(entry.name) };
            self.walk.error(ProblemKind::UnknownKey, &place, complaint);
        }
    }
}

/// One scalar of `kind`: substitution, then type and range. `None` once the problem is recorded.
pub(crate) fn scalar_value<T>(
    walk: &mut Walk<'_>,
    kind: &Kind,
    name: &str,
    example: &str,
    node: &Node,
    place: &Place,
    parse: impl Fn(&Kind, &str) -> Result<T, Bad>,
) -> Option<T> {
    let mut found = describe(node, kind.is_secret());
    let (problem, hint) = match &node.content {
        Content::Scalar { text, .. } if !node.is_null() => {
            let filled = walk.substitute(text, place)?;
            let (problem, hint) = match parse(kind, &filled) {
                Ok(value) => return Some(value),
                Err(Bad::Type(hint)) => (ProblemKind::WrongType, hint),
                Err(Bad::Range(hint)) => (ProblemKind::OutOfRange, hint),
            };
            if filled.is_empty() {
                EMPTY.clone_into(&mut found);
            }
            // A hint may quote the value; what came from the environment is not shown.
            (problem, if filled == *text { hint } else { String::new() })
        }
        _ => (ProblemKind::WrongType, String::new()),
    };
    let hint = if hint.is_empty() { format!("for example: `{name}: {example}`") } else { hint };
    walk.error(problem, place, Complaint { found, allowed: kind.to_string(), hint });
    None
}

/// The place of an item below `place`.
pub(crate) fn below(place: &Place, name: &str, span: Span) -> Place {
    Place { span, path: format!("{}.{name}", place.path) }
}
