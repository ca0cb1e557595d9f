//! docs/cases.md names tests: each of them exists.

use std::path::Path;

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
        let places = [
            format!("tests/{file}.rs"),
            format!("src/{file}.rs"),
            format!("src/load/{file}.rs"),
            format!("src/limit/{file}.rs"),
        ];
        let found = places
            .iter()
            .filter_map(|place| std::fs::read_to_string(package.join(place)).ok())
            .any(|text| text.contains(&format!("fn {test}(")));
        assert!(found, "{name} is named in docs/cases.md and does not exist");
    }
}
