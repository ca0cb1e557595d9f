//! What the targets in `fuzz/` call: each takes any bytes and fails if what it watches does not hold. The corpora replay through the same
//! functions in `make test`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a property that does not hold ends the run"
)]

mod answers;
mod events;
mod requests;
mod sniffer;

pub use answers::answers;
pub use events::events;
pub use requests::requests;
pub use sniffer::sniffer;

/// `input` in pieces whose lengths, from 1 to 16, follow from `seed`: the same input and seed give the same pieces.
fn pieces(input: &[u8], seed: u8) -> impl Iterator<Item = &[u8]> {
    let (mut rest, mut state) = (input, u32::from(seed) | 1);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let n = ((state >> 24) as usize % 16 + 1).min(rest.len());
        let (piece, more) = rest.split_at(n);
        rest = more;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn replay(target: &str, check: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let mut files = 0;
        for file in std::fs::read_dir(&folder).unwrap() {
            check(&std::fs::read(file.unwrap().path()).unwrap());
            files += 1;
        }
        assert!(files >= 10, "{} has {files} files", folder.display());
    }

    #[test]
    fn the_corpus_of_the_sniffer_replays() {
        replay("sniffer", super::sniffer);
    }

    #[test]
    fn the_corpus_of_event_streams_replays() {
        replay("events", super::events);
    }

    #[test]
    fn the_corpus_of_requests_replays() {
        replay("requests", super::requests);
    }

    #[test]
    fn the_corpus_of_answers_replays() {
        replay("answers", super::answers);
    }
}
