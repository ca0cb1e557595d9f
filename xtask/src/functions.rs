//! How long a function may be.

use crate::sources::Source;

/// Lines from `fn` to its closing brace.
const LONGEST: usize = 70;

/// Faults of length. Formatted source is enough to find the end: the closing brace stands under the first letter of the signature.
pub(crate) fn check(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources.iter().filter(|s| !s.is_test) {
        let lines: Vec<&str> = source.text.lines().take(source.lines).collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, l)| starts(l)) {
            let indent = line.len() - line.trim_start().len();
            let end = format!("{}}}", " ".repeat(indent));
            let length = lines[at..].iter().position(|l| **l == end).map_or(0, |n| n + 1);
            if length > LONGEST {
                faults.push(format!("{}:{}: a function of {length} lines, over {LONGEST}", source.path, at + 1));
            }
        }
    }
    faults
}

fn starts(line: &str) -> bool {
    let mut words =
        line.trim_start().split(' ').skip_while(|w| w.starts_with("pub") || matches!(*w, "async" | "const" | "unsafe"));
    words.next() == Some("fn") && !line.trim_end().ends_with([';', '}'])
}

#[cfg(test)]
mod tests {
    #[test]
    fn finds_functions() {
        assert!(super::starts("    pub(crate) async fn x(") && super::starts("fn y() {"));
        assert!(!super::starts("    fn z(&self);") && !super::starts("let f = fnord();"));
    }
}
