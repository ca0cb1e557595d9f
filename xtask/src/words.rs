//! Words that do not belong into this source, each with the reason.

use crate::sources::Source;
use std::process::Command;

/// Word, reason; looked for in every Rust file but this one.
const EVERYWHERE: [(&str, &str); 7] = [
    ("todo!(", "unfinished"),
    ("unimplemented!(", "unfinished"),
    ("FIXME", "unfinished: finish it or file an issue"),
    ("XXX", "unfinished: finish it or file an issue"),
    ("for now", "unfinished: say what it is, not what it is meant to become"),
    ("placeholder", "unfinished"),
    ("#[ignore", "a test nobody runs proves nothing"),
];

/// Looked for in core's sources without its tests.
const IN_CORE: [(&str, &str); 9] = [
    ("std::", "core is no_std"),
    ("SystemTime", "core reads no clock"),
    ("Instant::now", "core reads no clock"),
    ("rand::", "core draws no number of its own"),
    ("async fn", "core never waits"),
    (".await", "core never waits"),
    ("println!", "core does no I/O"),
    ("tracing::", "decisions never log"),
    ("#[cfg(feature", "no feature changes what core decides"),
];

/// Ends of names of types and modules that say nothing.
const EMPTY_NAMES: [&str; 6] = ["Manager", "Helper", "Util", "Utils", "Handler", "Common"];

/// Hosts that belong into lock files only.
const HOSTS: [&str; 5] = ["crates.i\u{6f}", "pypi.o\u{72}g", "npmjs.o\u{72}g", "npmjs.c\u{6f}m", "deb.debian.o\u{72}g"];

/// Faults of wording.
pub(crate) fn check(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources.iter().filter(|s| !s.path.starts_with("xtask/")) {
        let in_core = source.path.starts_with("crates/tidegate-core/src");
        let tests_from = if source.is_test { 0 } else { source.lines };
        for (at, line) in source.text.lines().enumerate() {
            let mut fault = |what: String| faults.push(format!("{}:{}: {what}", source.path, at + 1));
            // A loop over times is no promise.
            let line = &*line.replace("for now in ", "");
            let found = |words: &[(&str, &str)]| {
                words.iter().find(|(w, _)| line.contains(w)).map(|(w, why)| format!("`{w}`: {why}"))
            };
            found(&EVERYWHERE).into_iter().for_each(&mut fault);
            if in_core && at < tests_from {
                found(&IN_CORE).filter(|_| !line.contains("extern crate std")).into_iter().for_each(&mut fault);
            }
            if at >= tests_from
                && !source.path.contains("testkit")
                && line.contains("sleep(")
                && !line.contains("paused")
            {
                fault("a test that sleeps to synchronise: wait for the event instead".to_owned());
            }
            empty_name(line).into_iter().for_each(&mut fault);
        }
        if source.path == "crates/tidegate-core/src/lib.rs" && !source.text.contains("#![no_std]") {
            faults.push("tidegate-core is not no_std".to_owned());
        }
    }
    faults.extend(hosts());
    faults
}

fn empty_name(line: &str) -> Option<String> {
    let mut words = line.trim_start().split([' ', '<', '(', '{', ':', ';']).skip_while(|w| w.starts_with("pub"));
    let is_definition = matches!(words.next()?, "struct" | "enum" | "trait" | "mod" | "type");
    let name = words.next()?;
    let lower = name.to_lowercase();
    let empty = EMPTY_NAMES.iter().find(|e| name.ends_with(**e) || lower == e.to_lowercase())?;
    (is_definition && name != "common").then(|| format!("`{name}`: {empty} says nothing about what it is"))
}

/// Names of package registries' hosts in tracked files.
fn hosts() -> Vec<String> {
    let Ok(listed) = Command::new("git").args(["ls-files"]).output() else { return Vec::new() };
    let files = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut faults = Vec::new();
    for file in files.lines().filter(|f| !f.ends_with(".lock") && !f.ends_with("package-lock.json")) {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        faults.extend(HOSTS.iter().filter(|h| text.contains(**h)).map(|h| format!("{file}: names the host {h}")));
    }
    faults
}
