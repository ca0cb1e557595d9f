//! `check(input, expect)`: a config and what is said about it.

#![allow(dead_code, reason = "each test file uses its part")]

use tidegate_config::{Config, Problem};

/// The environment of the tests.
pub(crate) fn env(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("s3cret-from-env".to_owned()),
        "PORT" => Some("8000".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

/// All problems, errors and warnings.
pub(crate) fn problems(text: &str) -> Vec<Problem> {
    match Config::parse(text, "gw.yaml", &env) {
        Ok((_, problems)) | Err(problems) => problems,
    }
}

/// One line per problem: `line:column code path | found | hint`.
pub(crate) fn summary(text: &str) -> String {
    let line = |p: &Problem| {
        let whole = format!("{}:{} {} {} | {} | {}", p.line, p.column, p.kind.code(), p.path, p.found, p.hint);
        whole.trim_end().to_owned()
    };
    problems(text).iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Compares the summary with what is expected, line by line.
#[track_caller]
pub(crate) fn check(text: &str, expect: &str) {
    let expect: Vec<&str> = expect.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(summary(text), expect.join("\n"), "\nfor:\n{text}");
}

/// A good config whose pool has `lines` (indented by four) after its endpoint; the first of them is line 5.
pub(crate) fn in_pool(lines: &str) -> String {
    format!("listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  p:\n    endpoints: [{{ url: http://a:1 }}]\n{lines}\n")
}

/// A good config with `lines` at the top; the first of them is line 3.
pub(crate) fn on_top(lines: &str) -> String {
    format!(
        "listeners: [{{ address: 127.0.0.1:8080 }}]\npools: {{ p: {{ endpoints: [{{ url: http://a:1 }}] }} }}\n{lines}\n"
    )
}
