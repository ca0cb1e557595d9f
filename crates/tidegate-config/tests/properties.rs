//! Whatever the text, there is an answer: a config or located problems.

mod answered;

use answered::is_answered;
use proptest::prelude::*;

const EXAMPLE: &str = include_str!("../../../examples/three-engines.yaml");

/// The example without line `index` and what is nested below it.
fn without(index: usize) -> String {
    let lines: Vec<&str> = EXAMPLE.lines().collect();
    let indent = |l: &str| l.len() - l.trim_start().len();
    let depth = lines.get(index).map_or(0, |l| indent(l));
    let below = lines.iter().skip(index + 1).take_while(|l| l.trim().is_empty() || indent(l) > depth).count();
    let kept = lines.iter().enumerate().filter(|(i, _)| *i < index || *i > index + below);
    kept.map(|(_, l)| format!("{l}\n")).collect()
}

#[test]
fn the_example_without_any_one_key_is_good_or_says_where_not() {
    for index in 0..EXAMPLE.lines().count() {
        is_answered(&without(index));
    }
}

/// Text made of pieces that occur in configs, so that it gets past the parser more often than random letters do.
fn yaml_like() -> impl Strategy<Value = String> {
    let words = [
        "listeners",
        "pools",
        "routes",
        "match",
        "policy",
        "name",
        "adaptive",
        "endpoints",
        "url",
        "http://a:1",
        "health",
        "key",
        "5s",
        "off",
        "none",
        "50%",
        "10_000",
        "4MiB",
        "&a",
        "*a",
        "${X}",
        "${X:-1}",
        "$${",
        "!!str",
        "~",
        "-",
        "?",
        "|",
        ">",
        ": ",
        ":",
        ", ",
        "[",
        "]",
        "{",
        "}",
        "\"",
        "'",
        "\n",
        "\n  ",
        "\n    ",
        "\n- ",
        "\t",
        "#",
        "---",
        "...",
        "\u{feff}",
        "é",
        "\u{0}",
        "<<",
    ];
    proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..60).prop_map(|w| w.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_text_is_answered(text in "\\PC{0,200}|(?s).{0,200}") {
        is_answered(&text);
    }

    #[test]
    fn any_yaml_like_text_is_answered(text in yaml_like()) {
        is_answered(&text);
    }

    #[test]
    fn the_example_with_a_piece_replaced_is_answered(at in 0..EXAMPLE.len(), length in 0usize..40, piece in yaml_like()) {
        let start = (0..=at).rev().find(|i| EXAMPLE.is_char_boundary(*i)).unwrap_or(0);
        let end = (start + length..EXAMPLE.len()).find(|i| EXAMPLE.is_char_boundary(*i)).unwrap_or(EXAMPLE.len());
        is_answered(&format!("{}{piece}{}", &EXAMPLE[..start], &EXAMPLE[end..]));
    }
}
