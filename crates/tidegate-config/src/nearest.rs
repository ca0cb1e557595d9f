//! The word that was probably meant.

/// Letters from which on the beginning of a word stands for it.
const BEGINNING: usize = 3;

/// The candidate nearest to `word` by edit distance, if near enough to be a slip of the fingers: a third of its letters, at least two. Else the
/// one that begins with it, or with which it begins, if there is only one.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(64).map(plain).collect();
    let limit = (word.len() / 3).clamp(2, 4).min(word.len().saturating_sub(1));
    let (mut best, mut alike): (Option<(usize, &str)>, Vec<&str>) = (None, Vec::new());
    for candidate in candidates {
        let letters: Vec<char> = candidate.chars().map(plain).collect();
        let distance = distance(&word, &letters);
        if distance <= limit && best.is_none_or(|(d, _)| distance < d) {
            best = Some((distance, candidate));
        }
        let shorter = word.len().min(letters.len());
        if shorter >= BEGINNING && word[..shorter] == letters[..shorter] {
            alike.push(candidate);
        }
    }
    let only = if alike.len() == 1 { alike.first().copied() } else { None };
    best.map(|(_, candidate)| candidate).or(only)
}

/// `maxLoad`, `max-load` and `max_load` are the same word to a reader, so letters are compared without case and dashes as underscores.
fn plain(c: char) -> char {
    if c == '-' { '_' } else { c.to_ascii_lowercase() }
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours, each 1. O(a x b) in three rows.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let keys = ["interval", "timeout", "jitter", "max_load", "max_temperature", "tcp"];
        for (word, expect) in [
            ("intervall", Some("interval")),
            ("itnerval", Some("interval")),
            ("timeuot", Some("timeout")),
            ("maxLoad", Some("max_load")),
            ("max-load", Some("max_load")),
            ("tpc", Some("tcp")),
            ("max_temp", Some("max_temperature")),
            ("interval_seconds", Some("interval")),
            ("max", None),
            ("endpoints", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, keys), expect, "{word}");
        }
    }
}
