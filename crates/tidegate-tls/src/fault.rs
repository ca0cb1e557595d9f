//! Why certificates cannot be used.

use std::fmt;
use std::path::{Path, PathBuf};

/// A file that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file; empty where none is at fault.
    pub file: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

impl Fault {
    pub(crate) fn of(file: &Path, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), what: what.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.as_os_str().is_empty() {
            return f.write_str(&self.what);
        }
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

impl std::error::Error for Fault {}
