//! The word that was probably meant.

/// Letters from which on the beginning of a word stands for it.
const BEGINNING: usize = 3;
/// Letters of a word that are looked at.
const COMPARED: usize = 64;
/// Candidates that are compared letter by letter where there are many.
const MEASURED: usize = 24;

/// The candidate nearest to `word` by edit distance, if near enough to be a slip of the fingers: a third of its letters, at least two. Else the
/// one that begins with it, or with which it begins, if there is only one.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(COMPARED).map(plain).collect();
    let limit = slip(word.len());
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

/// The `most` candidates that are nearest to `word`, the nearest first: slips of the fingers, then those that contain it or that it contains, then
/// the rest by edit distance. However many there are, only a few are compared letter by letter: the others are left behind by what their letters
/// alone say, which is never more than the distance.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let word: Vec<char> = word.chars().take(COMPARED).map(plain).collect();
    let limit = slip(word.len());
    let text: String = word.iter().collect();
    let counts = counts(&word);
    let mut ranked: Vec<(bool, usize, &str, Vec<char>)> = Vec::new();
    for candidate in candidates {
        let letters: Vec<char> = candidate.chars().take(COMPARED).map(plain).collect();
        let other: String = letters.iter().collect();
        let is_part = word.len().min(letters.len()) >= BEGINNING && (other.contains(&text) || text.contains(&other));
        ranked.push((!is_part, apart(&counts, &self::counts(&letters)), candidate, letters));
    }
    ranked.sort_by_key(|(is_other, apart, ..)| (*is_other && *apart > limit, *apart));
    ranked.truncate(most.max(MEASURED));
    let key = |(is_other, _, candidate, letters): &(bool, usize, &'a str, Vec<char>)| {
        let distance = distance(&word, letters);
        let rank = if distance <= limit { 0 } else { 1 + u8::from(*is_other) };
        (rank, distance, *candidate)
    };
    let mut measured: Vec<(u8, usize, &str)> = ranked.iter().map(key).collect();
    measured.sort_unstable();
    measured.into_iter().take(most).map(|(_, _, candidate)| candidate).collect()
}

/// Edits that may be a slip of the fingers in a word of so many letters.
fn slip(letters: usize) -> usize {
    (letters / 3).clamp(2, 4).min(letters.saturating_sub(1))
}

/// How often each letter stands in a word; letters that share a place only make words look more alike.
fn counts(word: &[char]) -> [i16; 64] {
    let mut counts = [0; 64];
    word.iter().for_each(|c| counts[*c as usize % 64] += 1);
    counts
}

/// Letters that one of two words has more than the other: at most their edit distance.
fn apart(a: &[i16; 64], b: &[i16; 64]) -> usize {
    let more = |a: &[i16; 64], b: &[i16; 64]| a.iter().zip(b).map(|(x, y)| (x - y).max(0)).sum::<i16>();
    usize::try_from(more(a, b).max(more(b, a))).unwrap_or(0)
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
    #[test]
    fn the_closest_come_first_however_many_there_are() {
        let names = ["qwen", "llama-3.1-8b-instruct", "llama-3.1-70b", "mistral", "lama"];
        assert_eq!(closest("llama", names, 3), ["lama", "llama-3.1-70b", "llama-3.1-8b-instruct"]);
        assert_eq!(closest("meta/Llama_3.1-70B", names, 1), ["llama-3.1-70b"], "who is part of what was asked for");
        assert_eq!(closest("zzz", names, 2), ["lama", "qwen"], "somebody is always nearest");
        assert!(closest("", [], 5).is_empty() && closest("x", names, 0).is_empty());
        let many: Vec<String> = (0..5000).map(|k| format!("model-{k:04}")).collect();
        let found = closest("modle-4321", many.iter().map(String::as_str), 2);
        assert_eq!(found.first(), Some(&"model-4321"));
        let long = ["x".repeat(10_000), "y".repeat(10_000)];
        assert_eq!(closest(&"y".repeat(100_000), long.iter().map(String::as_str), 1), [&long[1]]);
    }
}
