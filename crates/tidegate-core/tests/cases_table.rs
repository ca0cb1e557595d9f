//! docs/cases.md names tests: each of them exists.

use std::path::{Path, PathBuf};

#[test]
fn every_test_named_in_the_table_of_cases_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = std::fs::read_to_string(root.join("docs/cases.md")).unwrap();
    let named: Vec<&str> =
        table.split('`').filter(|word| word.contains("::")).filter(|word| *word != "crate/file::test").collect();
    assert!(named.len() > 30);
    for name in named {
        let (file, test) = name.rsplit_once("::").unwrap();
        let (package, file) = file.split_once('/').unwrap();
        let package = if package == "tidegate" { "tidegate".to_owned() } else { format!("tidegate-{package}") };
        let package = root.join("crates").join(package);
        let found = sources(&package)
            .into_iter()
            .filter(|path| path.ends_with(format!("{file}.rs")))
            .any(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("fn {test}("))));
        assert!(found, "{name} is named in docs/cases.md and does not exist");
    }
}

/// Every file below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}
