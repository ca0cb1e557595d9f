//! A table of results.

use serde_json::{Map, Value, json};

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A word.
    Text(String),
    /// A number, and how many decimals people are shown.
    Number(f64, usize),
    /// Nothing to say.
    Empty,
}

impl Cell {
    /// As people read it.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(n, decimals) => format!("{n:.decimals$}"),
            Self::Empty => String::new(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(n, _) => json!(n),
            Self::Empty => Value::Null,
        }
    }
}

/// A table: what its columns are for people and for programs, and its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// The study.
    pub title: &'static str,
    /// Heading and key of each column.
    pub columns: &'static [(&'static str, &'static str)],
    /// Rows, one cell per column.
    pub rows: Vec<Vec<Cell>>,
    /// Requests that were simulated.
    pub requests: u64,
}

impl Sheet {
    /// As one JSON object.
    pub fn json(&self) -> Value {
        let row = |cells: &Vec<Cell>| {
            let pairs = self.columns.iter().zip(cells).map(|((_, key), cell)| ((*key).to_owned(), cell.json()));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        json!({ "study": self.title, "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }

    /// As lines of text with columns of equal width, for golden files.
    pub fn text(&self) -> String {
        let head: Vec<String> = self.columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        let all: Vec<Vec<String>> =
            std::iter::once(head).chain(self.rows.iter().map(|row| row.iter().map(Cell::text).collect())).collect();
        let width = |at: usize| all.iter().filter_map(|row| row.get(at)).map(String::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            cells.collect::<Vec<_>>().join("  ") + "\n"
        };
        all.iter().map(line).collect()
    }
}
