//! A stream of events, whole and in pieces.

use super::pieces;
use crate::request::events::{Events, Marker};

/// What is said of a stream does not depend on where its bytes are split.
pub fn events(input: &[u8]) {
    let Some((&seed, stream)) = input.split_first() else { return };
    let marker = [Marker::None, Marker::Done, Marker::Response, Marker::MessageStop][usize::from(seed % 4)];
    let told = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut events = Events::new(marker);
        let count: u64 = pieces.map(|piece| events.on_bytes(piece)).sum();
        (count, events.has_ended(), events.is_cut_short(), events.error(), events.is_between_events())
    };
    let whole = told(&mut std::iter::once(stream));
    assert_eq!(told(&mut pieces(stream, seed)), whole, "in pieces");
    assert_eq!(told(&mut stream.chunks(1)), whole, "byte by byte");
    // Every event with data ends with an empty line.
    let lines = stream.iter().filter(|b| **b == b'\n').count() as u64;
    assert!(whole.0 <= lines / 2, "{} events in {lines} lines", whole.0);
}
