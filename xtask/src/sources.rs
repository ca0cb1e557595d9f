//! The Rust files of the workspace, and how long they may be.

use std::path::{Path, PathBuf};

/// Lines of a file without its tests.
const LONGEST: usize = 800;
const MEDIAN: usize = 150;
const P90: usize = 400;

/// One file.
pub(crate) struct Source {
    /// Path from the workspace's root.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
    /// Lines before its unit tests.
    pub(crate) lines: usize,
    /// Whether all of it is tests or benches.
    pub(crate) is_test: bool,
}

/// Reads all of them.
pub(crate) fn read() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default();
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "fuzz", "bench"] {
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    files.iter().filter_map(|file| source(&root, file)).collect()
}

fn source(root: &Path, file: &Path) -> Option<Source> {
    let text = std::fs::read_to_string(file).ok()?;
    let path = file.strip_prefix(root).ok()?.to_string_lossy().into_owned();
    let lines = text.lines().take_while(|l| *l != "#[cfg(test)]").count();
    let is_test = path.contains("/tests/")
        || path.contains("/benches/")
        || path.ends_with("tests.rs")
        || path.contains("testkit");
    Some(Source { path, text, lines, is_test })
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// Faults of length.
pub(crate) fn sizes(sources: &[Source]) -> Vec<String> {
    let long = sources.iter().filter(|s| s.lines > LONGEST);
    let mut faults: Vec<String> =
        long.map(|s| format!("{}: {} lines without tests, over {LONGEST}", s.path, s.lines)).collect();
    let mut lengths: Vec<usize> = sources.iter().filter(|s| !s.is_test).map(|s| s.lines).collect();
    lengths.sort_unstable();
    for (name, part, limit) in [("median", 50, MEDIAN), ("90th percentile", 90, P90)] {
        let at = lengths.get(lengths.len() * part / 100).copied().unwrap_or(0);
        if at > limit {
            faults.push(format!("the {name} of file lengths is {at} lines, over {limit}"));
        }
    }
    faults
}
