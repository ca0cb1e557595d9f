//! The reference page of the config file, made from the same definitions that parse it.

use crate::affinity::KeySourceTable;
use crate::config::Config;
use crate::key::{Absent, Key, Table};
use crate::reader::Section;
use std::fmt::Write as _;

const HEAD: &str = "# Config reference

<!-- Generated from the definitions in crates/tidegate-config; a test compares. To write it anew: TIDEGATE_WRITE_DOCS=1 cargo test -p tidegate-config -->

One YAML file. `tidegate check -c FILE` reports every problem at once; `tidegate schema` prints the JSON Schema for editors; a file to copy
is `examples/three-engines.yaml`.

- Durations: `250ms`, `30s`, `1m30s` (ns, us, ms, s, m, h, d).
- Sizes: `64KiB`, `4MiB`, or a number of bytes.
- Shares: `0.5` or `50%`.
- Numbers may be grouped: `10_000`.
- `${NAME}` is filled in from the environment, `${NAME:-default}` has a default; `$${` stands for a literal `${`.
- Names of policies and their parameters: `tidegate policies`.
";

/// The page, in Markdown.
pub fn docs() -> String {
    let mut page = HEAD.to_owned();
    table(&mut page, Config::TABLE);
    let key = KeySourceTable::TABLE;
    section(&mut page, "Keys (`key:` of affinity and of hashing policies)", key);
    page
}

/// A page for another kind of file that is read by the same machinery: `head`, then every table from `top` down.
pub fn docs_of(head: &str, top: &'static Table) -> String {
    let mut page = head.to_owned();
    table(&mut page, top);
    page
}

/// A table, then the tables below it.
fn table(page: &mut String, t: &'static Table) {
    let title = if t.place.is_empty() { "Top level".to_owned() } else { format!("`{}`", t.place) };
    section(page, &title, t);
    for inner in t.keys.iter().filter_map(|k| k.kind.table()) {
        table(page, inner);
    }
}

fn section(page: &mut String, title: &str, t: &Table) {
    // Writing to a string cannot fail.
    let _ = write!(page, "\n## {title}\n\n{}\n", t.summary);
    if t.keys.is_empty() {
        return;
    }
    page.push_str("\n| key | value | default | what it does | example |\n|---|---|---|---|---|\n");
    for key in t.keys {
        let _ = writeln!(page, "{}", row(key));
    }
}

fn row(key: &Key) -> String {
    let default = match key.absent {
        Absent::Required => "required".to_owned(),
        Absent::Default("{}") => "the defaults of its keys".to_owned(),
        Absent::Default(text) => format!("`{text}`"),
        Absent::Means(words) => words.to_owned(),
    };
    let kind = match key.kind.table() {
        Some(t) if !t.place.is_empty() => {
            let word = key.kind.word().map(|w| format!(", or `{w}`")).unwrap_or_default();
            format!("see `{}`{word}", t.place)
        }
        _ => key.kind.to_string(),
    };
    let cell = |text: &str| text.replace('|', "\\|");
    format!(
        "| `{}` | {} | {} | {} | `{}` |",
        key.name,
        cell(&kind),
        cell(&default),
        cell(key.summary),
        cell(key.example)
    )
}
