//! What a study found: grids of words and numbers, drawn by the binary and written as JSON with the same content.

use serde_json::{Map, Value, json};

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A word.
    Text(String),
    /// A number, shown with so many decimals; `None`: there was none.
    Number(Option<f64>, usize),
    /// There is nothing to say here.
    Empty,
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
    /// What its columns are.
    pub columns: Vec<Column>,
    /// Rows, one cell per column.
    pub rows: Vec<Vec<Cell>>,
    /// What stands below it.
    pub notes: Vec<String>,
}

/// What a column is, for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// What stands above it, in one line or several.
    pub head: String,
    /// Its key in JSON.
    pub key: String,
}

impl Column {
    /// A column whose key is its heading, in one word.
    fn headed(head: String) -> Self {
        let key = head.replace("-\n", "").replace(['\n', ' '], "_");
        Self { head, key }
    }
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
            Self::Empty => String::new(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(v, _) => json!(v),
            Self::Empty => Value::Null,
        }
    }
}

impl Grid {
    pub(super) fn new(key: &'static str, title: &str, head: Vec<String>) -> Self {
        let columns = head.into_iter().map(Column::headed).collect();
        Self { key, title: title.to_owned(), columns, rows: Vec::new(), notes: Vec::new() }
    }

    /// A table whose columns have keys of their own: heading and key of each.
    pub(super) fn keyed(key: &'static str, title: &str, columns: &[(&str, &str)]) -> Self {
        let column = |(head, key): &(&str, &str)| Column { head: (*head).to_owned(), key: (*key).to_owned() };
        Self { columns: columns.iter().map(column).collect(), ..Self::new(key, title, Vec::new()) }
    }

    /// What stands above the columns.
    pub fn heads(&self) -> Vec<&str> {
        self.columns.iter().map(|c| c.head.as_str()).collect()
    }

    /// The same as JSON: one object per row.
    pub fn json(&self) -> Value {
        let row = |cells: &Vec<Cell>| -> Map<String, Value> {
            self.columns.iter().map(|c| c.key.clone()).zip(cells.iter().map(Cell::json)).collect()
        };
        json!({ "table": self.key, "title": self.title, "rows": self.rows.iter().map(row).collect::<Vec<_>>(), "notes": self.notes })
    }

    /// As lines of text with columns of equal width, for golden files.
    pub fn text(&self) -> String {
        let head: Vec<String> = self.heads().into_iter().map(str::to_owned).collect();
        let all: Vec<Vec<String>> =
            std::iter::once(head).chain(self.rows.iter().map(|row| row.iter().map(Cell::show).collect())).collect();
        let width = |at: usize| all.iter().filter_map(|row| row.get(at)).map(String::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            cells.collect::<Vec<_>>().join("  ") + "\n"
        };
        all.iter().map(line).collect()
    }
}

/// The `p`-quantile of values, 0..1; `None` of none. Values that never came are infinite.
pub(super) fn quantile(values: &mut [f64], p: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let place = (p * values.len() as f64).ceil() as usize;
    values.get(place.saturating_sub(1)).copied().filter(|v| v.is_finite())
}
