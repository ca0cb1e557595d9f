//! The journal of decisions.

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use std::path::PathBuf;

/// A file per pool from which every decision can be taken again, with `tidegate replay`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Where the files are written, one `POOL.jsonl` per pool; earlier ones are replaced.
    pub folder: PathBuf,
    /// Bound on each file, in bytes; a journal that reaches it ends there.
    pub max_bytes: u64,
}

impl Section for Journal {
    const TABLE: &'static Table = &Table {
        place: "journal",
        summary: "A file per pool from which every decision can be taken again, with `tidegate replay`.",
        keys: &[
            Key {
                name: "folder",
                kind: Kind::Text,
                absent: Absent::Required,
                summary: "Folder in which a file `POOL.jsonl` is written per pool; earlier ones are replaced.",
                example: "/var/lib/tidegate/journal",
            },
            Key {
                name: "max_bytes",
                kind: Kind::Size { min: 64 << 10, max: 1 << 40 },
                absent: Absent::Default("256MiB"),
                summary: "Most bytes of each file; a journal that reaches it ends there.",
                example: "1GiB",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { folder: r.text("folder").map(PathBuf::from).unwrap_or_default(), max_bytes: r.size("max_bytes") }
    }
}
