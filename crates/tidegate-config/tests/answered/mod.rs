//! What must hold whatever the text: driven by property tests, and by the fuzz target `config`.

use tidegate_config::Config;

/// Parses and checks that errors have a place inside the text.
pub(crate) fn is_answered(text: &str) {
    let lines: Vec<&str> = text.split(['\n', '\r']).collect();
    let problems = match Config::parse(text, "gw.yaml", &env) {
        Ok((config, warnings)) => {
            assert!(!config.listeners.is_empty() && !config.routes.is_empty());
            assert!(config.routes.iter().all(|r| config.pool(&r.pool).is_some()));
            assert!(config.pools.iter().all(|p| !p.endpoints.is_empty()));
            warnings
        }
        Err(problems) => {
            assert!(problems.iter().any(tidegate_config::Problem::is_error));
            problems
        }
    };
    for p in problems {
        let shown = p.to_string();
        let length = p.excerpt.chars().count();
        assert!(p.line >= 1 && p.line <= lines.len().max(1), "{shown}");
        assert!(!shown.contains('\u{1b}') && !shown.contains('\0'), "{shown}");
        // The three dots of a cut may stand for fewer than three characters.
        assert!(p.column + 3 > p.caret && p.caret <= length && length <= 166, "{shown}");
        assert!(!p.found.is_empty() && !p.allowed.is_empty(), "{shown}");
    }
}

/// The environment that it is parsed in.
fn env(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("s3cret-from-env".to_owned()),
        "PORT" => Some("8000".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}
