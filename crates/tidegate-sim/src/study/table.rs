//! What a study found: grids of words and numbers, drawn by the binary and written as JSON with the same content.

use serde_json::{Map, Value, json};

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A word.
    Text(String),
    /// A number, shown with so many decimals; `None`: there was none.
    Number(Option<f64>, usize),
}

/// All that a study found.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its tables.
    pub grids: Vec<Grid>,
    /// What has to be said before them, such as that requests are made up.
    pub notes: Vec<String>,
}

impl From<Vec<Grid>> for Answer {
    fn from(grids: Vec<Grid>) -> Self {
        Self { grids, notes: Vec::new() }
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Its key in JSON.
    pub key: &'static str,
    /// What stands above it.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Rows, each as long as the head.
    pub rows: Vec<Vec<Cell>>,
    /// What stands below it.
    pub notes: Vec<String>,
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn number(value: f64, digits: usize) -> Self {
        Self::Number(value.is_finite().then_some(value), digits)
    }

    pub(super) fn maybe(value: Option<f64>, digits: usize) -> Self {
        Self::Number(value, digits)
    }

    /// As people read it.
    pub fn show(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(Some(v), digits) => format!("{v:.digits$}"),
            Self::Number(None, _) => "-".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(v, _) => json!(v),
        }
    }
}

impl Grid {
    pub(super) fn new(key: &'static str, title: &str, head: Vec<String>) -> Self {
        Self { key, title: title.to_owned(), head, rows: Vec::new(), notes: Vec::new() }
    }

    /// The same as JSON: one object per row.
    pub fn json(&self) -> Value {
        let name = |h: &String| h.replace("-\n", "").replace(['\n', ' '], "_");
        let row = |cells: &Vec<Cell>| -> Map<String, Value> {
            self.head.iter().map(name).zip(cells.iter().map(Cell::json)).collect()
        };
        json!({ "table": self.key, "title": self.title, "rows": self.rows.iter().map(row).collect::<Vec<_>>(), "notes": self.notes })
    }
}

/// The `p`-quantile of values, 0..1; `None` of none. Values that never came are infinite.
pub(super) fn quantile(values: &mut [f64], p: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let place = (p * values.len() as f64).ceil() as usize;
    values.get(place.saturating_sub(1)).copied().filter(|v| v.is_finite())
}
