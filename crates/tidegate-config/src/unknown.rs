//! What to say about a key that does not exist here: the key that was meant, or the place where this one belongs.

use crate::config::Config;
use crate::key::{Table, names};
use crate::nearest::nearest;
use crate::reader::Section;
use crate::walk::{Complaint, shorten};

/// The complaint about `name` in `table`, and whether a secret was probably meant, so that its value is masked.
pub(crate) fn key(table: &'static Table, name: &str) -> (Complaint, bool) {
    let meant = nearest(name, table.keys.iter().map(|k| k.name)).and_then(|n| table.key(n));
    // The very key one level further down beats a similar one here.
    let hint = match (below(table, name), meant, home(Config::TABLE, name)) {
        (Some(outer), _, _) => format!("`{name}` belongs in `{outer}`: indent it below `{outer}:`"),
        (None, Some(k), _) => format!("did you mean `{}`? For example: `{}: {}`", k.name, k.name, k.example),
        (None, None, Some(place)) => format!("`{name}` is a key of {place}; check the indentation"),
        (None, None, None) => String::new(),
    };
    let is_secret = meant.is_some_and(|k| k.kind.is_secret());
    let complaint = Complaint { found: format!("an unknown key, `{}`", shorten(name)), allowed: names(table), hint };
    (complaint, is_secret)
}

/// The key of `table` whose own table has `name`.
fn below(table: &'static Table, name: &str) -> Option<&'static str> {
    table.keys.iter().find(|k| k.kind.table().is_some_and(|t| t.key(name).is_some())).map(|k| k.name)
}

/// The place that has a key called `name`, the least deep first.
fn home(root: &'static Table, name: &str) -> Option<&'static str> {
    let mut level = vec![root];
    while !level.is_empty() {
        if let Some(t) = level.iter().find(|t| t.key(name).is_some()) {
            return Some(if t.place.is_empty() { "the top level" } else { t.place });
        }
        level = level.iter().flat_map(|t| t.keys).filter_map(|k| k.kind.table()).collect();
    }
    None
}

/// A mapping that works: the required keys of a table, or its first one.
pub(crate) fn table_example(table: &Table) -> String {
    let required: Vec<_> = table.keys.iter().filter(|k| k.absent == crate::key::Absent::Required).collect();
    let shown = if required.is_empty() { table.keys.iter().take(1).collect() } else { required };
    let inner: Vec<String> = shown.iter().map(|k| format!("{}: {}", k.name, k.example)).collect();
    format!("for example: `{{ {} }}`", inner.join(", "))
}
