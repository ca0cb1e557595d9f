//! Words of a client in what others read: in an error, a header, a line of a log.

/// Characters that are shown.
const MOST: usize = 100;

/// `text` as it may stand between backquotes in a sentence: at most 100 characters, and none that ends a line or the quotation, moves what stands
/// around it, or cannot be seen.
pub(crate) fn shown(text: &str) -> String {
    let plain = |c: char| match c {
        '`' => '\'',
        c if c.is_control() || is_unseen(c) => '\u{fffd}',
        c => c,
    };
    let mut shown: String = text.chars().take(MOST).map(plain).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Separators of lines and marks of direction and format (Unicode's Zl, Zp and Cf).
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_breaks_a_line_or_leaves_its_quotes() {
        assert_eq!(shown("meta-llama/Llama-3.1 \"8B\" é"), "meta-llama/Llama-3.1 \"8B\" é");
        let evil = "a\r\nERROR forged\u{2028}b\u{202e}c\u{1b}[31m`d\u{85}\0";
        let plain = shown(evil);
        assert!(!plain.contains(|c: char| c.is_control() || c == '`' || is_unseen(c)), "{plain:?}");
        assert_eq!(plain.chars().count(), evil.chars().count());
        let long = shown(&"x".repeat(1000));
        assert_eq!((long.len(), long.ends_with("x...")), (103, true));
        assert_eq!(shown(&"é".repeat(100)).chars().count(), 100);
    }
}
